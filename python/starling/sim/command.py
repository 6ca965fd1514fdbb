"""`starling soak`: the shipped scheduler in the simulator, seed after seed; a failing seed replays exactly."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from starling.sim import timeline
from starling.sim.engine import CAMPAIGNS, Soak, replay

app = typer.Typer(help=__doc__)
_screen = Console(stderr=True)

SLICE_SECONDS = 0.5  # between two looks at the progress bar


@app.callback(invoke_without_command=True)
def soak(
    campaign: Annotated[str, typer.Option(help=" | ".join(CAMPAIGNS))] = "mixed",
    seconds: Annotated[float, typer.Option(help="how long")] = 60.0,
    seeds: Annotated[int, typer.Option(help="stop after so many seeds; 0: when the time is up")] = 0,
    first_seed: Annotated[int, typer.Option(help="the first seed")] = 1,
    threads: Annotated[int, typer.Option(help="0: one a core")] = 0,
    out: Annotated[Path, typer.Option(help="folder for failing seeds and replays")] = Path("soak"),
    replay_seed: Annotated[
        int | None, typer.Option("--replay", help="tell this seed's story; timeline and trace go to --out")
    ] = None,
) -> None:
    """Run seeds for a while, or replay one."""
    if campaign not in CAMPAIGNS:
        raise typer.BadParameter(f"use one of {', '.join(CAMPAIGNS)}", param_hint="--campaign")
    if replay_seed is not None:
        _replay(campaign, replay_seed, out)
    else:
        _soak(campaign, seconds, seeds, first_seed, threads or os.cpu_count() or 1, out)


def _soak(campaign: str, seconds: float, seeds: int, first_seed: int, threads: int, out: Path) -> None:
    runner = Soak(campaign, first_seed, threads)
    start = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rate]:.0f} seeds/s, {task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_screen) as progress:
        total = seeds if seeds else seconds
        bar = progress.add_task(f"soak {campaign}", total=total, rate=0.0, failed=0)
        while (elapsed := time.monotonic() - start) < seconds and (not seeds or runner.seeds < seeds):
            runner.run(min(SLICE_SECONDS, seconds - elapsed), seeds)
            elapsed = time.monotonic() - start
            progress.update(
                bar,
                completed=runner.seeds if seeds else elapsed,
                rate=runner.seeds / elapsed,
                failed=len(runner.failures),
            )
    elapsed = time.monotonic() - start
    total_report = runner.total
    typer.echo(
        f"{runner.seeds} seeds in {elapsed:.1f} s ({runner.seeds / elapsed:.0f}/s), {len(runner.failures)} failed; "
        f"{total_report.operations} operations, {total_report.instructions} instructions, {total_report.parks} parks, "
        f"{total_report.quits} quits, {total_report.synchronizations} synchronizations, {total_report.steps} steps"
    )
    if runner.failures:
        out.mkdir(parents=True, exist_ok=True)
        kept = out / f"failed-{campaign}.json"
        kept.write_text(
            json.dumps([{"seed": f.seed, "failure": f.failure} for f in runner.failures], indent=1)
        )
        first = runner.failures[0]
        typer.echo(f"first failure: seed {first.seed}: {first.failure}")
        typer.echo(f"kept in {kept}; replay: starling soak --campaign {campaign} --replay {first.seed}")
        raise typer.Exit(1)


def _replay(campaign: str, seed: int, out: Path) -> None:
    with _screen.status(f"replaying seed {seed}"):
        told = replay(campaign, seed)
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{campaign}-{seed}"
    timeline.write_png(told.events, stem.with_suffix(".png"), f"{campaign} seed {seed}")
    timeline.write_perfetto(told.events, stem.with_suffix(".trace.json"))
    typer.echo(told.story)
    if told.shrunk_story:
        typer.echo("The same failure, made small:\n")
        typer.echo(told.shrunk_story)
    typer.echo(f"timeline: {stem.with_suffix('.png')}; ui.perfetto.dev: {stem.with_suffix('.trace.json')}")
    if told.report.failure:
        raise typer.Exit(1)
