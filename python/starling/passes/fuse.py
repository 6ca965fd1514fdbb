"""Fourth pass: fusion (GC3 section 4.2, and beyond). Each rewrite leaves the graph right and linked.

 settle    a result in scratch, then a local copy of it             => made in its place     (the scratch is dead)
 forward   recv -> scratch, then a local reduction of that scratch  => recv_reduce_copy      (the scratch is dead)
 fan_in    a chain of reductions into one place                     => one recv_reduce_copy of several messages
 fan_out   sends of one slice to several peers                      => one send to several peers
 pass_on   recv, then a send of exactly what was received           => recv_copy_send        (rcs)
           recv_reduce_copy, then a send of exactly the result      => recv_reduce_copy_send (rrcs)
 drop      rcs or rrcs whose result nobody reads before it is       => recv_send, recv_reduce_send (rrs)
           overwritten, all of it

Slices are the same if they are the same chunks of the same buffer of one rank; a result is dead if all its chunks are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from starling.ir.plan import Connection
from starling.lang.value import Leaf
from starling.passes.graph import Graph, Message, Node, link, measure_depths

MOST_FANNED = 15  # kMaxFan in src/wire/plan.h


@dataclass
class _Life:
    """Of what one instruction wrote: who reads it, and whether it is needed at the end."""

    readers: dict[int, Node] = field(default_factory=dict)
    is_kept: bool = False  # some chunk is the collective's result


def _lives(graph: Graph) -> dict[int, _Life]:
    """Kept until a pass changes the graph."""
    if graph.lives is None:
        graph.lives = _measured_lives(graph)
    return graph.lives


def _measured_lives(graph: Graph) -> dict[int, _Life]:
    lives: dict[int, _Life] = defaultdict(_Life)
    writers: dict[int, Node] = {}
    for node in graph.nodes:
        for key in graph.reads(node):
            writer = writers.get(key)
            if writer is not None:
                lives[id(writer)].readers[node.order] = node
        for key in graph.writes(node):
            writers[key] = node
    for key, writer in writers.items():
        life = lives[id(writer)]
        if not life.is_kept and _is_result(graph, key):
            life.is_kept = True
    return lives


def _is_result(graph: Graph, key: int) -> bool:
    """Whether the chunk is one of the caller's output that the collective says something about."""
    layout = graph.steps.layout
    collective = layout.collective
    rank, index = graph.output_index(key)
    if not 0 <= index < collective.chunks_of("output", rank) * layout.instances * layout.parts:
        return False
    return collective.expected(rank, layout.chunk_of(index)) is not None


def _same_block(a: Node, b: Node) -> bool:
    return a.replica == b.replica and (a.block is None or b.block is None or a.block == b.block)


def _replace(graph: Graph, gone: set[int]) -> None:
    if not gone:
        return
    graph.lives = None
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    graph.nodes.sort(key=lambda node: node.order)
    link(graph)


def settle(graph: Graph) -> None:
    """A result that is made in scratch for one local copy alone is made where the copy would put it."""
    lives = _lives(graph)
    gone: set[int] = set()
    touched: dict[int, list[int]] | None = None
    for node in graph.nodes:
        life = lives.get(id(node))
        if life is None or life.is_kept or len(life.readers) != 1 or node.sends:
            continue
        copy = next(iter(life.readers.values()))
        is_copy = not (copy.receives or copy.sends or copy.is_reduction or copy.final)
        if not is_copy or copy.local != node.destination or copy.count != node.count:
            continue
        if node.destination is None or not _same_block(node, copy):
            continue
        touched = _touches(graph) if touched is None else touched
        between = any(
            node.order <= order < copy.order for key in graph.writes(copy) for order in touched.get(key, ())
        )
        if between or id(node) in gone:
            continue
        node.destination = copy.destination
        gone.add(id(copy))
        for key in graph.writes(node):
            touched.setdefault(key, []).append(node.order)
    _replace(graph, gone)


def _touches(graph: Graph) -> dict[int, list[int]]:
    """By chunk of memory: when it is read or written."""
    touched: dict[int, list[int]] = {}
    for node in graph.nodes:
        for key in (*graph.reads(node), *graph.writes(node)):
            touched.setdefault(key, []).append(node.order)
    return touched


def forward(graph: Graph) -> None:
    """A message that was put into scratch for one local reduction alone is reduced as it comes."""
    lives = _lives(graph)
    gone: set[int] = set()
    for node in graph.nodes:
        life = lives.get(id(node))
        if (
            node.is_reduction
            or len(node.receives) != 1
            or life is None
            or life.is_kept
            or len(life.readers) != 1
        ):
            continue
        reduction = next(iter(life.readers.values()))
        if reduction.other_local != node.destination or reduction.count != node.count:
            continue
        if reduction.receives or reduction.local == node.destination or not _same_block(node, reduction):
            continue
        if reduction.destination == node.destination:
            continue
        gone.add(id(node))
        message = node.receives[0]
        reduction.receives, message.receiver = [message], reduction
        reduction.other_local = None
        reduction.block = node.block if reduction.block is None else reduction.block
    _replace(graph, gone)


@dataclass
class FanTable:
    """Whether a block can list its connections such that every fan is a run of neighbours (src/plan/builder.cc)."""

    entries: list[Connection] = field(default_factory=list)

    def place(self, fan: list[Connection]) -> bool:
        for at in range(len(self.entries) - len(fan) + 1):
            if self.entries[at : at + len(fan)] == fan:
                return True
        if any(connection in self.entries for connection in fan):
            return False
        self.entries += fan
        return True


_Tables = dict[tuple[object, ...], FanTable]


def _connections(messages: list[Message], peer: str) -> list[Connection]:
    return [Connection(getattr(message, peer), message.channel or 0) for message in messages]


def _one_channel(messages: list[Message]) -> bool:
    return len({(message.channel or 0) for message in messages}) == 1


def _share_channel(messages: list[Message]) -> None:
    """What one instruction receives and sends has one channel: the program's, if it says one for any. So has what its
    peers, who may be fused already, receive and send together with that."""
    said = [message.channel for message in messages if message.channel is not None]
    todo = [message for message in messages if message.channel is None] if said else []
    while todo:
        message = todo.pop()
        if message.channel is not None:
            continue
        message.channel = said[0]
        for node in (message.sender, message.receiver):
            assert node is not None
            todo += [*node.receives, *node.sends]


def fan_in(graph: Graph) -> None:
    """Chains of reductions into one place become one instruction that waits for all of their messages."""
    lives = _lives(graph)
    tables: _Tables = defaultdict(FanTable)
    writes = _writes(graph)
    chains = sorted(_chains(graph, lives), key=lambda chain: -len(chain))
    gone: set[int] = set()
    for chain in chains:
        merged = _merged_chain(chain)
        if merged is None:
            continue
        messages, owner, position = merged
        last = chain[-1]
        inside = {node.order for node in chain}
        if _is_written(graph, writes, owner, last.order, inside):
            continue  # the local operand is read at the chain's end, and would be another by then
        is_first = owner is chain[0] and owner.local is not None
        local = owner.local if is_first else owner.other_local
        key = (last.rank, last.replica, messages[0].channel or 0)
        if not tables[key].place(_connections(messages, "source")):
            continue
        last.receives, last.local, last.other_local, last.position = messages, local, None, position
        for message in messages:
            message.receiver = last
        _share_channel(messages)
        gone |= {id(node) for node in chain[:-1]}
    _replace(graph, gone)


def _writes(graph: Graph) -> dict[int, list[int]]:
    """By chunk of memory: when it is written."""
    written: dict[int, list[int]] = {}
    for node in graph.nodes:
        for key in graph.writes(node):
            written.setdefault(key, []).append(node.order)
    return written


def _is_written(
    graph: Graph, writes: dict[int, list[int]], owner: Node, until: int, besides: set[int]
) -> bool:
    """Whether others write an operand of ``owner`` between it and ``until``."""
    return any(
        owner.order <= order <= until and order not in besides
        for key in graph.reads(owner)
        for order in writes.get(key, ())
    )


def _chains(graph: Graph, lives: dict[int, _Life]) -> list[list[Node]]:
    """Instructions that follow each other on one place, each reading exactly what the one before it wrote."""
    chains: list[list[Node]] = []
    taken: set[int] = set()
    for start in graph.nodes:
        if id(start) in taken or start.destination is None or start.sends:
            continue
        chain = [start]
        while True:
            life = lives.get(id(chain[-1]))
            if life is None or life.is_kept or len(life.readers) != 1:
                break
            node = next(iter(life.readers.values()))
            follows = (
                node.is_reduction
                and not node.sends
                and node.local == chain[-1].destination
                and node.other_local != node.local
                and node.count == start.count
                and _same_block(node, start)
            )
            if not follows:
                break
            chain.append(node)
        if len(chain) > 1:
            chains.append(chain)
            taken |= {id(node) for node in chain}
    return chains


def _merged_chain(chain: list[Node]) -> tuple[list[Message], Node, int] | None:
    """The messages of a whole chain, the instruction that has its one local operand, and how many come before that.

    Operands go in the order of their least leaves: ranks that reduce the same chunks, each in an order of its own, come
    to the same bits.
    """
    operands: list[tuple[Leaf, Message | Node]] = []
    for number, node in enumerate(chain):
        operands += [(message.least, message) for message in node.receives]
        if number == 0 and node.local is not None:
            operands.append((node.local_least, node))
        if node.other_local is not None:
            operands.append((node.other_least, node))
    operands.sort(key=lambda operand: operand[0])
    messages = [operand for _, operand in operands if isinstance(operand, Message)]
    locals_ = [number for number, (_, operand) in enumerate(operands) if isinstance(operand, Node)]
    peers = {message.source for message in messages}
    if len(locals_) != 1 or not 1 <= len(messages) <= MOST_FANNED or len(peers) != len(messages):
        return None
    if not _one_channel(messages):
        return None
    owner = operands[locals_[0]][1]
    assert isinstance(owner, Node)
    return messages, owner, locals_[0]


def fan_out(graph: Graph) -> None:
    """Sends of one slice, of what one instruction left there, go out together."""
    groups: dict[tuple[object, ...], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.sends and not node.receives and node.destination is None:
            writers = tuple(id(other) for other in node.before)
            channel = node.sends[0].channel or 0
            key = (node.rank, node.local, node.count, node.replica, node.block, channel, writers)
            groups[key].append(node)
    tables: _Tables = defaultdict(FanTable)
    gone: set[int] = set()
    for group in sorted(groups.values(), key=lambda group: -len(group)):
        peers = {node.sends[0].destination for node in group}
        if not 1 < len(group) <= MOST_FANNED or len(peers) != len(group):
            continue
        first = group[0]
        messages = sorted((node.sends[0] for node in group), key=lambda message: message.destination)
        table = tables[first.rank, first.replica, messages[0].channel or 0]
        if not table.place(_connections(messages, "destination")):
            continue
        first.sends = messages
        for message in messages:
            message.sender = first
        _share_channel(messages)
        gone |= {id(node) for node in group[1:]}
    _replace(graph, gone)


def pass_on(graph: Graph) -> None:
    """A receive and a send of exactly what it left in memory; of several such sends, the one on the longest path."""
    measure_depths(graph)
    lives = _lives(graph)
    gone: set[int] = set()
    for node in graph.nodes:
        life = lives.get(id(node))
        if not node.receives or node.sends or life is None:
            continue
        sends = [other for other in life.readers.values() if _can_pass_on(node, other)]
        if not sends:
            continue
        send = max(sends, key=lambda other: (other.reverse_depth, -other.order))
        for message in send.sends:
            message.sender = node
        node.sends = send.sends
        _share_channel([*node.receives, *node.sends])
        node.block = node.block if node.block is not None else send.block
        gone.add(id(send))
    _replace(graph, gone)


def _can_pass_on(node: Node, send: Node) -> bool:
    if not send.sends or send.receives or send.destination is not None:
        return False
    same_slice = send.local == node.destination and send.count == node.count
    # All that it waits for is the receive: no chunk of the slice was written by others since.
    waits_for_it_alone = len(send.before) == 1 and send.before[0] is node
    channels = {message.channel for message in (*node.receives, *send.sends)} - {None}
    blocks = (node.block is None) == (send.block is None) and _same_block(node, send)
    return same_slice and waits_for_it_alone and len(channels) <= 1 and blocks


def drop(graph: Graph) -> None:
    """What a fused instruction sends on need not be stored where nobody reads it."""
    if graph.steps.protocol == "pull":
        return  # what is sent is read where it lies
    lives = _lives(graph)
    for node in graph.nodes:
        if not node.receives or not node.sends or node.destination is None:
            continue
        if graph.steps.lengths.find(node.rank, node.lengths) is None:
            continue  # only the result says how long it is
        life = lives.get(id(node), _Life())
        if not life.readers and not life.is_kept:
            node.destination = None
    graph.lives = None
    link(graph)


def fuse(graph: Graph, *, fans: bool = True) -> None:
    forward(graph)
    settle(graph)
    if fans:
        fan_in(graph)
        fan_out(graph)
    pass_on(graph)
    drop(graph)
