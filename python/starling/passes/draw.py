"""Pictures: the instruction graph, and the plan's schedule as a timeline by the cost model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starling import ir
from starling.passes.compiler import Compilation
from starling.passes.graph import Node
from starling.tune.model import Machine, timeline
from starling.write_whole import whole

COLOURS = {"send": "#4c78a8", "recv": "#72b7b2", "reduce": "#e45756", "copy": "#b8b8b8", "nop": "#dddddd"}


def _colour(opcode: str) -> str:
    kind = "reduce" if "reduce" in opcode else opcode.split("_")[0]
    return COLOURS.get(kind, "#888888")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "starling"  # the same picture, the same bytes
    from matplotlib import pyplot

    return pyplot


def draw_graph(compilation: Compilation, path: Path) -> None:
    """Instructions by rank and by the messages that lie before them; edges are messages (solid) and order (dotted)."""
    pyplot = _pyplot()
    nodes = compilation.fused.nodes
    places: dict[int, tuple[float, float]] = {}
    rows: dict[tuple[int, int], int] = {}
    for node in nodes:
        row = rows.get((node.rank, node.depth), 0)
        rows[node.rank, node.depth] = row + 1
        places[id(node)] = (node.depth + 0.18 * (row % 4), -node.rank - 0.8 * row / (max(rows.values()) + 1))
    depth = max((node.depth for node in nodes), default=0)
    ranks = compilation.plan.rank_count
    figure, axes = pyplot.subplots(figsize=(2.5 + 1.5 * (depth + 1), 1.5 + 1.1 * ranks))
    for node in nodes:
        x, y = places[id(node)]
        for message in node.receives:
            assert message.sender is not None
            a, b = places[id(message.sender)]
            axes.annotate("", (x, y), (a, b), arrowprops={"arrowstyle": "->", "color": "#4c78a8", "lw": 0.8})
        for other in node.before:
            a, b = places[id(other)]
            axes.plot([a, x], [b, y], ":", color="#999999", lw=0.8, zorder=0)
        axes.plot(x, y, "o", color=_colour(_kind(node)), ms=7)
        axes.text(x + 0.04, y + 0.06, _label(node), fontsize=6)
    axes.set_yticks([-rank for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
    axes.set_xlabel("messages before")
    axes.set_title(f"{compilation.program.name}: {compilation.program.collective}")
    _save(pyplot, figure, path)


def _kind(node: Node) -> str:
    if node.is_reduction:
        return "reduce"
    return "recv" if node.receives else ("send" if node.sends else "copy")


def _label(node: Node) -> str:
    name = node.destination or node.local
    return f"{name[0][0]}{name[1]}" if name else ""


def draw_schedule(
    plan: ir.Plan, path: Path, group_bytes: int = 1 << 16, machine: Machine | None = None
) -> None:
    """A bar for every instruction of every tile, a row for every block."""
    pyplot = _pyplot()
    spans = timeline(plan, group_bytes, machine or Machine())
    rows = [(rank, block) for rank, part in enumerate(plan.ranks) for block in range(len(part.blocks))]
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.35 * len(rows)))
    for span in spans:
        opcode = plan.ranks[span.rank].blocks[span.block].instructions[span.instruction].opcode.name
        axes.barh(
            rows.index((span.rank, span.block)),
            span.end_us - span.begin_us,
            left=span.begin_us,
            color=_colour(opcode),
            edgecolor="white",
            linewidth=0.4,
        )
    axes.set_yticks(range(len(rows)), [f"{rank}.{block}" for rank, block in rows])
    axes.invert_yaxis()
    axes.set_xlabel("us, by the cost model")
    axes.set_ylabel("rank.block")
    axes.set_title(f"{plan.name}: {plan.collective} over {plan.rank_count} ranks, {group_bytes} bytes a part")
    for kind, colour in COLOURS.items():
        axes.barh(0, 0, color=colour, label=kind)
    axes.legend(fontsize=7, ncols=len(COLOURS), loc="upper right")
    _save(pyplot, figure, path)


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with whole(path) as draft:
        figure.savefig(draft, dpi=110, metadata=metadata)
    pyplot.close(figure)
