"""Pictures: the graph of chunks, that of instructions, and the plan's schedule as a timeline by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starling import ir
from starling.lang.program import Program, first_addresses
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


@dataclass
class _Dot:
    """Of a graph: what happens on a rank, behind so much else."""

    rank: int
    depth: int
    kind: str
    label: str


@dataclass
class _Dots:
    """A graph. Edges are pairs of indices: between ranks solid arrows, inside one dotted."""

    title: str
    depths: str  # what they count
    ranks: int
    dots: list[_Dot] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)


def draw_graph(compilation: Compilation, path: Path) -> None:
    """Instructions by rank and by the messages that lie before them; edges are messages (solid) and order (dotted)."""
    program, nodes = compilation.program, compilation.fused.nodes
    graph = _Dots(f"{program.name}: {program.collective}", "messages before", compilation.plan.rank_count)
    number = {id(node): k for k, node in enumerate(nodes)}
    for node in nodes:
        graph.dots.append(_Dot(node.rank, node.depth, _kind(node), _label(node)))
        senders = [message.sender for message in node.receives if message.sender is not None]
        graph.edges += [(number[id(other)], number[id(node)]) for other in (*senders, *node.before)]
    _draw_dots(graph, path)


def draw_chunks(program: Program, path: Path) -> None:
    """The program as it was traced: its copies and reductions by the rank that gets the chunks, the inputs that they
    begin with (grey), and what each of them reads."""
    collective = program.collective
    graph = _Dots(f"{program.name}: {collective}", "operations before", collective.ranks)
    first = first_addresses(collective)
    writers: dict[tuple[int, int], int] = {}  # by rank and place in its memory: the dot
    for operation in program.operations:
        read = [operation.source, *([operation.destination] if operation.kind == "reduce" else [])]
        before: set[int] = set()
        for span in read:
            for k in range(span.index, span.index + span.count):
                place = span.rank, first[span.rank][span.buffer] + k
                if place not in writers:
                    writers[place] = len(graph.dots)
                    graph.dots.append(_Dot(span.rank, 0, "start", f"{span.buffer[0]}{k}"))
                before.add(writers[place])
        to, own = operation.destination, len(graph.dots)
        kind = "send" if operation.kind == "copy" and to.rank != operation.source.rank else operation.kind
        depth = 1 + max(graph.dots[other].depth for other in before)
        last = f":{to.index + to.count}" if to.count > 1 else ""
        graph.dots.append(_Dot(to.rank, depth, kind, f"{to.buffer[0]}{to.index}{last}"))
        graph.edges += [(other, own) for other in sorted(before)]
        for k in range(to.index, to.index + to.count):
            writers[to.rank, first[to.rank][to.buffer] + k] = own
    _draw_dots(graph, path)


def _draw_dots(graph: _Dots, path: Path) -> None:
    """In SVG dots and edges are groups called dot-0, edge-0 and so on."""
    pyplot = _pyplot()
    rows: dict[tuple[int, int], int] = {}
    row_of = []
    for dot in graph.dots:
        row_of.append(rows.get((dot.rank, dot.depth), 0))
        rows[dot.rank, dot.depth] = row_of[-1] + 1
    most = max(rows.values(), default=1)
    places = [
        (dot.depth + 0.18 * (row % 4), -dot.rank - 0.8 * row / most)
        for dot, row in zip(graph.dots, row_of, strict=True)
    ]
    depth = max((dot.depth for dot in graph.dots), default=0)
    figure, axes = pyplot.subplots(figsize=(2.5 + 1.5 * (depth + 1), 1.5 + 1.1 * graph.ranks))
    for number, (before, after) in enumerate(graph.edges):
        (a, b), (x, y) = places[before], places[after]
        if graph.dots[before].rank == graph.dots[after].rank:
            axes.plot([a, x], [b, y], ":", color="#999999", lw=0.8, zorder=0, gid=f"edge-{number}")
        else:
            arrow = {"arrowstyle": "->", "color": "#4c78a8", "lw": 0.8}
            axes.annotate("", (x, y), (a, b), arrowprops=arrow).arrow_patch.set_gid(f"edge-{number}")
    for number, (dot, (x, y)) in enumerate(zip(graph.dots, places, strict=True)):
        axes.plot(x, y, "o", color=_colour(dot.kind), ms=7, gid=f"dot-{number}")
        axes.text(x + 0.04, y + 0.06, dot.label, fontsize=6)
    axes.set_yticks([-rank for rank in range(graph.ranks)], [f"rank {rank}" for rank in range(graph.ranks)])
    axes.set_xlabel(graph.depths)
    axes.set_title(graph.title)
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
    """A bar for every instruction of every tile (in SVG bar-0 and so on), a row for every block."""
    pyplot = _pyplot()
    spans = timeline(plan, group_bytes, machine or Machine())
    rows = [(rank, block) for rank, part in enumerate(plan.ranks) for block in range(len(part.blocks))]
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.35 * len(rows)))
    for number, span in enumerate(spans):
        opcode = plan.ranks[span.rank].blocks[span.block].instructions[span.instruction].opcode.name
        axes.barh(
            rows.index((span.rank, span.block)),
            span.end_us - span.begin_us,
            left=span.begin_us,
            color=_colour(opcode),
            edgecolor="white",
            linewidth=0.4,
            gid=f"bar-{number}",
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
