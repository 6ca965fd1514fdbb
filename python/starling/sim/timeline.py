"""A replayed execution as a picture and as a trace for ui.perfetto.dev."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling.sim.engine import Event
from starling.write_whole import whole, write_whole

LAUNCH, QUIT, FETCH, RUN, PARK, COMPLETE, PUBLISH, FAULT = range(8)  # TraceEvent of src/wire/trace.h
MARKS = {FETCH: "fetch", PUBLISH: "publish"}


@dataclass(frozen=True)
class Span:
    """One stretch of one block: a residency, or a lane's operation that has the block."""

    rank: int
    block: int
    begin_ns: int
    end_ns: int
    lane: int | None  # None: the residency itself
    name: str


def spans(events: Iterable[Event]) -> list[Span]:
    """Pairs each beginning with its end; what never ended lasts until the last event."""
    found: list[Span] = []
    resident: dict[tuple[int, int], Event] = {}
    running: dict[tuple[int, int], Event] = {}
    last = 0

    def end_run(key: tuple[int, int], time_ns: int, how: str) -> None:
        run = running.pop(key, None)
        if run is not None:
            name = f"lane {run.lane} operation {run.sequence}: {how}"
            found.append(Span(*key, run.time_ns, time_ns, run.lane, name))

    def end_residency(key: tuple[int, int], time_ns: int) -> None:
        launch = resident.pop(key, None)
        if launch is not None:
            found.append(Span(*key, launch.time_ns, time_ns, None, f"residency {launch.sequence}"))

    for event in events:
        key = (event.rank, event.block)
        last = max(last, event.time_ns)
        if event.kind == LAUNCH:
            resident[key] = event
        elif event.kind == QUIT:
            end_run(key, event.time_ns, "left")
            end_residency(key, event.time_ns)
        elif event.kind == RUN:
            running[key] = event
        elif event.kind == PARK:
            end_run(key, event.time_ns, f"parked at instruction {event.detail >> 32}")
        elif event.kind == COMPLETE:
            end_run(key, event.time_ns, "finished")
        elif event.kind == FAULT:
            end_run(key, event.time_ns, "dropped")
    for key in list(running):
        end_run(key, last, "never ended")
    for key in list(resident):
        end_residency(key, last)
    return sorted(found, key=lambda span: (span.rank, span.block, span.begin_ns, -span.end_ns))


def write_perfetto(events: list[Event], path: Path) -> None:
    """Chrome's trace format, which ui.perfetto.dev opens: a process a rank, a thread a block."""
    rows: list[dict[str, Any]] = []
    for rank, block in sorted({(event.rank, event.block) for event in events}):
        rows.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        rows.append(
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": block, "args": {"name": f"block {block}"}}
        )
    for span in spans(events):
        rows.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": "residency" if span.lane is None else "run",
                "pid": span.rank,
                "tid": span.block,
                "ts": span.begin_ns / 1e3,
                "dur": (span.end_ns - span.begin_ns) / 1e3,
            }
        )
    for event in events:
        if event.kind in MARKS:
            name = f"{MARKS[event.kind]} lane {event.lane} operation {event.sequence}"
            rows.append(
                {
                    "ph": "i",
                    "s": "t",
                    "name": name,
                    "pid": event.rank,
                    "tid": event.block,
                    "ts": event.time_ns / 1e3,
                }
            )
    write_whole(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ns"}))


def write_png(events: list[Event], path: Path, title: str) -> None:
    """One row a block: grey while resident, a colour a lane while it has the block."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    blocks = sorted({(event.rank, event.block) for event in events})
    row_of = {key: row for row, key in enumerate(blocks)}
    figure, axes = pyplot.subplots(figsize=(12, 1.2 + 0.35 * len(blocks)))
    colours = pyplot.get_cmap("tab20")
    # One artist a row and lane: a full-size program has hundreds of thousands of spans.
    bars: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
    for span in spans(events):
        left, width = span.begin_ns / 1e3, max((span.end_ns - span.begin_ns) / 1e3, 1e-3)
        bars.setdefault((row_of[span.rank, span.block], span.lane), []).append((left, width))
    for (row, lane), stretches in sorted(bars.items(), key=lambda bar: bar[0][1] is not None):
        height = 0.9 if lane is None else 0.6
        colour = "0.9" if lane is None else colours(lane % 20)
        axes.broken_barh(stretches, (row - height / 2, height), facecolors=colour)
    for lane in sorted({event.lane for event in events if event.kind == RUN}):
        axes.barh(0, 0, color=colours(lane % 20), label=f"lane {lane}")
    axes.set_yticks(range(len(blocks)), [f"rank {rank} block {block}" for rank, block in blocks])
    axes.invert_yaxis()
    axes.set_xlabel("virtual time (us)")
    axes.set_title(title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=120)
    pyplot.close(figure)
