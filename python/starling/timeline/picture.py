"""The timeline as a picture: one row a block, one color a lane, hatched where the turn ended stuck."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from starling.timeline.events import Event
from starling.timeline.spans import Span, residencies, runs
from starling.write_whole import whole

_ROW = 1.0
_BAR = 0.62


def draw(
    path: Path,
    events: Iterable[Event],
    *,
    title: str = "",
    start_ns: int | None = None,
    stop_ns: int | None = None,
) -> None:
    """Draws what happened between `start_ns` and `stop_ns` (None: all) into a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    events = list(events)
    turns = [span for span in runs(events) if _inside(span, start_ns, stop_ns)]
    resident = [span for span in residencies(events) if _inside(span, start_ns, stop_ns)]
    rows = sorted({(event.rank, event.block) for event in events})
    lanes = sorted({span.lane for span in turns}, key=_natural)
    zero = start_ns if start_ns is not None else min((event.time_ns for event in events), default=0)
    palette = matplotlib.colormaps["turbo"].resampled(max(len(lanes), 2))
    colors = {lane: palette(index) for index, lane in enumerate(lanes)}

    figure, axis = plt.subplots(figsize=(13, 1.6 + 0.55 * len(rows)))
    height = {row: len(rows) - 1 - index for index, row in enumerate(rows)}
    _bars(axis, resident, height, zero, _BAR + 0.3, lambda span: "#e8e8e8")
    for end, hatch in (("park", "////"), ("complete", ""), ("fault", "xxxx")):
        ended = [span for span in turns if span.end == end]
        _bars(axis, ended, height, zero, _BAR, lambda span: colors[span.lane], hatch)
    axis.set_yticks([height[row] for row in rows], [f"rank {rank}, block {block}" for rank, block in rows])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel("ms")
    if stop_ns is not None:
        axis.set_xlim(0, (stop_ns - zero) / 1e6)
    _legend(plt, axis, colors)
    axis.set_title(title or "What each block ran", fontsize=10)
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def _inside(span: Span, start_ns: int | None, stop_ns: int | None) -> bool:
    return (start_ns is None or span.stop_ns >= start_ns) and (stop_ns is None or span.start_ns <= stop_ns)


def _natural(name: str) -> tuple[str, int]:
    """ddp/2 before ddp/10."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or -1)


def _bars(
    axis: Any, spans: list[Span], height: Any, zero: int, thickness: float, color: Any, hatch: str = ""
) -> None:
    rows: dict[float, list[Span]] = {}
    for span in spans:
        rows.setdefault(height[span.rank, span.block], []).append(span)
    for y, mine in rows.items():
        axis.broken_barh(
            [((s.start_ns - zero) / 1e6, max((s.stop_ns - s.start_ns) / 1e6, 1e-4)) for s in mine],
            (y - thickness / 2, thickness * _ROW),
            facecolors=[color(s) for s in mine],
            hatch=hatch or None,
            edgecolor="white" if hatch else "none",
            linewidth=0.2,
        )


def _legend(plt: Any, axis: Any, colors: dict[str, Any]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor="#e8e8e8", label="daemon resident")]
    patches += [Patch(facecolor="#888888", hatch="////", edgecolor="white", label="ended stuck: parked")]
    shown = list(colors.items())[:20]
    patches += [Patch(facecolor=color, label=lane) for lane, color in shown]
    if len(colors) > len(shown):
        patches.append(Patch(facecolor="none", label=f"and {len(colors) - len(shown)} more"))
    axis.legend(
        handles=patches, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=8, frameon=False
    )
