"""Last passes: synchronization between blocks, and the plan (starling.ir).

Instructions of one block run in their order, and a message orders its two ends. What is left, two blocks of a rank that
touch the same memory, becomes a dependency, unless one that an earlier instruction of the block waits for says it
already. An instruction whose tile is empty waits for nothing, so a wait counts only for chunks that are empty whenever
its own are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from starling.ir.opcodes import OPCODES
from starling.ir.plan import Block, Connection, Dependency, Instruction, Plan, RankPlan, Slice
from starling.passes.graph import Graph, Node, slice_of
from starling.passes.postcondition import holdings
from starling.passes.schedule import Schedule


def emit(graph: Graph, schedule: Schedule, name: str, protocol: str = "slots", tile_bytes: int = 0) -> Plan:
    layout = graph.steps.layout
    collective = layout.collective
    plan = Plan(
        name,
        collective.kind,
        collective.ranks,
        collective.root if collective.kind != "custom" else 0,
        collective.in_place,
        layout.pieces,
        layout.groups("input"),
        layout.groups("output"),
        [],
        protocol,
        tile_bytes,
        holdings(layout) if collective.kind == "custom" else None,
    )
    for rank, blocks in enumerate(schedule.blocks):
        instructions = {
            id(node): instructions_of(graph, schedule, node) for block in blocks for node in block
        }
        positions = _positions(blocks, instructions)
        part = RankPlan(_scratch_chunks(graph, rank, instructions), [])
        for nodes in blocks:
            waits = _waits(graph, schedule, nodes, positions)
            block = Block()
            for node in nodes:
                first, *rest = instructions[id(node)]
                block.instructions += [replace(first, after=waits[id(node)]), *rest]
            part.blocks.append(block)
        plan.ranks.append(part)
    return plan


def _positions(blocks: list[list[Node]], instructions: dict[int, list[Instruction]]) -> dict[int, int]:
    """Of each node the number of its last instruction in its block."""
    positions: dict[int, int] = {}
    for nodes in blocks:
        count = 0
        for node in nodes:
            count += len(instructions[id(node)])
            positions[id(node)] = count - 1
    return positions


def _scratch_chunks(graph: Graph, rank: int, instructions: dict[int, list[Instruction]]) -> int:
    """What fusion left of it."""
    chunks = 0
    for found in instructions.values():
        for i in found:
            for operand in (i.source, i.destination, i.size):
                if operand is not None and operand.buffer == "scratch":
                    chunks = max(chunks, operand.chunk + operand.chunks)
    return chunks


# ---- instructions -----------------------------------------------------------------------------------------------


def _opcode(node: Node) -> str:
    if not node.receives:
        return "send" if node.sends else ("reduce" if node.other_local else "copy")
    words = ["recv"]
    if node.is_reduction:
        words.append("reduce")
    if node.destination is not None and (node.is_reduction or node.sends):
        words.append("copy")
    if node.sends:
        words.append("send")
    return "_".join(words)


def instructions_of(graph: Graph, schedule: Schedule, node: Node) -> list[Instruction]:
    """One, or two where a local reduction reads its own operand elsewhere than it leaves the result."""
    size = _size(graph, node)

    def at(name: tuple[str, int] | None) -> Slice | None:
        return slice_of(name, node.count) if name is not None else None

    if node.other_local is not None:
        assert node.local is not None
        reduction = Instruction(
            OPCODES["reduce"], size, at(node.other_local), at(node.destination), final=node.final
        )
        if node.local == node.destination:
            return [reduction]
        return [Instruction(OPCODES["copy"], size, at(node.local), at(node.destination)), reduction]
    receives = tuple(Connection(m.source, schedule.channel(m)) for m in node.receives)
    sends = tuple(Connection(m.destination, schedule.channel(m)) for m in node.sends)
    position = node.position if node.local is not None else 0
    return [
        Instruction(
            OPCODES[_opcode(node)],
            size,
            at(node.local),
            at(node.destination),
            receives,
            sends,
            position,
            node.final,
        )
    ]


def _size(graph: Graph, node: Node) -> Slice:
    """Chunks of the caller's that are as long as what is moved."""
    for name in (node.destination, node.local):
        if name is not None and name[0] != "scratch":
            return slice_of(name, node.count)
    found = graph.steps.lengths.find(node.rank, node.lengths)
    assert found is not None, "nothing on the rank is as long as the chunks of an instruction"
    return found


# ---- synchronization --------------------------------------------------------------------------------------------


def _covers(waiter: Node, node: Node) -> bool:
    """Whether ``waiter`` has something to do whenever ``node`` has."""
    return all(
        any(part == wanted[0] and inside <= wanted[1] for part, inside in waiter.lengths)
        for wanted in node.lengths
    )


def _waits(
    graph: Graph, schedule: Schedule, nodes: list[Node], positions: dict[int, int]
) -> dict[int, tuple[Dependency, ...]]:
    """What each instruction of a block waits for in other blocks of its rank."""
    known: dict[int, list[tuple[int, Node]]] = defaultdict(list)  # by block: up to where, and who waited
    waits: dict[int, tuple[Dependency, ...]] = {}
    for node in nodes:
        own = schedule.block_of[id(node)]
        needed: dict[int, int] = {}
        for other in node.before:
            block = schedule.block_of[id(other)]
            if block != own:
                needed[block] = max(needed.get(block, -1), positions[id(other)])
        found = []
        for block, position in sorted(needed.items()):
            if any(upto >= position and _covers(waiter, node) for upto, waiter in known[block]):
                continue
            known[block].append((position, node))
            found.append(Dependency(block, position))
        waits[id(node)] = tuple(found)
    return waits
