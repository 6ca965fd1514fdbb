"""Pictures of the demos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starling.write_whole import whole


def pyplot() -> Any:
    """matplotlib without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def draw_losses(path: Path, ours: list[float], reference: list[float]) -> None:
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 4))
    axis.plot(
        range(1, len(ours) + 1), ours, color="#0072B2", lw=2.5, label="starling, random orders on each rank"
    )
    axis.plot(range(1, len(reference) + 1), reference, color="#D55E00", lw=1, ls="--", label="gloo, in order")
    axis.set_xlabel("step")
    axis.set_ylabel("training loss")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def draw_waits(path: Path, runs: dict[str, Any], ranks: int) -> None:
    """One circle of ranks for each program that hung: an arrow points to the rank that is waited for."""
    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(runs), figsize=(7.2 * len(runs), 7.4), squeeze=False, layout="constrained"
    )
    for axis, (title, run) in zip(axes[0], runs.items(), strict=True):
        _draw_circle(axis, title, run, ranks)
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def _draw_circle(axis: Any, title: str, run: Any, ranks: int) -> None:
    import math

    places = {
        rank: (math.sin(2 * math.pi * rank / ranks), math.cos(2 * math.pi * rank / ranks))
        for rank in range(ranks)
    }
    in_cycle = {(wait.rank, wait.peer) for wait in run.cycle}
    for wait in sorted(run.waits, key=lambda one: (one.rank, one.peer) in in_cycle):
        red = (wait.rank, wait.peer) in in_cycle
        axis.annotate(
            "",
            xy=places[wait.peer],
            xytext=places[wait.rank],
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#D00000" if red else "#c8c8c8",
                "lw": 2.4 if red else 0.6,
                "shrinkA": 26,
                "shrinkB": 26,
                "connectionstyle": "arc3,rad=0.12",
            },
        )
    held = {wait.rank: wait.lane for wait in run.waits}
    for rank, (x, y) in places.items():
        stuck = any(rank in pair for pair in in_cycle)
        text = f"rank {rank}\n{held.get(rank, '').replace('all-reduce ', 'holds #')}"
        axis.text(
            x,
            y,
            text.strip(),
            ha="center",
            va="center",
            fontsize=9,
            bbox={
                "boxstyle": "round,pad=0.45",
                "facecolor": "#ffe0e0" if stuck else "white",
                "edgecolor": "#D00000" if stuck else "#555555",
            },
        )
    axis.set_xlim(-1.3, 1.3)
    axis.set_ylim(-1.25, 1.25)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title(f"{title}\narrow: waits for; red: a shortest circle", fontsize=10)
