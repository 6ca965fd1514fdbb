"""The cost model: a discrete-event simulation of a plan, instruction by instruction, tile by tile.

A block runs its list in order; an instruction begins when its block is free and its messages, slots and dependencies
are there, takes a fixed time and so much for each byte that it reads and reduces, and its messages go over the links of
its rank, one at a time. With many tiles the first few tell the pace of the rest.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from starling.ir.plan import Block, Connection, Instruction, Plan

_ADDRESS_BYTES = 16
_PACED_TILES = (6, 12)  # simulated; longer operations go on at the pace between the two


@dataclass(frozen=True)
class Link:
    """latency_us: from the end of the send until the receiver sees it. bytes_per_us: what a rank can send over links
    of this kind, and receive. gap_us: how long every message holds them beside its bytes."""

    latency_us: float
    bytes_per_us: float
    gap_us: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What an instruction costs. ranks_per_node: neighbours that share ``inside``; others meet over ``between``.
    nodes_in_turn: or ranks are on so many nodes in turn, as on GPUs (0: they are not).

    ports: messages that leave a node at the same time for others (0: no limit). cores: blocks that run at the same time
    (0: all); more blocks take turns.
    wait_us: of every instruction that receives, where the rank that it waits for has to be given a core first.
    signal_us: of every message that is not packets: both sides' releases, and the receiver's look. packet_bytes_per_us:
    of data that a block puts into packets, or takes out and reduces. pull_bytes_per_us: that it reads out of a peer's
    buffer; pulls_cross_links: over the link between them, as on GPUs. block_us: of every block after a rank's first, to
    begin and to end.
    """

    inside: Link = Link(0.6, 8000.0)
    between: Link = Link(5.0, 12000.0)
    ranks_per_node: int = 1 << 30
    nodes_in_turn: int = 0
    ports: int = 0
    cores: int = 0
    instruction_us: float = 0.15
    copy_bytes_per_us: float = 9000.0
    reduce_bytes_per_us: float = 5000.0
    wait_us: float = 0.0
    signal_us: float = 0.0
    packet_bytes_per_us: float = 250.0
    pull_bytes_per_us: float = math.inf
    pulls_cross_links: bool = False
    block_us: float = 0.0
    slot_bytes: int = 65536
    packet_slot_bytes: int = 8192
    pull_bytes: int = 1 << 18
    slots: int = 8

    def link(self, source: int, destination: int) -> Link:
        return self.inside if self.node(source) == self.node(destination) else self.between

    def node(self, rank: int) -> int:
        return rank % self.nodes_in_turn if self.nodes_in_turn else rank // self.ranks_per_node

    def message_bytes(self, protocol: str) -> int:
        """Room that a message has; of pull, what a block reads at once."""
        return {"packets": self.packet_slot_bytes, "pull": self.pull_bytes}.get(protocol, self.slot_bytes)


CPU = Machine(cores=2, packet_slot_bytes=256)
"""Threads of a small host, where a message is a copy in and a copy out. Packets there are written word by word."""


def cpu(ranks: int, cores: int) -> Machine:
    """This host's. Measured on two cores: with four ranks a step takes some 15 us longer than with two."""
    return replace(CPU, cores=cores, wait_us=12.0 if ranks > cores else 0.0)


GPUS = Machine(
    inside=Link(0.7, 350000.0),
    instruction_us=1.2,
    copy_bytes_per_us=45000.0,
    reduce_bytes_per_us=20000.0,
    signal_us=2.0,
    packet_bytes_per_us=10000.0,
    pull_bytes_per_us=20000.0,
    pulls_cross_links=True,
    block_us=0.03,
    slot_bytes=1 << 17,
    pull_bytes=4 << 20,
)
"""GPUs of one host over NVLink, as measured between two H200 (docs/design/0010, 0011): to fill the link it takes 8
blocks that push, or 16 to 20 that pull."""


@dataclass(frozen=True, slots=True)
class Span:
    """One instruction on one tile."""

    rank: int
    block: int
    instruction: int
    tile: int
    begin_us: float
    end_us: float


@dataclass
class _Run:
    rank: int
    block: int
    instructions: list[Instruction]
    tile: int = 0
    index: int = 0
    free_us: float = 0.0

    def key(self) -> tuple[int, int]:
        return self.rank, self.block


@dataclass
class _Simulation:
    plan: Plan
    machine: Machine
    chunk_bytes: int
    tile_bytes: int
    tiles: int
    visit: Callable[[Span], None] | None
    runs: dict[tuple[int, int], _Run] = field(default_factory=dict)
    arrived: dict[tuple[int, int, int], deque[float]] = field(default_factory=lambda: defaultdict(deque))
    freed: dict[tuple[int, int, int], deque[float]] = field(default_factory=lambda: defaultdict(deque))
    sent: dict[tuple[int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    busy: dict[object, float] = field(default_factory=lambda: defaultdict(float))
    done: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    sleeping: dict[object, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    cores: list[float] = field(default_factory=list)  # when each is free again; empty: there are enough

    def run(self) -> float:
        self.cores = [0.0] * self.machine.cores
        for rank, part in enumerate(self.plan.ranks):
            for number, block in enumerate(part.blocks):
                self._add(rank, number, block)
        heap = [(0.0, key) for key, run in self.runs.items() if run.instructions]
        heapq.heapify(heap)
        end = 0.0
        while heap:
            _, key = heapq.heappop(heap)
            run = self.runs[key]
            if run.tile == self.tiles:
                continue
            begin, waits_for = self._begin(run)
            if waits_for is not None:
                self.sleeping[waits_for].append(key)
                continue
            finish, woken = self._execute(run, begin)
            end = max(end, finish)
            heapq.heappush(heap, (run.free_us, key))
            for other in woken:
                heapq.heappush(heap, (self.runs[other].free_us, other))
        if any(run.instructions and run.tile < self.tiles for run in self.runs.values()):
            raise ValueError(f"plan {self.plan.name} does not finish with {self.machine.slots} slots")
        return end + self.machine.block_us * (max(len(part.blocks) for part in self.plan.ranks) - 1)

    def _add(self, rank: int, number: int, block: Block) -> None:
        self.runs[rank, number] = _Run(rank, number, block.instructions)
        self.done[rank, number] = []

    def _begin(self, run: _Run) -> tuple[float, object | None]:
        """When the next instruction can begin; or what it still waits for."""
        i = run.instructions[run.index]
        begin = run.free_us
        for c in i.receives:
            end = (c.peer, run.rank, c.channel)
            if not self.arrived[end]:
                return 0.0, ("message", end)
            begin = max(begin, self.arrived[end][0])
        for c in i.sends:
            end = (run.rank, c.peer, c.channel)
            if self.sent[end] >= self.machine.slots:
                if not self.freed[end]:
                    return 0.0, ("slot", end)
                begin = max(begin, self.freed[end][0])
        for d in i.after:
            other = self.runs[run.rank, d.block]
            position = run.tile * len(other.instructions) + d.instruction
            if len(self.done[other.key()]) <= position:
                return 0.0, ("block", other.key())
            begin = max(begin, self.done[other.key()][position])
        return begin, None

    def _execute(self, run: _Run, begin: float) -> tuple[float, list[tuple[int, int]]]:
        i = run.instructions[run.index]
        m = self.machine
        bytes_ = min(self.tile_bytes, self.chunk_bytes - run.tile * self.tile_bytes) * i.size.chunks
        operands = len(i.receives) + (i.source is not None) + i.opcode.reduces_into
        rate = m.reduce_bytes_per_us if i.opcode.reduces else m.copy_bytes_per_us
        # Of protocol pull a message is an address, and its bytes move once, where they are received; if it is put,
        # where they are sent.
        pulled, packets = self.plan.protocol == "pull", self.plan.protocol == "packets"
        if packets and (i.receives or i.sends):
            rate = m.packet_bytes_per_us
        elif pulled and (i.receives or i.put):
            rate = min(rate, m.pull_bytes_per_us)
        lands, puts = i.put and not i.sends, i.put and bool(i.sends)
        still = i.opcode.name == "nop" or lands or (pulled and i.destination is None and not puts)
        work = 0.0 if still else bytes_ * max(1, operands - int(i.opcode.reduces)) / rate
        copies = 0 if pulled and not puts else max(0, len(i.sends) + (i.destination is not None) - 1)
        message_bytes = _ADDRESS_BYTES if pulled else bytes_ * (2 if packets else 1)
        if i.receives:
            work += m.wait_us
        if not packets:
            work += m.signal_us * (bool(i.receives) + bool(i.sends)) / 2
        if self.cores:
            begin = max(begin, self.cores[0])
        end = begin + m.instruction_us + work + copies * bytes_ / (rate if packets else m.copy_bytes_per_us)
        if pulled and m.pulls_cross_links:
            links = [] if lands else [(c.peer, run.rank) for c in i.receives]
            links += [(run.rank, c.peer) for c in i.sends] if puts else []
            end = max([end, *(self._cross(*link, bytes_, begin) for link in links)])
        if self.cores:
            heapq.heapreplace(self.cores, end)
        woken: list[tuple[int, int]] = []
        for c in i.receives:
            link = (c.peer, run.rank, c.channel)
            self.arrived[link].popleft()
            self.freed[link].append(end)
            woken += self.sleeping.pop(("slot", link), [])
        for c in i.sends:
            link = (run.rank, c.peer, c.channel)
            if self.sent[link] >= m.slots:
                self.freed[link].popleft()
            self.sent[link] += 1
            self.arrived[link].append(self._carry(run.rank, c, message_bytes, begin, end))
            woken += self.sleeping.pop(("message", link), [])
        self.done[run.key()].append(end)
        woken += self.sleeping.pop(("block", run.key()), [])
        if self.visit is not None:
            self.visit(Span(run.rank, run.block, run.index, run.tile, begin, end))
        run.free_us = end
        run.index += 1
        if run.index == len(run.instructions):
            run.index, run.tile = 0, run.tile + 1
        return end, woken

    def _carry(self, rank: int, c: Connection, bytes_: int, begin: float, end: float) -> float:
        """When the message is there."""
        over = self._cross(rank, c.peer, bytes_, begin)
        return max(over, end) + self.machine.link(rank, c.peer).latency_us

    def _cross(self, source: int, destination: int, bytes_: int, begin: float) -> float:
        """When so many bytes have gone. Out of a rank, into one, and through a port they go one after the other."""
        link = self.machine.link(source, destination)
        here, there = self.machine.node(source), self.machine.node(destination)
        roads: list[object] = [("out", source, here == there), ("in", destination, here == there)]
        if self.machine.ports and here != there:
            roads.append(("port", here, source % self.machine.ports))
        start = max([begin, *(self.busy[road] for road in roads)])
        over = start + link.gap_us + bytes_ / link.bytes_per_us
        for road in roads:
            self.busy[road] = over
        return over


def sizes_of(plan: Plan, group_bytes: int, machine: Machine) -> tuple[int, int, int]:
    """Bytes of a chunk and of a tile, and how many tiles."""
    per_group = plan.chunks_per_group
    chunk = group_bytes if per_group == 1 else (-(-group_bytes // per_group) + 15) // 16 * 16
    tile = plan.tile_in(machine.message_bytes(plan.protocol))
    return chunk, tile, max(1, -(-chunk // tile))


def cost_us(plan: Plan, group_bytes: int, machine: Machine) -> float:
    """How long the operation takes by the model. ``group_bytes``: of a rank's part (of the buffer where it has one)."""
    chunk, tile, tiles = sizes_of(plan, group_bytes, machine)
    few, more = _PACED_TILES
    if tiles <= more:
        return _Simulation(plan, machine, chunk, tile, tiles, None).run()
    first = _Simulation(plan, machine, chunk, tile, few, None).run()
    second = _Simulation(plan, machine, chunk, tile, more, None).run()
    return second + (tiles - more) * (second - first) / (more - few)


def timeline(plan: Plan, group_bytes: int, machine: Machine) -> list[Span]:
    """Every instruction of the operation on every tile, in the order in which the model runs them."""
    spans: list[Span] = []
    chunk, tile, tiles = sizes_of(plan, group_bytes, machine)
    _Simulation(plan, machine, chunk, tile, tiles, spans.append).run()
    return spans
