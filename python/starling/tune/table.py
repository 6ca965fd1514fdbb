"""The table of choices: which plan up to which size, by topology, collective, place and type class.

One file of text for all ranks, in C too (docs/WIRE.md has the grammar): ``STARLING_TABLE=file``, or
``Communicator.use_table(file)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from starling.write_whole import write_whole

VERSION = 1
TYPES = ("moved", "plain", "half")
"""What is not reduced; reductions; reductions of float16 and bfloat16."""
ALL_ALIKE = 64
"""What has so many bytes or fewer costs the same; who measured this size measured the smaller ones."""


@dataclass(frozen=True)
class Row:
    """``algorithm`` up to ``largest_bytes`` of the larger of a rank's buffers, all parts included."""

    topology: str
    collective: str
    in_place: bool
    types: str
    largest_bytes: int
    algorithm: str  # a built-in one, or a name of Table.plans
    blocks: int  # of a built-in one; 0: a plan
    time_us: float | None = None  # as measured, at `measured_bytes`
    measured_bytes: int = field(default=0, compare=False)  # not in the text

    def key(self) -> tuple[str, str, bool, str]:
        return self.topology, self.collective, self.in_place, self.types

    def plan(self) -> tuple[str, int]:
        return self.algorithm, self.blocks

    def text(self) -> str:
        place = "in_place" if self.in_place else "separate"
        plan = f"built_in {self.algorithm} {self.blocks}" if self.blocks else f"plan {self.algorithm}"
        time = "" if self.time_us is None else f"  # {self.time_us:.10g} us"
        return f"  to {self.largest_bytes} {self.collective} {place} {self.types} {plan}{time}"


def _up_to(rows: list[Row], size: int) -> list[Row]:
    """Those that have sizes up to this one; one kind's rows, in order."""
    starts = [0, *(row.largest_bytes for row in rows)]
    return [row for row, before in zip(rows, starts, strict=False) if before < size]


@dataclass
class Table:
    rows: list[Row] = field(default_factory=list)
    plans: dict[str, str] = field(default_factory=dict)  # texts

    def topologies(self) -> list[str]:
        return list(dict.fromkeys(row.topology for row in self.rows))

    def update(self, newer: Table, smallest: int = 0) -> None:
        """Takes over what was measured anew, of ``smallest`` bytes and more; the rest stays: other kinds, smaller sizes
        (all are measured with ``ALL_ALIKE``), larger ones. Plans that no row needs any more go."""
        rows: list[Row] = []
        for key in dict.fromkeys(row.key() for row in newer.rows):
            older, new = ([row for row in table.rows if row.key() == key] for table in (self, newer))
            begin = smallest - 1 if smallest > ALL_ALIKE else 0
            below = [
                replace(row, largest_bytes=min(row.largest_bytes, begin)) for row in _up_to(older, begin)
            ]
            above = [row for row in older if row.largest_bytes > new[-1].largest_bytes]
            rows += [
                row
                for row, following in pairwise([*below, *new, *above, None])
                if row is not None and (following is None or row.plan() != following.plan())
            ]
        keys = {row.key() for row in newer.rows}
        self.rows = [row for row in self.rows if row.key() not in keys] + rows
        plans = {**self.plans, **newer.plans}
        used = {row.algorithm for row in self.rows if row.blocks == 0}
        self.plans = {name: text for name, text in plans.items() if name in used}

    def text(self) -> str:
        lines = [f"starling-table {VERSION}"]
        for topology in self.topologies():
            lines.append(f"topology {topology}")
            lines += [row.text() for row in self.rows if row.topology == topology]
        for name, text in self.plans.items():
            lines.append(f"plan {name}")
            lines += [f"| {line}" for line in text.splitlines()]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        write_whole(path, self.text())

    @staticmethod
    def load(path: str | Path) -> Table:
        """Raises ValueError with the line of what is wrong. Plans are proved where a communicator uses them."""
        return parse(Path(path).read_text(errors="replace"), str(path))


def parse(text: str, source: str = "table") -> Table:
    lines = text.splitlines()
    if not lines or lines[0].split() != ["starling-table", str(VERSION)]:
        raise ValueError(
            f"{source} is no table of choices of version {VERSION}; make it anew with `starling tune`"
        )
    table = Table()
    topology, plan = "", ""
    for number, line in enumerate(lines[1:], 2):
        words, _, comment = line.partition("#")
        match words.split() if not line.startswith("|") else ["|"]:
            case []:
                continue
            case ["|"] if plan:
                table.plans[plan] += line[2:] + "\n"
            case ["topology", name]:
                topology, plan = name, ""
            case ["plan", name]:
                topology, plan = "", name
                table.plans[plan] = ""
            case ["to", size, collective, ("separate" | "in_place") as place, types, *rest] if (
                topology and types in TYPES
            ):
                match rest:
                    case ["built_in", algorithm, count]:
                        blocks = int(count)
                    case ["plan", algorithm]:
                        blocks = 0
                    case _:
                        raise ValueError(f"{source}, line {number}: '{line.strip()}' names no plan")
                time = float(comment.split()[0]) if comment.strip().endswith(" us") else None
                table.rows.append(
                    Row(topology, collective, place == "in_place", types, int(size), algorithm, blocks, time)
                )
            case _:
                raise ValueError(f"{source}, line {number}: '{line.strip()}' is not understood")
    return table


def ranges(
    measured: Iterable[tuple[int, dict[str, float]]],
    tolerance: float = 0.02,
    limits: Mapping[str, tuple[int, int]] = {},
    rest: Mapping[int, dict[str, float]] = {},
) -> list[tuple[int, str, int]]:
    """From times by size and plan to (largest size, plan, size that was measured for it).

    They rise without gaps, and do not flutter: the plan of the sizes before stays as long as it is within the tolerance
    of the best. Between two sizes that were measured the boundary is in the middle, as sizes grow by factors; the first
    range begins with 0. limits: smallest and largest size that a plan is for; beyond them the best of the others goes
    on, of ``rest`` (more times by size) if none of ``measured`` may.
    """
    found: list[tuple[int, str, int]] = []
    points = sorted(measured)
    begin = 0  # the largest size that has its plan
    for k, (size, times) in enumerate(points):
        end = math.isqrt(size * points[k + 1][0]) if k + 1 < len(points) else size
        edges = {edge for low, high in limits.values() for edge in (low - 1, high)}
        for last in sorted({edge for edge in edges if begin < edge < end} | {end}):
            here = _of_those_for(begin + 1, last, times, limits) or _of_those_for(
                begin + 1, last, rest.get(size, {}), limits
            )
            best = min(here, key=lambda name: (here[name], name))
            if found and here.get(found[-1][1], math.inf) <= here[best] * (1 + tolerance):
                best = found[-1][1]
            if found and found[-1][1] == best:
                found.pop()
            found.append((last, best, size))
            begin = last
    return found


def _of_those_for(
    smallest: int, largest: int, times: Mapping[str, float], limits: Mapping[str, tuple[int, int]]
) -> dict[str, float]:
    """The times of plans that may have all of these sizes."""

    def may(name: str) -> bool:
        low, high = limits.get(name, (0, largest))
        return low <= smallest and largest <= high

    return {name: us for name, us in times.items() if may(name)}
