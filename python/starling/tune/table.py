"""The table of choices: for each collective, which plan up to which size. One file; every rank loads the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starling.comm import Communicator

VERSION = 1


@dataclass(frozen=True)
class Row:
    """``plan`` from ``smallest_bytes`` to ``largest_bytes`` of the larger of a rank's buffers, all parts included."""

    collective: str
    ranks: int
    in_place: bool
    smallest_bytes: int
    largest_bytes: int
    plan: str  # a name of Table.plans
    time_us: float  # as measured at the largest size that was tried in the range


@dataclass
class Table:
    """``plans`` has each plan's text. ``machine`` says where it was measured."""

    machine: str
    rows: list[Row] = field(default_factory=list)
    plans: dict[str, str] = field(default_factory=dict)

    def add_to(self, comm: Communicator) -> int:
        """Lets the communicator choose by the table; sizes beyond it are the library's choice. Gives the rows added.

        Rows for other numbers of ranks, and plans of more blocks than the daemon has, are passed over.
        """
        from starling import ir

        added = 0
        for row in self.rows:
            if row.ranks != comm.size:
                continue
            plan = ir.parse(self.plans[row.plan])
            if max(len(rank.blocks) for rank in plan.ranks) > comm.context.blocks:
                continue
            plan.name = f"{plan.name}-from-{row.smallest_bytes}-to-{row.largest_bytes}"
            comm.add_plan(plan, sizes=(row.smallest_bytes, row.largest_bytes))
            added += 1
        return added

    def save(self, path: str | Path) -> None:
        document = {"version": VERSION, **asdict(self)}
        Path(path).write_text(json.dumps(document, indent=1) + "\n")

    @staticmethod
    def load(path: str | Path) -> Table:
        document = json.loads(Path(path).read_text())
        if document.get("version") != VERSION:
            raise ValueError(f"{path} is no table of version {VERSION}; make it anew with `starling tune`")
        return Table(document["machine"], [Row(**row) for row in document["rows"]], document["plans"])


def ranges(
    measured: Iterable[tuple[int, dict[str, float]]], tolerance: float = 0.03
) -> list[tuple[int, int, str]]:
    """From times by size and plan to (smallest, largest, plan), without gaps and without flutter: the plan of the sizes
    before stays as long as it is within the tolerance of the best."""
    found: list[tuple[int, int, str]] = []
    for size, times in sorted(measured):
        best = min(times, key=lambda name: (times[name], name))
        previous = found[-1][2] if found else None
        if previous is not None and times.get(previous, float("inf")) <= times[best] * (1 + tolerance):
            found[-1] = (found[-1][0], size, found[-1][2])
            continue
        found.append((found[-1][1] + 1 if found else 1, size, best))
    return found
