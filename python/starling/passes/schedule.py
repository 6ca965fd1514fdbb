"""Fifth pass: channels, blocks and order (GC3 section 5.2).

Instructions are put into blocks one by one, as an execution would run them with so many slots on each connection: a
message is sent only while a slot is free, and received in the order in which it was sent. The order that comes out is
itself an execution, so no plan of this pass can deadlock with that many slots. Among the instructions that could come
next the one with the fewest messages before it is taken, then the one with the most behind it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NoReturn

from starling.ir.plan import MOST_BLOCKS, MOST_CHANNELS, Connection
from starling.lang.errors import NOWHERE, ProgramError
from starling.passes.fuse import FanTable
from starling.passes.graph import Graph, Message, Node, measure_depths

BLOCK_POLICIES = ("channels", "connections")
ChannelKey = tuple[int, int, int]  # instance, part, channel of the program
Link = tuple[int, int, int]  # source, destination, channel


@dataclass
class Schedule:
    """``blocks[rank][block]`` lists the instructions; ``channels`` are numbered alike on all ranks."""

    blocks: list[list[list[Node]]]
    channels: dict[ChannelKey, int]
    block_of: dict[int, int] = field(default_factory=dict)  # by identity of the instruction
    index_of: dict[int, int] = field(default_factory=dict)

    def channel(self, message: Message) -> int:
        return self.channels[channel_key(message)]

    def link(self, message: Message) -> Link:
        return message.source, message.destination, self.channel(message)


class StuckError(Exception):
    """No order with so many slots was found, or no block for what was fused; the text says who waits for what."""


def channel_key(message: Message) -> ChannelKey:
    return message.replica.instance, message.replica.part, message.channel or 0


def schedule(graph: Graph, *, blocks: int | None, policy: str, slots: int, by_depth: bool) -> Schedule:
    """Raises StuckError if this way of choosing finds no order, ProgramError if blocks contradict each other."""
    measure_depths(graph)
    keys = sorted({channel_key(message) for node in graph.nodes for message in node.sends})
    # With few blocks there are as few channels, one for each block: any lane of such a daemon has them.
    by_hand = any(node.block is not None for node in graph.nodes)
    limit = blocks if policy == "channels" and not by_hand else None
    plan = Schedule([], {key: number % (limit or len(keys) or 1) for number, key in enumerate(keys)})
    if len(set(plan.channels.values())) > MOST_CHANNELS:
        _refuse_channels(graph, plan)
    _Blocks(graph, plan, blocks, policy).assign()
    _Emitter(graph, plan, slots, by_depth).run()
    _check_fans(plan)
    return plan


def _refuse_channels(graph: Graph, plan: Schedule) -> NoReturn:
    node = next(
        node for node in graph.nodes if any(plan.channel(message) >= MOST_CHANNELS for message in node.sends)
    )
    raise ProgramError(
        node.place or NOWHERE,
        f"the program has {len(plan.channels)} channels (one for every ch and instance), and a plan has "
        f"{MOST_CHANNELS} at most: use fewer, or compile it with blocks=, without sendtb and recvtb: blocks share them",
    )


def _check_fans(plan: Schedule) -> None:
    """Fans were made channel by channel, and a block may have several; the widest go first, as in builder.cc."""
    for nodes in (nodes for blocks in plan.blocks for nodes in blocks):
        for fans in (
            [[Connection(m.source, plan.channel(m)) for m in node.receives] for node in nodes],
            [[Connection(m.destination, plan.channel(m)) for m in node.sends] for node in nodes],
        ):
            if all(len(fan) <= 1 for fan in fans):
                continue
            table = FanTable()
            if not all(table.place(fan) for fan in sorted(fans, key=len, reverse=True) if fan):
                raise StuckError(
                    f"rank {nodes[0].rank} ({nodes[0].place}) fuses what no block holds together"
                )


# ---- blocks -----------------------------------------------------------------------------------------------------


class _Blocks:
    """Which block runs each instruction that has messages; local ones are placed when their turn comes."""

    def __init__(self, graph: Graph, plan: Schedule, limit: int | None, policy: str) -> None:
        if policy not in BLOCK_POLICIES:
            raise ValueError(f"no policy is called '{policy}'; use one of {', '.join(BLOCK_POLICIES)}")
        if limit is not None and limit < 1:
            raise ValueError(f"{limit} blocks; use 1 or more, or None")
        self.graph = graph
        self.plan = plan
        self.limit = limit
        self.policy = policy
        self.ends: dict[tuple[str, Link], Node] = {}
        self.homes: list[dict[object, object]] = [{} for _ in range(graph.steps.layout.collective.ranks)]

    def assign(self) -> None:
        wanted: list[dict[int, tuple[object, ...]]] = [{} for _ in self.homes]
        for node in self.graph.nodes:
            self._own_connections(node)
            key = self._key(node)
            if key is not None:
                wanted[node.rank][id(node)] = key
        for rank, keys in enumerate(wanted):
            resolved = {node: self._root(rank, key) for node, key in keys.items()}
            names = sorted(set(resolved.values()), key=repr)
            names.sort(key=lambda key: (key[0] != "manual", key[1:] if key[0] != "links" else ()))  # type: ignore
            count = max(1, min(len(names), self.limit or len(names)))
            number = {key: index % count for index, key in enumerate(names)}
            if names and all(key[0] == "channel" for key in names):  # block c runs channel c, on every rank
                number = {key: int(str(key[1])) for key in names}
                count = max(number.values()) + 1
            self.plan.blocks.append([[] for _ in range(count)])
            for node_id, key in resolved.items():
                self.plan.block_of[node_id] = number[key]
            if count > MOST_BLOCKS:
                self._refuse_blocks(rank, count)

    def _refuse_blocks(self, rank: int, count: int) -> NoReturn:
        first = next(
            node
            for node in self.graph.nodes
            if node.rank == rank and self.plan.block_of.get(id(node), 0) >= MOST_BLOCKS
        )
        each = "connection" if self.policy == "connections" else "channel and instance"
        if first.block is not None:
            each = "sendtb or recvtb, and instance"
        raise ProgramError(
            first.place or NOWHERE,
            f"rank {rank} gets {count} blocks (one for every {each}), and a rank has {MOST_BLOCKS} at most, all "
            f"resident together: compile it with blocks={MOST_BLOCKS} or fewer, which share the work, or use fewer",
        )

    def _own_connections(self, node: Node) -> None:
        """A connection has one block at each end; who says otherwise by hand is told so."""
        ends = [("sends on", message) for message in node.sends] + [("receives on", m) for m in node.receives]
        for does, message in ends:
            link = self.plan.link(message)
            other = self.ends.setdefault((does, link), node)
            if node.block != other.block:
                mine, theirs = (
                    "a block of the compiler's choice" if block is None else f"block {block}"
                    for block in (node.block, other.block)
                )
                raise ProgramError(
                    node.place or NOWHERE,
                    f"{mine} of rank {node.rank} {does} the connection from rank {link[0]} to {link[1]} on channel "
                    f"{message.channel or 0}, as {theirs} does at {other.place}; a connection has one block at each "
                    "end: give one of them another ch, or both one sendtb and recvtb",
                )

    def _key(self, node: Node) -> tuple[object, ...] | None:
        if node.block is not None:
            return ("manual", node.block, node.replica.instance, node.replica.part)
        messages = [*node.receives, *node.sends]
        if not messages:
            return None
        if self.policy == "channels":
            return ("channel", self.plan.channel(messages[0]))
        ends = [("in", self.plan.link(message)) for message in node.receives]
        ends += [("out", self.plan.link(message)) for message in node.sends]
        for end in ends[1:]:
            self._join(node.rank, ("links", ends[0]), ("links", end))
        return ("links", ends[0])

    def _root(self, rank: int, key: tuple[object, ...]) -> tuple[object, ...]:
        while key in self.homes[rank]:
            key = self.homes[rank][key]  # type: ignore[assignment]
        return key

    def _join(self, rank: int, a: tuple[object, ...], b: tuple[object, ...]) -> None:
        a, b = self._root(rank, a), self._root(rank, b)
        if a != b:
            low, high = sorted((a, b), key=repr)
            self.homes[rank][high] = low


# ---- order ------------------------------------------------------------------------------------------------------


def _by_depth(node: Node) -> tuple[int, ...]:
    return node.depth, -node.reverse_depth, node.order


def _by_trace(node: Node) -> tuple[int, ...]:
    """Where the trace has it; what sends, where the trace has the last of its messages."""
    arrivals = [message.receiver.order for message in node.sends if message.receiver is not None]
    return max(arrivals, default=node.order), node.order


class _Emitter:
    def __init__(self, graph: Graph, plan: Schedule, slots: int, by_depth: bool) -> None:
        self.graph = graph
        self.plan = plan
        self.slots = slots
        self.key = _by_depth if by_depth else _by_trace
        self.under_way: dict[Link, deque[Message]] = defaultdict(deque)
        self.waiting: dict[int, int] = {}
        self.after: dict[int, list[Node]] = defaultdict(list)
        self.heap: list[tuple[tuple[int, ...], int, Node]] = []
        self.parked: dict[Link, list[Node]] = defaultdict(list)
        self.emitted = 0

    def run(self) -> None:
        for node in self.graph.nodes:
            first = [*node.before, *(m.sender for m in node.receives if m.sender is not None)]
            self.waiting[id(node)] = len(first)
            for other in first:
                self.after[id(other)].append(node)
            if not first:
                self._push(node)
        while self.heap:
            node = heapq.heappop(self.heap)[2]
            blocked = self._blocked_on(node)
            if blocked is None:
                self._emit(node)
            else:
                self.parked[blocked].append(node)
        if self.emitted != len(self.graph.nodes):
            raise StuckError(self._story())

    def _push(self, node: Node) -> None:
        heapq.heappush(self.heap, (self.key(node), node.order, node))

    def _blocked_on(self, node: Node) -> Link | None:
        for message in node.receives:
            link = self.plan.link(message)
            if self.under_way[link][0] is not message:
                return link
        for message in node.sends:
            link = self.plan.link(message)
            if len(self.under_way[link]) >= self.slots:
                return link
        return None

    def _emit(self, node: Node) -> None:
        self.emitted += 1
        for message in node.receives:
            link = self.plan.link(message)
            self.under_way[link].popleft()
            self._unpark(link)
        for message in node.sends:
            link = self.plan.link(message)
            self.under_way[link].append(message)
            self._unpark(link)
        block = self.plan.block_of.get(id(node))
        if block is None:
            block = self._block_for_local(node)
            self.plan.block_of[id(node)] = block
        home = self.plan.blocks[node.rank][block]
        self.plan.index_of[id(node)] = len(home)
        home.append(node)
        for other in self.after[id(node)]:
            self.waiting[id(other)] -= 1
            if self.waiting[id(other)] == 0:
                self._push(other)

    def _unpark(self, link: Link) -> None:
        for node in self.parked.pop(link, ()):
            self._push(node)

    def _block_for_local(self, node: Node) -> int:
        """Where what it reads was made, or will be used: no other block has to be waited for. Else the emptiest."""
        near = [*reversed(node.before), *self.after[id(node)]]
        for other in near:
            if other.rank == node.rank and other.replica == node.replica and id(other) in self.plan.block_of:
                return self.plan.block_of[id(other)]
        blocks = self.plan.blocks[node.rank]
        return min(range(len(blocks)), key=lambda block: (len(blocks[block]), block))

    def _story(self) -> str:
        stuck = [node for nodes in self.parked.values() for node in nodes][:4]
        lines = []
        for node in stuck:
            link = self._blocked_on(node)
            what = "a slot" if link and link[0] == node.rank else "its turn"
            lines.append(f"rank {node.rank} ({node.place}) waits for {what} on connection {link}")
        return f"no order with {self.slots} slots: " + "; ".join(lines)
