"""`starling bench`: collectives of Starling, beside other libraries if asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from . import columns
from .convention import Point, point
from .joined import joined_group
from .libraries import Choices, library
from .measure import Effort, measure_point, started
from .results import document


@dataclass
class Sweep:
    """What to measure."""

    collectives: list[str]
    ranks: list[int]
    sizes: list[int]
    types: list[str]
    reductions: list[str]
    root: int
    libraries: list[str]  # the first fills nccl-tests' columns
    timeout_s: float = 120


def run(sweep: Sweep, effort: Effort, choices: Choices, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures everything, printing lines as they come; the result document."""
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    for ranks in sweep.ranks:
        with ExitStack() as stack:
            joined = joined_group(choices, sweep.timeout_s)
            if joined is not None:
                stack.enter_context(joined)
                groups = {sweep.libraries[0]: [joined]}
            else:
                libraries = [library(name, choices) for name in sweep.libraries]
                groups = stack.enter_context(started(libraries, ranks, sweep.timeout_s))
            for collective in sweep.collectives:
                say(
                    f"# {collective}, {ranks} ranks, {os.cpu_count()} cores; time: median of {effort.repetitions}"
                )
                for text in columns.header(sweep.libraries[1:]):
                    say(text)
                for at in points(sweep, collective, ranks):
                    out_of_place = measure_point(groups, at, effort, in_place=False)
                    in_place = measure_point(groups, at, effort, in_place=True) if effort.in_place else None
                    rows.append(columns.row(at, out_of_place, in_place))
                    say(columns.line(at, out_of_place, in_place, sweep.libraries[0]))
    settings = {**asdict(effort), "libraries": sweep.libraries, "arguments": list(choices.arguments)}
    return document("collectives", settings, rows, seconds=round(time.monotonic() - began, 1))


def points(sweep: Sweep, collective: str, ranks: int) -> Iterator[Point]:
    seen = set()
    for size in sweep.sizes:
        for type_name in sweep.types:
            for reduction in sweep.reductions:
                at = point(collective, ranks, type_name, reduction, sweep.root, size)
                key = (at.size_bytes, type_name, at.printed_reduction)
                if key not in seen:
                    seen.add(key)
                    yield at


def wrong_rows(doc: dict[str, Any]) -> list[str]:
    """What came out wrong, in words; empty is good."""
    return [
        f"{name}: {row['collective']} {row['type']} {row['redop']} {row['size_bytes']} B on {row['ranks']} ranks "
        f"({place.replace('_', '-')}): {timing['wrong']} wrong elements"
        for row in doc["rows"]
        for place in ("out_of_place", "in_place")
        for name, timing in row[place].items()
        if timing.get("wrong")
    ]


def unmeasured_rows(doc: dict[str, Any], name: str) -> list[str]:
    """Points that library `name` refused out of place."""
    return [
        f"{row['collective']} {row['type']} {row['redop']}: {row['out_of_place'][name]['unsupported']}"
        for row in doc["rows"]
        if "unsupported" in row["out_of_place"][name]
    ]
