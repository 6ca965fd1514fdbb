"""The dependency graph of a small deadlock as a picture, after the paper's Fig. 2."""

from __future__ import annotations

import math
from pathlib import Path

from starling.write_whole import whole

from . import engine
from .configuration import ConfigurationError

_EXECUTING, _INVOKED, _BAR, _ARROW, _LOCAL = "#a9d18e", "#ffe699", "#c00000", "#c00000", "#404040"


def check_format(path: Path) -> None:
    """Refuses the name of a picture whose format cannot be written, before the work is done."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.filetypes)
    if path.suffix.removeprefix(".").lower() not in known:
        raise ConfigurationError(f"{path} should end in one of: .{', .'.join(known)}")


def draw(program: engine.Program, model: str, path: Path, names: list[str] | None = None) -> None:
    """One box a GPU: executing collectives left (green), the synchronization (red bar), invoked ones right (yellow).

    Red arrows: an executing collective waits for its invoked counterparts on other GPUs. Dark arrows: an invoked one
    waits for all that executes on its GPU.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

    blocked = {each.gpu: each for each in engine.judge(program, getattr(engine.Rule, model)).blocked}
    all_events = program.events
    names = names or [
        chr(ord("A") + c) if len(program.members) <= 26 else f"c{c}" for c in range(len(program.members))
    ]
    gpus = len(all_events)
    radius = max(2.6, 0.75 * gpus)
    figure, axes = plt.subplots(figsize=(1.7 * radius + 3, 1.35 * radius + 2.4))
    place: dict[tuple[int, int], tuple[float, float]] = {}
    for gpu in range(gpus):
        angle = math.pi - 2 * math.pi * gpu / gpus
        x, y = radius * 1.25 * math.cos(angle), radius * math.sin(angle)
        state = blocked.get(gpu)
        executing = state.executing if state else []
        cut = state.event + 1 if state else len(all_events[gpu])
        invoked = [event for event in all_events[gpu][cut:] if event != engine.SYNCHRONIZE]
        rows = max(len(executing), len(invoked), 1)
        height = 0.6 * rows + 0.35
        axes.add_patch(
            FancyBboxPatch(
                (x - 1.15, y - height / 2), 2.3, height, boxstyle="round,pad=0.08", fc="white", ec="#808080"
            )
        )
        axes.text(x, y + height / 2 + 0.16, f"GPU {gpu}", ha="center", va="bottom")
        if model == "synchronization" and state:
            axes.add_patch(Rectangle((x - 0.06, y - height / 2), 0.12, height, fc=_BAR, ec="none"))
        for column, colour, parts in ((-0.6, _EXECUTING, executing), (0.6, _INVOKED, invoked)):
            for row, collective in enumerate(parts):
                at = (x + column, y + (len(parts) - 1) * 0.3 - 0.6 * row)
                place[collective, gpu] = at
                axes.add_patch(Rectangle((at[0] - 0.36, at[1] - 0.22), 0.72, 0.44, fc=colour, ec="#606060"))
                axes.text(*at, f"{names[collective]}$_{{{gpu}}}$", ha="center", va="center")

    def arrow(start: tuple[float, float], end: tuple[float, float], colour: str, bend: float) -> None:
        axes.add_patch(
            FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, color=colour, shrinkA=17, shrinkB=17,
                            connectionstyle=f"arc3,rad={bend}", lw=1.3)
        )  # fmt: skip

    for gpu, state in blocked.items():
        for collective in state.executing:
            for other in program.members[collective]:
                target = blocked.get(other)
                if (
                    other != gpu
                    and target
                    and collective not in target.executing
                    and (collective, other) in place
                ):
                    arrow(place[collective, gpu], place[collective, other], _ARROW, 0.18)
        for event in all_events[gpu][state.event + 1 :]:
            if event != engine.SYNCHRONIZE:
                for collective in state.executing:
                    arrow(place[event, gpu], place[collective, gpu], _LOCAL, 0.35)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.margins(0.06)
    axes.axis("off")
    title = "synchronization model" if model == "synchronization" else "single queue"
    axes.set_title(f"Deadlock in the {title}: {gpus} GPUs, {len(program.members)} collectives", pad=22)
    with whole(path) as draft:
        figure.savefig(draft, dpi=150, bbox_inches="tight")
    plt.close(figure)
