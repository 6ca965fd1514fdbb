"""`starling bench all`: every measurement that the README shows, in one command of about ten minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from . import collectives, completion_queue, convention, disorder, late_rank, plots, tables
from .libraries import Choices, MissingLibraryError
from .measure import Effort
from .options import Programs, refuse
from .programs import MissingProgramError
from .results import write
from .workers import WorkerError

LIBRARIES = ["starling", "torch", "gloo", "openmpi"]


def _collectives(quick: bool, choices: Choices, say: Callable[[str], None]) -> dict[str, Any]:
    last = 1 << 16 if quick else 64 << 20
    sweep = collectives.Sweep(
        collectives=["all_reduce"] if quick else convention.COLLECTIVES[:-1],
        ranks=[2] if quick else [2, 4],
        sizes=convention.sizes(8, last, 64 if quick else 4, 0),
        types=["float32"],
        reductions=["sum"],
        root=0,
        libraries=["starling"] if quick else LIBRARIES,
    )
    effort = Effort(
        warmups=1,
        repetitions=2 if quick else 5,
        slice_s=0.002 if quick else 0.012,
        fewest_iterations=1,
        others_check_bytes=4 << 20,
        large_bytes=8 << 20,
        in_place=quick,
    )
    return collectives.run(sweep, effort, choices, say)


def run(out: Path, quick: bool, choices: Choices, say: Callable[[str], None]) -> list[Path]:
    """Measures and writes; the files."""
    measured: dict[str, dict[str, Any]] = {}
    counts = [2] if quick else [2, 4, 8]
    measured["completion_queue"] = completion_queue.measure(
        4, 1000 if quick else 100_000, 1024, 1 if quick else 5, choices.programs, say
    )
    measured["disorder"] = disorder.measure(counts, 5 if quick else 50, 2 if quick else 5, choices, say)
    burst = late_rank.Burst(iterations=3) if quick else late_rank.Burst()
    measured["late_rank"] = late_rank.measure(burst, 1 if quick else 3, say)
    measured["collectives"] = _collectives(quick, choices, say)
    files = []
    for name, doc in measured.items():
        files.append(out / f"{name}.json")
        write(files[-1], doc)
    for name, plot in (
        ("collectives", plots.plot_collectives),
        ("late_rank", plots.plot_late_rank),
        ("disorder", plots.plot_disorder),
    ):
        files.append(out / f"{name}.png")
        plot(measured[name], files[-1])
    return sorted(files)


def command(
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the results; else bench/results, or starling-bench with --quick"),
    ] = None,
    quick: Annotated[bool, typer.Option(help="seconds instead of minutes: to try the machinery")] = False,
    programs: Programs = None,
) -> None:
    """Run all benchmarks, write the results and renew the tables of README.md and docs/RESULTS.md, where they are.

    Leave the machine alone meanwhile. Without --quick: 2 and 4 ranks, 8 B to 64 MB, beside gloo and Open MPI.
    """
    began = time.monotonic()
    out = out or Path("starling-bench" if quick else "bench/results")  # what is published is not for trying
    try:
        files = run(out, quick, Choices(programs), typer.echo)
    except (MissingLibraryError, MissingProgramError) as error:
        refuse(error)
    except WorkerError as error:
        refuse(error, 1)
    for page in tables.PAGES:
        if page.is_file() and not quick:
            tables.renew(page, out)
            files.append(page)
    typer.echo(f"{time.monotonic() - began:.0f} s; written: {', '.join(map(str, files))}")
