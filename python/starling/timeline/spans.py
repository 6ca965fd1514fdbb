"""From events to intervals: when a block ran an operation, and when the daemon was resident."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from starling.timeline.events import Event

_RUN_ENDS = ("park", "complete", "fault")


@dataclass(frozen=True)
class Span:
    """An interval on one block. `end` of a run: park, complete or fault; of a residency: quit."""

    rank: int
    block: int
    lane: str
    sequence: int
    start_ns: int
    stop_ns: int
    end: str
    waits_for: int | None = None
    instruction: int = 0


def _by_block(events: Iterable[Event]) -> dict[tuple[int, int], list[Event]]:
    blocks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda one: one.time_ns):
        blocks[event.rank, event.block].append(event)
    return blocks


def runs(events: Iterable[Event]) -> list[Span]:
    """Every turn of an operation on a block. A turn that has no end in the trace is not there."""
    spans = []
    for (rank, block), mine in _by_block(events).items():
        begun: Event | None = None
        for event in mine:
            if event.event == "run":
                begun = event
            elif event.event in _RUN_ENDS and begun is not None and begun.lane == event.lane:
                spans.append(
                    Span(
                        rank,
                        block,
                        event.lane,
                        event.sequence,
                        begun.time_ns,
                        event.time_ns,
                        event.event,
                        event.waits_for,
                        event.instruction if event.event == "park" else 0,
                    )
                )
                begun = None
    return spans


def residencies(events: Iterable[Event]) -> list[Span]:
    """From each launch of the daemon to its quit, for each block."""
    spans = []
    for (rank, block), mine in _by_block(events).items():
        launch: Event | None = None
        for event in mine:
            if event.event == "launch":
                launch = event
            elif event.event == "quit" and launch is not None:
                spans.append(Span(rank, block, "", launch.sequence, launch.time_ns, event.time_ns, "quit"))
                launch = None
    return spans


def unfinished(events: Iterable[Event]) -> dict[int, list[Event]]:
    """For each rank, the newest event of every operation that was fetched and is not complete: `run` if a block is at
    it, `park` if it was put aside, `fetch` if it never got a turn."""
    newest: dict[tuple[int, str, int], Event] = {}
    for event in sorted(events, key=lambda one: one.time_ns):
        key = (event.rank, event.lane, event.sequence)
        if event.event in ("fetch", "run", "park"):
            newest[key] = event
        elif event.event in ("publish", "fault"):
            newest.pop(key, None)
    found: dict[int, list[Event]] = defaultdict(list)
    for (rank, _, _), event in newest.items():
        found[rank].append(event)
    return dict(found)
