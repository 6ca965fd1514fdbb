"""The shipped scheduler in the simulator, seed after seed; a failing seed replays exactly."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from starling.bench import results
from starling.sim import timeline
from starling.sim.engine import CAMPAIGNS, Soak, replay

app = typer.Typer(help=__doc__, add_completion=False)
_screen = Console(stderr=True)

COUNTS = ("operations", "instructions", "parks", "quits", "launches", "synchronizations", "steps")
MOST_SEED = 2**63 - 1
SLICE_SECONDS = 0.5  # between two looks at the progress bar


def _default_threads() -> int:
    return len(os.sched_getaffinity(0))


@app.command()
def soak(
    campaign: Annotated[str, typer.Option(help=" | ".join(CAMPAIGNS))] = "mixed",
    seconds: Annotated[float, typer.Option(min=0.1, help="how long")] = 60.0,
    seeds: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="stop after so many seeds; 0: when the time is up")
    ] = 0,
    first_seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="the first seed")] = 1,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="0: one a core")] = 0,
    out: Annotated[Path, typer.Option(help="folder for failing seeds and replays")] = Path("soak"),
    replay_seed: Annotated[
        int | None,
        typer.Option(
            "--replay", min=0, max=MOST_SEED, help="tell this seed's story; timeline and trace go to --out"
        ),
    ] = None,
    json_path: Annotated[
        str, typer.Option("--json", help="report to this file; -: to standard output and nothing else")
    ] = "",
) -> None:
    """Run the shipped scheduler in the simulator, seed after seed, or replay a seed exactly.

    Ctrl-C ends a soak early; what was run is reported.

    Exit codes: 0 all right; 1 a seed failed; 2 options to change, or nowhere to write; 130 interrupted.
    """
    if campaign not in CAMPAIGNS:
        raise typer.BadParameter(f"use one of {', '.join(CAMPAIGNS)}", param_hint="--campaign")
    try:
        if replay_seed is not None:
            _replay(campaign, replay_seed, out, json_path)
        else:
            _soak(Choice(campaign, seconds, seeds, first_seed, threads or _default_threads()), out, json_path)
    except OSError as error:
        typer.echo(f"cannot write {error.filename or 'the results'}: {error.strerror}", err=True)
        typer.echo("free some space, or choose another folder with --out and --json", err=True)
        raise typer.Exit(2) from None


@dataclass(frozen=True)
class Choice:
    """What is run."""

    campaign: str
    seconds: float
    seeds: int
    first_seed: int
    threads: int


@dataclass(frozen=True)
class Ran:
    """What came of it."""

    seconds: float
    interrupted: bool


def _soak(choice: Choice, out: Path, json_path: str) -> None:
    runner = Soak(choice.campaign, choice.first_seed, choice.threads)
    ran = _run(runner, choice)
    document = _document(runner, choice, ran)
    if json_path != "-":
        typer.echo(_sentence(document))
    # The failing seeds on the screen first: they are worth more than a file that a full disk refuses.
    if runner.failures:
        first = runner.failures[0]
        typer.echo(f"first failure: seed {first.seed}: {first.failure}", err=True)
        typer.echo(f"replay: starling soak --campaign {choice.campaign} --replay {first.seed}", err=True)
    if json_path == "-":
        typer.echo(json.dumps(document, indent=1))
    elif json_path:
        results.write(Path(json_path), document)
    if runner.failures:
        kept = out / f"failed-{choice.campaign}.json"
        results.write(kept, document)
        typer.echo(f"failing seeds: {kept}", err=True)
        raise typer.Exit(1)
    if ran.interrupted:
        raise typer.Exit(130)


def _run(runner: Soak, choice: Choice) -> Ran:
    start = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rate]:.0f} seeds/s, {task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    interrupted = False
    with Progress(*columns, console=_screen) as progress:
        total = choice.seeds if choice.seeds else choice.seconds
        bar = progress.add_task(f"soak {choice.campaign}", total=total, rate=0.0, failed=0)
        try:
            while (elapsed := time.monotonic() - start) < choice.seconds and (
                not choice.seeds or runner.seeds < choice.seeds
            ):
                runner.run(min(SLICE_SECONDS, choice.seconds - elapsed), choice.seeds)
                elapsed = time.monotonic() - start
                progress.update(
                    bar,
                    completed=runner.seeds if choice.seeds else elapsed,
                    rate=runner.seeds / elapsed,
                    failed=len(runner.failures),
                )
        except KeyboardInterrupt:
            interrupted = True
    return Ran(time.monotonic() - start, interrupted)


def _document(runner: Soak, choice: Choice, ran: Ran) -> dict[str, Any]:
    total = runner.total
    row = {
        "campaign": choice.campaign,
        "first_seed": choice.first_seed,
        "threads": choice.threads,
        "seconds": round(ran.seconds, 1),
        "interrupted": ran.interrupted,
        "seeds": runner.seeds,
        "seeds_per_second": round(runner.seeds / max(ran.seconds, 1e-9), 1),
        **{name: getattr(total, name) for name in COUNTS},
        "failed": len(runner.failures),
        "failures": [{"seed": f.seed, "failure": f.failure} for f in runner.failures],
    }
    return results.document("soak", {"seconds": choice.seconds, "seeds": choice.seeds}, [row])


def _sentence(document: dict[str, Any]) -> str:
    row = document["rows"][0]
    counts = ", ".join(f"{row[name]} {name}" for name in COUNTS)
    early = "interrupted; " if row["interrupted"] else ""
    return (
        f"{early}{row['seeds']} seeds in {row['seconds']} s ({row['seeds_per_second']:.0f}/s), "
        f"{row['failed']} failed; {counts}"
    )


def _replay(campaign: str, seed: int, out: Path, json_path: str) -> None:
    with _screen.status(f"replaying seed {seed}"):
        told = replay(campaign, seed)
    quiet = json_path == "-"
    if not quiet:
        typer.echo(told.story)
        if told.shrunk_story:
            typer.echo("The same failure, made small:\n")
            typer.echo(told.shrunk_story)
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{campaign}-{seed}"
    picture, trace = stem.with_suffix(".png"), stem.with_suffix(".trace.json")
    timeline.write_png(told.events, picture, f"{campaign} seed {seed}")
    timeline.write_perfetto(told.events, trace)
    row = {
        "campaign": campaign,
        "seed": seed,
        "failure": told.report.failure,
        "virtual_ns": told.report.virtual_ns,
        **{name: getattr(told.report, name) for name in COUNTS},
        "timeline": str(picture),
        "trace": str(trace),
    }
    if quiet:
        typer.echo(json.dumps(results.document("soak replay", {}, [row]), indent=1))
    else:
        typer.echo(f"timeline: {picture}; ui.perfetto.dev: {trace}")
        if json_path:
            results.write(Path(json_path), results.document("soak replay", {}, [row]))
    if told.report.failure:
        raise typer.Exit(1)
