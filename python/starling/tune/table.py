"""The table of choices: which plan up to which size, by topology, collective, place and type class.

One file of text for all ranks, in C too (docs/WIRE.md has the grammar): ``STARLING_TABLE=file``, or
``Communicator.use_table(file)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from starling.write_whole import write_whole

VERSION = 1
TYPES = ("moved", "plain", "half")
"""What is not reduced; reductions; reductions of float16 and bfloat16."""


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
    time_us: float | None = None  # as measured at the largest size that was tried in the range

    def key(self) -> tuple[str, str, bool, str]:
        return self.topology, self.collective, self.in_place, self.types

    def text(self) -> str:
        place = "in_place" if self.in_place else "separate"
        plan = f"built_in {self.algorithm} {self.blocks}" if self.blocks else f"plan {self.algorithm}"
        time = "" if self.time_us is None else f"  # {self.time_us:.10g} us"
        return f"  to {self.largest_bytes} {self.collective} {place} {self.types} {plan}{time}"


@dataclass
class Table:
    rows: list[Row] = field(default_factory=list)
    plans: dict[str, str] = field(default_factory=dict)  # texts

    def topologies(self) -> list[str]:
        return list(dict.fromkeys(row.topology for row in self.rows))

    def update(self, newer: Table) -> None:
        """Takes over what was measured anew; the rest stays. Plans that no row needs any more go."""
        keys = {row.key() for row in newer.rows}
        self.rows = [row for row in self.rows if row.key() not in keys] + newer.rows
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
        return parse(Path(path).read_text(), str(path))


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
    measured: Iterable[tuple[int, dict[str, float]]], tolerance: float = 0.02
) -> list[tuple[int, str, int]]:
    """From times by size and plan to (largest size, plan, largest size that was measured of them).

    They rise without gaps, and do not flutter: the plan of the sizes before stays as long as it is within the tolerance
    of the best. Between two sizes that were measured the boundary is in the middle, as sizes grow by factors.
    """
    found: list[tuple[int, str, int]] = []
    for size, times in sorted(measured):
        best = min(times, key=lambda name: (times[name], name))
        if found:
            _, previous, last = found[-1]
            if times.get(previous, float("inf")) <= times[best] * (1 + tolerance):
                found[-1] = (size, previous, size)
                continue
            found[-1] = (math.isqrt(last * size), previous, last)
        found.append((size, best, size))
    return found
