"""Events of all ranks on one clock (the host's monotonic clock, so ranks of one host compare)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starling.write_whole import write_whole

if TYPE_CHECKING:
    from starling.context import Context


@dataclass(frozen=True)
class Event:
    """One event of a block: launch, quit, fetch, run, park, complete, publish or fault."""

    time_ns: int
    rank: int
    block: int
    event: str
    lane: str
    sequence: int
    detail: int

    @property
    def instruction(self) -> int:
        """Of a park: the instruction that could not go on."""
        return self.detail >> 32

    @property
    def waits_for(self) -> int | None:
        """Of a park: the rank that it waits for."""
        peer = self.detail & 0xFFFFFFFF
        return peer if self.event == "park" and peer < 1 << 31 else None


def of_context(context: Context, rank: int, most: int = 1 << 16) -> list[Event]:
    """The newest events of this rank's blocks."""
    records = context.trace(most)
    names = {lane: context.lane_name(lane) or f"lane {lane}" for lane in {record.lane for record in records}}
    return [
        Event(r.time_ns, rank, r.block, r.event, names[r.lane], r.sequence, r.detail)
        for r in sorted(records, key=lambda record: record.time_ns)
    ]


def of_torch(rank: int, most: int = 1 << 16) -> list[Event]:
    """The same for the backend ``starling`` of this process."""
    import starling.torch

    records = sorted(starling.torch.trace(most), key=lambda record: record.time_ns)
    return [Event(r.time_ns, rank, r.block, r.event, r.lane, r.sequence, r.detail) for r in records]


def save(path: Path, events: Iterable[Event]) -> None:
    """One JSON object a line."""
    write_whole(path, "".join(json.dumps(asdict(event)) + "\n" for event in events))


def load(paths: Iterable[Path]) -> list[Event]:
    """The events of all files, oldest first."""
    events = [Event(**json.loads(line)) for path in paths for line in path.read_text().splitlines()]
    return sorted(events, key=lambda event: event.time_ns)
