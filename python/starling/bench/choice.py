"""`starling bench choice`: is what the library takes by itself as fast as the best plan that can be named?"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.tune.candidates import CHOICE, COLLECTIVES, REDUCING, ROOTED, Candidate, candidates
from starling.tune.measure import Effort, Point, Samples, Work, measured
from starling.tune.tuning import DTYPES, GPU_BLOCKS, Tuning
from starling.tune.tuning import works_of as tuned_works
from starling.write_whole import write_whole

from .options import refuse, words
from .results import document

TABLE = Candidate("table", "")
"""What a communicator takes that follows a table."""


def works_of(
    collectives: list[str], ranks: int, sizes: list[int], processes: bool, table: bool, device: str = "cpu"
) -> list[Work]:
    """At every point every plan there is, on GPUs the best by the cost model, and the choices beside them."""
    if device != "cpu":
        tuning = Tuning(collectives, ranks, sizes, processes, device, GPU_BLOCKS, most=8, dtypes=DTYPES[:1])
        return [
            Work(work.point, [*work.candidates, *([TABLE] if table else [])]) for work in tuned_works(tuning)
        ]
    works = []
    for collective in collectives:
        for in_place in (False,) if collective in ROOTED else (False, True):
            all_ = candidates(collective, ranks, 1, in_place, processes)
            all_ = [*all_, CHOICE, *([TABLE] if table else [])]
            for dtype in DTYPES if collective in REDUCING else DTYPES[:1]:
                works += [Work(Point(collective, in_place, dtype, size), all_) for size in sizes]
    return works


def rows_of(topology: str, works: list[Work], found: list[Samples]) -> list[dict[str, Any]]:
    """Of each point the medians, us, and how many times longer the choices take than the best plan; the same of each
    plan's least sample, which spells in which other programs have the cores leave alone.

    ``spread``: the ratio between the medians of two halves of one plan's samples, the best one's: what chance does.
    """
    rows = []
    for work, samples in zip(works, found, strict=True):
        us = {name: round(statistics.median(values), 3) for name, values in samples.items()}
        fixed = {name: value for name, value in us.items() if name not in (CHOICE.name, TABLE.name)}
        best = min(fixed, key=lambda name: (fixed[name], name))
        least = {name: round(min(values), 3) for name, values in samples.items()}
        halves = [statistics.median(samples[best][k::2]) for k in range(2)]
        row: dict[str, Any] = {
            "topology": topology,
            **asdict(work.point),
            "types": work.point.types,
            "us": us,
        }
        row |= {"least_us": least, "best": best, "spread": round(max(halves) / min(halves), 3)}
        for name in (CHOICE.name, TABLE.name):
            if name in us:
                row[name] = round(us[name] / us[best], 3)
                row[f"{name}_least"] = round(least[name] / min(least[plan] for plan in fixed), 3)
        rows.append(row)
    return rows


def told(rows: list[dict[str, Any]], name: str) -> str:
    text = f"{name}:"
    for kind, key in (("medians", name), ("least samples", f"{name}_least")):
        ratios = sorted(row[key] for row in rows if key in row)
        within = sum(ratio <= 1.05 for ratio in ratios)
        text += (
            f" by {kind} within 1.05 of the best plan at {within} of {len(ratios)} points, "
            f"median {statistics.median(ratios):.3f}, worst {ratios[-1]:.2f};"
        )
    return text.rstrip(";")


def command(
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=2)] = 2,
    ranks_as: Annotated[str, typer.Option("--as", help="threads or processes")] = "processes",
    collective: Annotated[str, typer.Option("--collective", "-c", help="default: all")] = "",
    sizes: Annotated[str, typer.Option(help="bytes of the larger of a rank's buffers")] = (
        "64,512,4096,32768,262144,2097152"
    ),
    table: Annotated[Path | None, typer.Option(help="a table of choices, measured beside")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    repetitions: Annotated[int, typer.Option(min=2)] = 9,
    slice_ms: Annotated[float, typer.Option(min=0.0)] = 2.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="other runs in the file stay, unless of the same kind")
    ] = None,
) -> None:
    """Every plan, the library's choice, and a table's, in turns, in one run.

    Exit codes: 0 measured and right; 2 options to change.
    """
    names = words(collective) or list(COLLECTIVES)
    unknown = [name for name in names if name not in COLLECTIVES]
    if unknown or ranks_as not in ("threads", "processes") or device not in ("cpu", "cuda"):
        refuse(f"no collective {', '.join(unknown)}" if unknown else f"no ranks {ranks_as} on {device}")
    works = works_of(
        names, ranks, [int(size) for size in words(sizes)], ranks_as == "processes", table is not None, device
    )
    topology, found = measured(
        works,
        ranks,
        processes=ranks_as == "processes",
        device=device,
        blocks=1 if device == "cpu" else GPU_BLOCKS,
        effort=Effort(repetitions, slice_ms / 1e3),
        tables={TABLE.name: str(table)} if table else {},
    )
    rows = rows_of(topology, works, found)
    typer.echo(f"{topology}, {', '.join(names)}")
    for name in (CHOICE.name, *([TABLE.name] if table else [])):
        typer.echo(told(rows, name))
    if json_file is not None:
        _join(json_file, document("choice", {"repetitions": repetitions, "slice_ms": slice_ms}, rows))


def _join(path: Path, run: dict[str, Any]) -> None:
    """Runs are short, for the machine to be quiet: each adds its points to the file."""
    mine = {(row["topology"], row["collective"]) for row in run["rows"]}
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    for other in runs:
        other["rows"] = [row for row in other["rows"] if (row["topology"], row["collective"]) not in mine]
    kept = [other for other in runs if other["rows"]]
    everything = [row for other in [*kept, run] for row in other["rows"]]
    summary = [
        told(everything, name) for name in (CHOICE.name, TABLE.name) if any(name in r for r in everything)
    ]
    write_whole(
        path, json.dumps({"benchmark": "choice", "summary": summary, "runs": [*kept, run]}, indent=1) + "\n"
    )
