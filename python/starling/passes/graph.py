"""Third pass: the instruction graph (GC3 section 4.2). A remote copy is a send and a receive, a remote reduction a
send and a receive that reduces; what is local is one instruction. Edges between instructions of a rank follow from
what they read and write; edges between ranks are messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starling.ir.plan import Slice
from starling.lang.errors import Place
from starling.lang.value import Leaf
from starling.passes.lengths import LengthClass
from starling.passes.moves import Replica
from starling.passes.steps import Name, Step, Steps


@dataclass(eq=False, slots=True)
class Message:
    """What one instruction sends another."""

    source: int  # ranks
    destination: int
    channel: int | None  # as the program says
    replica: Replica
    sender: Node | None = None
    receiver: Node | None = None
    least: Leaf = (0, 0)  # of what it carries in its first chunk


@dataclass(eq=False, slots=True)
class Node:
    """An instruction before it has a place. What it computes: ``destination`` and ``sends`` = the reduction, from left
    to right, of its operands: messages, in their order, with ``local`` behind the first ``position`` of them."""

    rank: int
    order: int  # position in the trace
    count: int
    lengths: tuple[LengthClass, ...]
    local: Name | None = None
    other_local: Name | None = None  # of a local reduction: what is reduced into `local`
    destination: Name | None = None
    local_least: Leaf = (0, 0)  # least leaves of the operands' first chunks: the order of wide reductions
    other_least: Leaf = (0, 0)
    receives: list[Message] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    position: int = 0
    final: bool = False
    replica: Replica = field(default_factory=Replica)
    block: int | None = None  # as the program says
    place: Place | None = None
    before: list[Node] = field(default_factory=list)  # of the same rank: they come first
    depth: int = 0
    reverse_depth: int = 0

    @property
    def is_reduction(self) -> bool:
        return self.other_local is not None or len(self.receives) + (self.local is not None) > 1


@dataclass
class Graph:
    """All instructions, in the order of the trace."""

    steps: Steps
    nodes: list[Node]
    lives: dict[int, Any] | None = None  # fuse.py's, of the graph as it is

    def __post_init__(self) -> None:
        layout = self.steps.layout
        collective = layout.collective
        scale = layout.instances * layout.parts
        # In place, input and output are one memory.
        self._first: list[dict[str, int]] = []
        for rank in range(collective.ranks):
            base = rank << 44
            first = {"input": base, "output": base | 1 << 42, "scratch": base | 2 << 42}
            if collective.in_place:
                overlap = collective.overlap(rank)
                first["input"], first["output"] = base + overlap[0] * scale, base + overlap[1] * scale
            self._first.append(first)

    def key(self, rank: int, name: Name) -> int:
        """One number for each chunk of memory of all ranks; neighbours have neighbouring numbers."""
        return self._first[rank][name[0]] + name[1]

    def output_index(self, key: int) -> tuple[int, int]:
        """The rank, and which chunk of its output this is; an index out of bounds: it is none."""
        rank = key >> 44
        return rank, key - self._first[rank]["output"]

    def reads(self, node: Node) -> list[int]:
        keys: list[int] = []
        for name in (node.local, node.other_local):
            if name is not None:
                first = self._first[node.rank][name[0]] + name[1]
                keys.extend(range(first, first + node.count))
        return keys

    def writes(self, node: Node) -> range:
        if node.destination is None:
            return range(0)
        first = self._first[node.rank][node.destination[0]] + node.destination[1]
        return range(first, first + node.count)


def expand(steps: Steps) -> Graph:
    nodes: list[Node] = []
    for step in steps.steps:
        nodes += _remote(step, len(nodes)) if step.is_remote else [_local(step, len(nodes))]
    graph = Graph(steps, nodes)
    link(graph)
    return graph


def _local(step: Step, order: int) -> Node:
    node = Node(step.rank, order, step.count, step.lengths, local=step.source, destination=step.destination)
    if step.kind == "reduce":
        node.local, node.other_local = step.target, step.source
        node.position = int(step.other_first)
        node.local_least, node.other_least = step.target_least, step.source_least
    else:
        node.local_least = step.source_least
    node.final, node.replica, node.place = step.final, step.replica, step.place
    node.block = step.receive_block if step.receive_block is not None else step.send_block
    return node


def _remote(step: Step, order: int) -> list[Node]:
    message = Message(step.source_rank, step.rank, step.channel, step.replica)
    message.least = step.source_least
    send = Node(step.source_rank, order, step.count, step.lengths, local=step.source, sends=[message])
    receive = Node(step.rank, order + 1, step.count, step.lengths, receives=[message])
    receive.local, receive.destination, receive.final = step.target, step.destination, step.final
    receive.local_least = step.target_least
    receive.position = int(step.kind == "reduce" and step.other_first)
    send.block, receive.block = step.send_block, step.receive_block
    for node in (send, receive):
        node.replica, node.place = step.replica, step.place
    message.sender, message.receiver = send, receive
    return [send, receive]


def link(graph: Graph) -> None:
    """Sets ``before`` of every instruction: true dependencies, and false ones where memory is used again.

    Who writes a chunk of memory stands for all that touched it before, but only for those that are empty whenever its
    own tile is: an instruction that is empty waits for nothing. The others stay in the way of the next one. Chunks far
    behind in their part are the first to be empty.
    """
    writers: dict[int, tuple[Node, int]] = {}  # with its chunk's position in its part
    others: dict[
        int, list[tuple[Node, int]]
    ] = {}  # who reads it since, and whom the writer does not stand for
    for node in graph.nodes:
        before: dict[int, Node] = {}
        for k, key in enumerate(graph.reads(node)):
            if key in writers:
                writer = writers[key][0]
                before[writer.order] = writer
            read = node, node.lengths[k % node.count][1]
            if key in others:
                others[key].append(read)
            else:
                others[key] = [read]
        foremost = min([inside for _, inside in node.lengths])
        for k, key in enumerate(graph.writes(node)):
            earlier = others.pop(key, [])
            if key in writers:
                earlier.append(writers[key])
            for other, _ in earlier:
                before[other.order] = other
            left = [entry for entry in earlier if entry[1] < foremost and entry[0] is not node]
            if left:
                others[key] = left
            writers[key] = node, node.lengths[k][1]
        before.pop(node.order, None)
        node.before = [before[order] for order in sorted(before)]


def measure_depths(graph: Graph) -> None:
    """How many messages lie before an instruction at least, and how many after it: its place on the longest path."""
    order = topological(graph)
    for node in order:
        depth = max((other.depth for other in node.before), default=0)
        for message in node.receives:
            assert message.sender is not None
            depth = max(depth, message.sender.depth + 1)
        node.depth = depth
        node.reverse_depth = 0
    for node in reversed(order):
        for other in node.before:
            other.reverse_depth = max(other.reverse_depth, node.reverse_depth)
        for message in node.receives:
            assert message.sender is not None
            message.sender.reverse_depth = max(message.sender.reverse_depth, node.reverse_depth + 1)


def topological(graph: Graph) -> list[Node]:
    """All instructions, each behind what it waits for; raises if they wait in a circle."""
    waiting: dict[int, int] = {}
    after: dict[int, list[Node]] = {}
    for node in graph.nodes:
        first = [*node.before, *(message.sender for message in node.receives if message.sender is not None)]
        waiting[id(node)] = len(first)
        for other in first:
            after.setdefault(id(other), []).append(node)
    ready = [node for node in graph.nodes if waiting[id(node)] == 0]
    for node in ready:  # grows while it is read
        for other in after.get(id(node), ()):
            waiting[id(other)] -= 1
            if waiting[id(other)] == 0:
                ready.append(other)
    if len(ready) != len(graph.nodes):
        raise AssertionError("the instructions of a program wait for each other in a circle")
    return ready


def slice_of(name: Name, count: int) -> Slice:
    return Slice(name[0], name[1], count)
