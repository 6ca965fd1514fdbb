"""Measure Starling, with nccl-tests' columns and conventions, beside other libraries in the same run.

Without a subcommand: collectives. Each line is one size. time is the median over repetitions of the mean time of one
call; algbw = size / time; busbw = algbw times a factor that makes it comparable across numbers of ranks; #wrong
counts elements that differ from the expected result. A ratio above 1 says how many times longer the other
library takes. Under torchrun or mpirun it joins the ranks that are there; else it starts -n processes itself.

Examples:

  starling bench -n 4 -b 8 -e 64M -f 4

  starling bench --collective all_reduce,all_gather -n 2,4 --compare gloo,openmpi --json out.json

  starling bench disorder | late-rank | cq | monitor | choice | choosing | compile | gpu | gpu-disorder |
  gpu-graphs | gpu-handwritten | gpu-overheads | overlap | all
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import (
    choice,
    choosing,
    compiling,
    completion_queue,
    convention,
    disorder,
    everything,
    floors,
    gpu,
    gpu_disorder,
    gpu_graphs,
    gpu_handwritten,
    gpu_overheads,
    late_rank,
    monitor,
    overlap,
    tables,
)
from . import collectives as collective_run
from .collectives import Sweep
from .ending import told_to_end
from .joined import follow, place_in_job
from .libraries import Choices, MissingLibraryError
from .measure import Effort
from .options import Json, Programs, finish, refuse, speaker, words
from .programs import MissingProgramError
from .workers import WorkerError

app = typer.Typer(
    help=__doc__, invoke_without_command=True, rich_markup_mode="markdown", add_completion=False
)
app.command("disorder")(disorder.command)
app.command("late-rank")(late_rank.command)
app.command("cq")(completion_queue.command)
app.command("monitor")(monitor.command)
app.command("choice")(choice.command)
app.command("choosing")(choosing.command)
app.command("compile")(compiling.command)
app.command("gpu")(gpu.command)
app.command("gpu-disorder")(gpu_disorder.command)
app.command("gpu-handwritten")(gpu_handwritten.command)
app.command("gpu-graphs")(gpu_graphs.command)
app.command("gpu-overheads")(gpu_overheads.command)
app.command("overlap")(overlap.command)
app.command("all")(everything.command)
app.command("tables")(tables.command)
app.command("floors")(floors.command)


def _sweep(
    *,
    collective: str,
    ranks: str,
    sizes: tuple[str, str, float, str],
    types: str,
    ops: str,
    root: int,
    libraries: str,
) -> Sweep:
    """Reads the options; raises ValueError with what is wrong."""
    collectives = convention.COLLECTIVES[:-2] if collective == "all" else words(collective)
    type_names = [convention.TYPE_ALIASES.get(name, name) for name in words(types)]
    reductions = words(ops)
    for chosen, known, what in (
        (collectives, convention.COLLECTIVES, "collective"),
        (type_names, list(convention.TYPE_BYTES), "data type"),
        (reductions, convention.REDUCTIONS, "reduction"),
    ):
        if not chosen:
            raise ValueError(f"no {what} given")
        for name in chosen:
            if name not in known:
                raise ValueError(f"unknown {what} '{name}'; choose from {', '.join(known)}")
    counts = [int(word) for word in words(ranks)]
    if not counts or min(counts) < 1 or max(counts) > 64:
        raise ValueError(f"-n {ranks}: take 1 to 64 processes")
    if not 0 <= root < min(counts):
        raise ValueError(f"--root {root} is not a rank of {min(counts)}")
    first, last, factor, step = sizes
    try:
        found = convention.sizes(
            convention.parse_bytes(first), convention.parse_bytes(last), factor, convention.parse_bytes(step)
        )
    except ValueError as error:
        raise ValueError(f"-b {first} -e {last} -f {factor}: {error}") from None
    return Sweep(collectives, counts, found, type_names, reductions, root, words(libraries))


@app.callback()
def bench(
    context: typer.Context,
    collective: Annotated[
        str, typer.Option("--collective", "-C", help="all, or some of: " + ", ".join(convention.COLLECTIVES))
    ] = "all_reduce",
    ranks: Annotated[str, typer.Option("-n", "--ranks", help="processes; several runs: 2,4")] = "2",
    first: Annotated[str, typer.Option("-b", "--minbytes", help="first size")] = "8",
    last: Annotated[str, typer.Option("-e", "--maxbytes", help="last size")] = "64M",
    factor: Annotated[
        float, typer.Option("-f", "--stepfactor", help="size times this from line to line")
    ] = 4,
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="or size plus this")] = "0",
    iterations: Annotated[
        int, typer.Option("--iterations", "--iters", help="calls a repetition; 0: as many as fit its time")
    ] = 0,
    warmups: Annotated[int, typer.Option("-w", "--warmup", help="calls before each repetition")] = 5,
    types: Annotated[str, typer.Option("-d", "--datatype", help="as float32,bfloat16")] = "float32",
    ops: Annotated[str, typer.Option("-o", "--op", help="as sum,max")] = "sum",
    root: Annotated[int, typer.Option("-r", "--root", help="of rooted collectives")] = 0,
    repetitions: Annotated[int, typer.Option("--repetitions", help="their median counts")] = 5,
    slice_ms: Annotated[float, typer.Option("--slice-ms", help="time of a repetition")] = 20,
    check: Annotated[bool, typer.Option("--check/--no-check", "-c", help="check every element")] = True,
    in_place: Annotated[bool, typer.Option("--in-place/--no-in-place", help="measure both")] = True,
    compare: Annotated[
        str,
        typer.Option(
            help="libraries to measure in turns with Starling: gloo, openmpi, torch, starling:ALGORITHM"
        ),
    ] = "",
    algorithm: Annotated[str, typer.Option(help="instead of the choice by size: ring, one_shot, ...")] = "",
    blocks: Annotated[int, typer.Option(help="blocks of each rank's daemon; 0: the default")] = 0,
    profile: Annotated[bool, typer.Option(help="set the budgets by measuring this machine first")] = False,
    plot: Annotated[Path | None, typer.Option(help="draw the curves into this PNG")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds for one answer")] = 120,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    context.with_resource(told_to_end())  # also while a subcommand runs
    if context.invoked_subcommand is not None:
        return
    arguments = ["--blocks", str(blocks), "--profile", str(int(profile))]
    arguments += ["--algorithm", algorithm] if algorithm else []
    choices = Choices(programs, tuple(arguments))
    effort = Effort(
        warmups=warmups,
        iterations=iterations,
        repetitions=max(repetitions, 1),
        slice_s=slice_ms / 1e3,
        check=check,
        in_place=in_place,
    )
    try:
        place = place_in_job()
        if place is not None:
            if compare:
                raise ValueError("--compare starts processes itself: run it without torchrun or mpirun")
            ranks = str(place.size)
            if place.rank != 0:
                raise typer.Exit(follow(place, choices))
        sweep = _sweep(
            collective=collective,
            ranks=ranks,
            sizes=(first, last, factor, step),
            types=types,
            ops=ops,
            root=root,
            libraries="starling," + compare,
        )
        sweep.timeout_s = timeout_s
        doc = collective_run.run(sweep, effort, choices, speaker(json_path))
    except (ValueError, MissingLibraryError, MissingProgramError) as error:
        refuse(error)
    except WorkerError as error:
        refuse(error, 1)
    finish(doc, json_path)
    if plot is not None:
        from .plots import plot_collectives

        plot_collectives(doc, plot)
    _judge(doc)


def _judge(doc: dict[str, Any]) -> None:
    """Exit code 1 for wrong results; what Starling refused is said."""
    for text in dict.fromkeys(collective_run.unmeasured_rows(doc, "starling")):
        typer.secho(f"not measured: {text}", fg="yellow", err=True)
    wrong = collective_run.wrong_rows(doc)
    for text in wrong[:20]:
        typer.secho(f"wrong: {text}", fg="red", err=True)
    if wrong:
        raise typer.Exit(1)
