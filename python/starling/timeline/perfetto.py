"""Chrome's trace JSON, which ui.perfetto.dev and chrome://tracing open: a rank is a process, a block a thread."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from starling.timeline.events import Event
from starling.timeline.spans import residencies, runs
from starling.write_whole import write_whole

# Perfetto's names of colors.
_END_COLORS = {"complete": "good", "park": "bad", "fault": "terrible"}
_INSTANTS = ("fetch", "publish", "fault")


def perfetto_trace(events: Iterable[Event]) -> dict[str, Any]:
    """The trace as a JSON document. Times begin at the first event."""
    events = sorted(events, key=lambda event: event.time_ns)
    zero = events[0].time_ns if events else 0
    trace: list[dict[str, Any]] = _names(events)

    def microseconds(time_ns: int) -> float:
        return (time_ns - zero) / 1e3

    for span in residencies(events):
        trace.append(
            {
                "ph": "X",
                "pid": span.rank,
                "tid": span.block,
                "name": "resident",
                "cat": "daemon",
                "ts": microseconds(span.start_ns),
                "dur": (span.stop_ns - span.start_ns) / 1e3,
                "args": {"launch": span.sequence},
            }
        )
    for span in runs(events):
        arguments: dict[str, Any] = {"sequence": span.sequence, "end": span.end}
        if span.waits_for is not None:
            arguments |= {"stuck at instruction": span.instruction, "waits for rank": span.waits_for}
        trace.append(
            {
                "ph": "X",
                "pid": span.rank,
                "tid": span.block,
                "name": span.lane,
                "cat": span.end,
                "cname": _END_COLORS[span.end],
                "ts": microseconds(span.start_ns),
                "dur": (span.stop_ns - span.start_ns) / 1e3,
                "args": arguments,
            }
        )
    waiting: dict[int, set[tuple[str, int]]] = {}
    for event in events:
        if event.event in _INSTANTS:
            trace.append(
                {
                    "ph": "i",
                    "s": "t",
                    "pid": event.rank,
                    "tid": event.block,
                    "name": f"{event.event} {event.lane}",
                    "cat": event.event,
                    "ts": microseconds(event.time_ns),
                    "args": {"sequence": event.sequence},
                }
            )
        trace += _counter(event, waiting.setdefault(event.rank, set()), microseconds(event.time_ns))
    return {"traceEvents": trace, "displayTimeUnit": "ns"}


def _names(events: list[Event]) -> list[dict[str, Any]]:
    named: list[dict[str, Any]] = []
    for rank in sorted({event.rank for event in events}):
        named.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        named.append({"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}})
    for rank, block in sorted({(event.rank, event.block) for event in events}):
        named.append(
            {"ph": "M", "pid": rank, "tid": block, "name": "thread_name", "args": {"name": f"block {block}"}}
        )
    return named


def _counter(event: Event, under_way: set[tuple[str, int]], ts: float) -> list[dict[str, Any]]:
    """How many operations the rank has fetched and not completed: the length of its task queue."""
    before = len(under_way)
    if event.event == "fetch":
        under_way.add((event.lane, event.sequence))
    elif event.event in ("publish", "fault"):
        under_way.discard((event.lane, event.sequence))
    if len(under_way) == before:
        return []
    values = {"operations": len(under_way)}
    return [{"ph": "C", "pid": event.rank, "name": "task queue", "ts": ts, "args": values}]


def write_perfetto(path: Path, events: Iterable[Event]) -> None:
    """Open the file at https://ui.perfetto.dev (it stays in the browser)."""
    write_whole(path, json.dumps(perfetto_trace(events)))
