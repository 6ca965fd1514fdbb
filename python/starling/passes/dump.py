"""What each pass leaves behind, as text for people: ``starling compile --dump PASS``."""

from __future__ import annotations

from starling import ir
from starling.passes.compiler import PASSES, Compilation
from starling.passes.graph import Node
from starling.passes.steps import Name


def dump(compilation: Compilation, name: str) -> str:
    writers = {
        "trace": _trace,
        "moves": _moves,
        "steps": _steps,
        "graph": _graph,
        "schedule": _schedule,
        "plan": _plan,
    }
    if name not in PASSES:
        raise ValueError(f"no pass is called '{name}'; use one of {', '.join(PASSES)}")
    return writers[name](compilation)


def _plan(c: Compilation) -> str:
    return ir.to_text(c.plan)


def _trace(c: Compilation) -> str:
    lines = [
        f"{number:5} {o.kind:6} {o.source} -> {o.destination}"
        + (f" ch={o.channel}" if o.channel is not None else "")
        + (f" parallelize={o.parallel}" if o.parallel > 1 else "")
        + f"    # {o.place}"
        for number, o in enumerate(c.program.operations)
    ]
    return "\n".join([f"# {c.program.name}: {c.program.collective}", *lines, ""])


def _moves(c: Compilation) -> str:
    lines = [
        f"{number:5} {m.kind:6} {m.source} -> {m.destination} instance {m.replica.instance}.{m.replica.part}"
        for number, m in enumerate(c.moves)
    ]
    return "\n".join([f"# {c.layout.pieces} pieces in a group", *lines, ""])


def _name(name: Name, count: int) -> str:
    return f"{name[0]}[{name[1]}]" if count == 1 else f"{name[0]}[{name[1]}:{name[1] + count}]"


def _steps(c: Compilation) -> str:
    lines = []
    for number, s in enumerate(c.steps.steps):
        target = f" with {_name(s.target, s.count)}" if s.target else ""
        final = " final" if s.final else ""
        source, destination = _name(s.source, s.count), _name(s.destination, s.count)
        lines.append(
            f"{number:5} {s.kind:6} {s.source_rank}.{source}{target} -> {s.rank}.{destination}{final}"
        )
    return "\n".join([*lines, ""])


def _node(node: Node) -> str:
    sources = [f"<{m.source}" for m in node.receives]
    for name in (node.local, node.other_local):
        if name is not None:
            sources.insert(node.position, _name(name, node.count))
    targets = [_name(node.destination, node.count)] if node.destination else []
    targets += [f">{m.destination}" for m in node.sends]
    before = f"  after {' '.join(str(other.order) for other in node.before)}" if node.before else ""
    depths = f"depth {node.depth}/{node.reverse_depth}"
    return f"{node.order:5} rank {node.rank}: {' '.join(sources)} -> {' '.join(targets)}  {depths}{before}"


def _graph(c: Compilation) -> str:
    return "\n".join([*(_node(node) for node in c.fused.nodes), ""])


def _schedule(c: Compilation) -> str:
    lines = [f"# channels: {c.schedule.channels}"]
    for rank, blocks in enumerate(c.schedule.blocks):
        for number, nodes in enumerate(blocks):
            lines.append(f"rank {rank} block {number}")
            lines += [f"  {_node(node)}" for node in nodes]
    return "\n".join([*lines, ""])
