"""`starling bench choice`: is what the library takes by itself as fast as the best plan that can be named?"""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.tune.candidates import (
    CHOICE,
    COLLECTIVES,
    REDUCING,
    ROOTED,
    Candidate,
    candidates,
    in_other_tiles,
)
from starling.tune.measure import AGAIN, ITSELF, Effort, Point, Samples, Work, measured
from starling.tune.model import cpu
from starling.tune.table import Table
from starling.tune.tuning import DTYPES, GPU_BLOCKS, Tuning, finalists, key_of, medians
from starling.tune.tuning import works_of as tuned_works
from starling.write_whole import write_whole

from . import gpu_devices
from .options import refuse, words
from .results import document

TILED = 4
TABLE = Candidate("table", "")
"""What a communicator takes that follows a table."""
LIMIT = 1.05
JUDGED = (CHOICE.name, TABLE.name, AGAIN)


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
            choices = [CHOICE, *([TABLE] if table else [])]
            for dtype in DTYPES if collective in REDUCING else DTYPES[:1]:
                for size in sizes:
                    point = Point(collective, in_place, dtype, size)
                    tiled = in_other_tiles(
                        all_, point.group_bytes(ranks), cpu(ranks, os.cpu_count() or 1), TILED
                    )
                    works.append(Work(point, [*all_, *tiled, *choices]))
    return works


def rows_of(
    topology: str, works: list[Work], found: list[Samples], table: Table | None = None
) -> list[dict[str, Any]]:
    """Of each point the medians, us, and how many times longer the choices take than the best plan.

    The least median of many is also a lucky one. So the best plan is chosen by every other sample, and compared by
    those between, and the other way round: ``choice`` and ``table`` are the means of both. ``spread`` is the best plan
    against itself, one half of its samples over the other: what chance does. ``_at_least``: how many times longer it
    takes at least, in 39 of 40 such runs. ``again``: the same of a plan that was the best before and takes part twice,
    and ``itself``: beside its first samples: so far away chance puts what cannot be improved. ``same``: the table's row
    names the best plan.
    """
    rows = []
    for work, samples in zip(works, found, strict=True):
        us = medians(samples)
        fixed = {name: v for name, v in finalists(samples).items() if name not in (*JUDGED, ITSELF)}
        best = min(fixed, key=lambda name: (us[name], name))
        row: dict[str, Any] = {
            "topology": topology,
            **asdict(work.point),
            "types": work.point.types,
            "us": {name: value for name, value in us.items() if name != ITSELF},
        }
        row |= {"best": best, "spread": spread(fixed[best])}
        for name in JUDGED:
            if name in us:
                row[name] = held_out(samples[name], fixed)
                row[f"{name}_at_least"] = at_least(samples[name], fixed[best])
        if AGAIN in us:
            row["itself"] = round(us[AGAIN] / us[ITSELF], 3)
            row["itself_at_least"] = at_least(samples[AGAIN], samples[ITSELF])
        if table is not None:
            keys = {key_of(c) for c in work.candidates if c.name == best}
            row["same"] = row_key(table, topology, work.point) in keys
        rows.append(row)
    return rows


def pooled(launches: list[Samples]) -> Samples:
    """Of the plans that came into the finals of every launch, all samples; of others too few to be compared. Where
    a rank's memory and threads come to be stays for a launch, so samples of one alone say less than they seem to.
    """
    lasting = set.intersection(*(set(finalists(samples)) for samples in launches))
    if not lasting - {*JUDGED, ITSELF}:
        return launches[0]
    return {
        name: [value for samples in launches for value in samples[name]] if name in lasting else own
        for name, own in launches[0].items()
    }


def held_out(values: list[float], fixed: Samples) -> float:
    """``values`` over the best plan's, which is chosen by samples that are not compared."""
    ratios = []
    for k in range(2):
        best = min(fixed, key=lambda name: (statistics.median(fixed[name][k::2]), name))
        ratios.append(statistics.median(values[1 - k :: 2]) / statistics.median(fixed[best][1 - k :: 2]))
    return round(statistics.geometric_mean(ratios), 3)


def at_least(values: list[float], others: list[float]) -> float:
    """The lower end of the 95 % confidence interval of the median ratio of neighbouring samples: by the sign test,
    which assumes nothing of how times are distributed."""
    ratios = sorted(one / other for one, other in zip(values, others, strict=True))
    below = 0.0
    for place in range(len(ratios)):  # so many may lie below the median
        below += math.comb(len(ratios), place) / 2 ** len(ratios)
        if below > 0.025:
            return round(ratios[max(place - 1, 0)], 3)
    return round(ratios[-1], 3)


def spread(values: list[float]) -> float:
    """One half over the other."""
    halves = [statistics.median(values[k::2]) for k in range(2)]
    return round(max(halves) / min(halves), 3)


def row_key(table: Table, topology: str, point: Point) -> tuple[str, int] | None:
    key = topology, point.collective, point.in_place, point.types
    for row in table.rows:
        if row.key() == key and point.size_bytes <= row.largest_bytes:
            return row.algorithm, row.blocks
    return None


def told(rows: list[dict[str, Any]], name: str) -> str:
    rows = [row for row in rows if f"{name}_at_least" in row]  # older files say less
    ratios = sorted(row[name] for row in rows)
    within = sum(ratio <= LIMIT for ratio in ratios)
    slower = sum(row[f"{name}_at_least"] > LIMIT for row in rows)
    text = f"{name}: within {LIMIT} of the best plan at {within} of {len(ratios)} points, "
    text += f"median {statistics.median(ratios):.3f}, worst {ratios[-1]:.2f}, surely slower at {slower}"
    if name == TABLE.name and any("same" in row for row in rows):
        others = [row[name] for row in rows if not row.get("same")]
        text += (
            f"; at {len(ratios) - len(others)} it is the best plan, at {sum(one <= LIMIT for one in others)} of the "
            f"other {len(others)} within {LIMIT}"
        )
    if name == AGAIN:
        near = sum(row["itself"] <= LIMIT for row in rows)
        surely = sum(row["itself_at_least"] > LIMIT for row in rows)
        return f"{text}; beside its own first samples within {LIMIT} at {near}, surely slower at {surely}"
    spread = sum(row["spread"] <= LIMIT for row in rows)
    return f"{text} (the best plan within {LIMIT} of itself, one half of its samples against the other: {spread})"


def command(
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=2)] = 2,
    ranks_as: Annotated[str, typer.Option("--as", help="threads or processes")] = "processes",
    collective: Annotated[
        str, typer.Option("--collective", "-c", "--collectives", "-C", help="default: all")
    ] = "",
    sizes: Annotated[str, typer.Option(help="bytes of the larger of a rank's buffers")] = (
        "64,512,4096,32768,262144,2097152"
    ),
    table: Annotated[Path | None, typer.Option(help="a table of choices, measured beside")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    repetitions: Annotated[int, typer.Option(min=2, help="of every plan")] = 5,
    finals: Annotated[
        int, typer.Option(min=4, help="of the choices and the plans that come near the best")
    ] = 24,
    launches: Annotated[int, typer.Option(min=1, help="of the ranks, each with all measurements")] = 1,
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
    if device == "cuda":
        gpu_devices.require(1)
    if table is not None and not table.exists():
        refuse(f"there is no table {table}; `starling tune -o {table}` writes one")
    works = works_of(
        names, ranks, [int(size) for size in words(sizes)], ranks_as == "processes", table is not None, device
    )
    effort = Effort(repetitions, slice_ms / 1e3, finals=finals, again=True)
    runs = [
        measured(
            works,
            ranks,
            processes=ranks_as == "processes",
            device=device,
            blocks=1 if device == "cpu" else GPU_BLOCKS,
            effort=effort,
            tables={TABLE.name: str(table)} if table else {},
        )
        for _ in range(launches)
    ]
    topology = runs[0][0]
    found = [pooled(list(of_work)) for of_work in zip(*(samples for _, samples in runs), strict=True)]
    rows = rows_of(topology, works, found, Table.load(table) if table else None)
    typer.echo(f"{topology}, {', '.join(names)}")
    for name in (CHOICE.name, *([TABLE.name] if table else []), AGAIN):
        typer.echo(told(rows, name))
    if json_file is not None:
        settings = {
            "repetitions": repetitions,
            "finals": finals,
            "launches": launches,
            "slice_ms": slice_ms,
        }
        _join(json_file, document("choice", settings, rows))


def _join(path: Path, run: dict[str, Any]) -> None:
    """Runs are short, for the machine to be quiet: each adds its points to the file."""
    mine = {(row["topology"], row["collective"]) for row in run["rows"]}
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    for other in runs:
        other["rows"] = [row for row in other["rows"] if (row["topology"], row["collective"]) not in mine]
    kept = [other for other in runs if other["rows"]]
    everything = [row for other in [*kept, run] for row in other["rows"]]
    summary = [
        told(everything, name) for name in JUDGED if any(f"{name}_at_least" in row for row in everything)
    ]
    write_whole(
        path, json.dumps({"benchmark": "choice", "summary": summary, "runs": [*kept, run]}, indent=1) + "\n"
    )
