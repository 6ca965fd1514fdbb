"""`starling tune`: which plan for which size, measured here."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from starling import ir
from starling.bench import gpu_devices
from starling.lang.source import SourceError, plan_of
from starling.passes.command import errors_told
from starling.tune.calibrate import Fit, calibrated
from starling.tune.candidates import CHOICE, COLLECTIVES
from starling.tune.measure import Effort, Progress
from starling.tune.table import Table
from starling.tune.tuning import DTYPES, GPU_BLOCKS, Result, Tuning, works_of
from starling.tune.tuning import tune as measured

app = typer.Typer(help=__doc__, add_completion=False)
MODES = ("threads", "processes")
DEVICES = ("cpu", "cuda")
PLACES = ("separate", "in_place")


def _chosen(text: str, known: Iterable[str], what: str) -> list[str]:
    """The names of a list with commas; empty: all."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SourceError(f"cannot tune {what}{', '.join(unknown)}; there are {', '.join(known)}")
    return names or list(known)


def _sizes(smallest: int, largest: int, factor: int) -> list[int]:
    if largest < smallest:
        raise SourceError(f"no size is between --begin {smallest} and --end {largest}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


@contextmanager
def _bar(points: int, quiet: bool) -> Iterator[Progress]:
    """On a terminal, on standard error."""
    if quiet or not sys.stderr.isatty():
        yield lambda points: None
        return
    with typer.progressbar(length=points, label="measuring", file=sys.stderr) as bar:
        yield bar.update


def _told(result: Result) -> Iterator[str]:
    """The table as people read it: each range's plan, and the library's choice at the same size."""
    yield f"{'collective':15} {'place':9} {'types':6} {'to bytes':>10}  {'plan':34} {'us':>9} {'library us':>10}"
    for row in result.table.rows:
        (library,) = [
            point["us"][CHOICE.name]
            for point in result.points
            if (point["collective"], point["in_place"], point["types"], point["size_bytes"])
            == (row.collective, row.in_place, row.types, row.measured_bytes)
        ]
        yield (
            f"{row.collective:15} {PLACES[row.in_place]:9} {row.types:6} {row.largest_bytes:>10}  "
            f"{row.algorithm:34} {row.time_us:9.1f} {library:10.1f}"
        )
    places = [point["winners_place"] for point in result.points]
    yield (
        f"the cost model had the winner first at {places.count(1)} of {len(places)} points, "
        f"among its first three at {sum(place <= 3 for place in places)}"
    )


def _fit_told(fit: Fit) -> str:
    if not fit.timed:
        return "the cost model's machine is assumed: nothing was heard of it (ranks that wait for cores, or noise)"
    timed = ", ".join(f"{name} {us:.3g}" for name, us in fit.timed.items())
    return f"the cost model's machine, in us a step: {timed}"


@app.command()
def tune(
    sources: list[str] = typer.Argument(
        None, help="programs of your own that take part: file.py[:function], a plan's text, or MSCCL XML"
    ),
    output: Path = typer.Option(
        Path("starling_table.txt"),
        "--output",
        "-o",
        help="the table; what it has of other topologies, kinds and sizes stays",
    ),
    ranks: int = typer.Option(4, "--ranks", "-n", min=1),
    collectives: str = typer.Option(
        "", "--collectives", "-C", help=f"{', '.join(COLLECTIVES)}; default: those of SOURCES, or all"
    ),
    ranks_as: str = typer.Option("", "--as", help=f"{', '.join(MODES)}; default: both, one after the other"),
    places: str = typer.Option("", "--places", help=f"{', '.join(PLACES)}; default: both"),
    dtypes: str = typer.Option("", "--dtypes", help=f"{', '.join(DTYPES)}: of reductions; default: both"),
    smallest: int = typer.Option(64, "--begin", "-b", min=1, help="bytes"),
    largest: int = typer.Option(1 << 22, "--end", "-e", help="bytes"),
    factor: int = typer.Option(4, "--factor", "-f", min=2, help="from one size to the next"),
    device: str = typer.Option(
        "cpu", help=f"{', '.join(DEVICES)}: the GPUs of this host in turn, a rank each"
    ),
    blocks: int = typer.Option(0, min=0, help="of each rank's daemon; 0: 1, on GPUs 32"),
    most: int = typer.Option(8, min=1, help="plans a size that the cost model lets through"),
    tiled: int = typer.Option(4, min=0, help="and of these again, in tiles of other sizes"),
    repetitions: int = typer.Option(5, min=1, help="measurements of a plan and size"),
    finals: int = typer.Option(
        15, min=0, help="more of those within a fifth of the best, whose median counts; 0: none"
    ),
    slice_ms: float = typer.Option(4.0, min=0.0, help="how long each of them calls"),
    visits: int = typer.Option(3, min=1, help="to a point for these, all others between: machines change"),
    launches: int = typer.Option(1, min=1, help="of the ranks, each with all measurements"),
    timeout_s: float = typer.Option(1800, "--timeout", min=1, help="seconds, for ranks of each kind"),
    json_file: str = typer.Option("", "--json", help="all that was measured; -: on standard output alone"),
) -> None:
    """Prunes by the cost model, measures and checks the best few, and writes the table that every rank uses.

    Programs of your own are measured at every size from --begin to --end that they are for (a program's sizes=, MSCCL
    XML's minBytes and maxBytes), and win those of these where they are fastest.

    Exit codes: 0 done; 1 a program is wrong; 2 wrong options, or no file.
    """
    say: Callable[[str], None] = (lambda line: None) if json_file == "-" else typer.echo
    with errors_told():
        (device,) = _chosen(device, DEVICES, "on ")[:1]
        if device == "cuda":
            gpu_devices.require(1)
        blocks = blocks or (1 if device == "cpu" else GPU_BLOCKS)
        own = [plan_of(source, ranks, blocks=blocks) for source in sources or []]
        for plan in own:
            ir.verify(plan)
        of_own = list(dict.fromkeys(plan.collective for plan in own))
        names = [*_chosen(collectives, COLLECTIVES, "")] if collectives or not own else []
        names = list(dict.fromkeys([*names, *(name for name in of_own if name in COLLECTIVES)]))
        if not output.absolute().parent.is_dir():
            raise SourceError(f"there is no folder {output.parent} for the table")
        wanted = [
            Tuning(
                names, ranks, _sizes(smallest, largest, factor), mode == "processes", device, blocks, most, tiled,
                tuple(place == "in_place" for place in _chosen(places, PLACES, "")),
                tuple(_chosen(dtypes, DTYPES, "")), Effort(repetitions, slice_ms / 1e3, finals=finals, visits=visits),
                timeout_s, launches,
            )
            for mode in _chosen(ranks_as, MODES, "ranks as ")
        ]  # fmt: skip
        table = Table.load(output) if output.exists() else Table()
        points: list[dict[str, Any]] = []
        for k, tuning in enumerate(wanted):
            fit = calibrated(
                ranks, cores=os.cpu_count() or 1, processes=tuning.processes, device=device, blocks=blocks
            )
            wanted[k] = tuning = dataclasses.replace(tuning, fit=fit)
            say(_fit_told(fit))
            works = works_of(tuning, own)
            with _bar(len(works) * launches * tuning.effort.sweeps, json_file == "-") as progress:
                result = measured(tuning, works, progress)
            points += result.points
            table.update(result.table, smallest)
            table.save(output)
            for topology in result.table.topologies():
                say(topology)
            for line in _told(result):
                say(line)
        say(f"wrote {output}: {len(table.rows)} rows, {len(table.plans)} plans")
        if json_file:
            _write(
                json_file,
                {"table": str(output), "plans": [_options(tuning) for tuning in wanted], "points": points},
            )


def _options(tuning: Tuning) -> dict[str, Any]:
    fit = tuning.machines
    return {
        **dataclasses.asdict(dataclasses.replace(tuning, fit=None)),
        "fit": {"machine": repr(fit.machine), "half": repr(fit.half), "timed_us": fit.timed},
    }


def _write(target: str, told: dict[str, Any]) -> None:
    from starling.bench import results

    settings = {"table": told["table"], "plans": told["plans"]}
    document = results.document("tune", settings, told["points"])
    if target == "-":
        typer.echo(json.dumps(document, indent=1))
    else:
        results.write(Path(target), document)
