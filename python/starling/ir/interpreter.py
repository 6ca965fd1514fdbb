"""The definition of what a plan does: all ranks of it, on numpy arrays, under any schedule.

It is slow and obvious on purpose. Where the C++ interpreter (src/device/interpreter.h) disagrees, one is wrong.
Memory is bytes, cut as src/wire/operation.h cuts it: a buffer into groups, groups into chunks rounded up to 16
bytes, a chunk into tiles. A message holds one tile of each chunk of the instruction's slice.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from starling.ir import element
from starling.ir.plan import Connection, Instruction, Plan, Slice

Bytes = npt.NDArray[np.uint8]
Table = Sequence[int] | Sequence[Sequence[int]]


class DeadlockError(RuntimeError):
    """No block can go on; the message says what each waits for."""


@dataclass
class _Buffer:
    """One buffer of one rank: a view of its memory, and where each group lies in it."""

    memory: Bytes
    groups: list[tuple[int, int]]  # offset and length in bytes
    chunks_per_group: int

    def chunk_begin(self, chunk: int) -> int:
        """First byte of a chunk; the last chunks of a group take what is left, or nothing."""
        group, inside = divmod(chunk, self.chunks_per_group)
        if group == len(self.groups):
            return sum(self.groups[-1])
        offset, length = self.groups[group]
        return offset + min(inside * _chunk_bytes(length, self.chunks_per_group), length)

    def chunk_length(self, chunk: int) -> int:
        if (chunk + 1) % self.chunks_per_group == 0:
            return sum(self.groups[chunk // self.chunks_per_group]) - self.chunk_begin(chunk)
        return self.chunk_begin(chunk + 1) - self.chunk_begin(chunk)


def _chunk_bytes(group_bytes: int, chunks_per_group: int) -> int:
    return (-(-group_bytes // chunks_per_group) + 15) // 16 * 16


@dataclass
class _BlockState:
    rank: int
    block: int
    instructions: list[Instruction]
    tile: int = 0
    index: int = 0

    def finished(self, tile: int, instruction: int) -> bool:
        return (self.tile, self.index) > (tile, instruction)


@dataclass(frozen=True)
class _Lent:
    """Where a message that is put is wanted: told when that block begins the tile."""

    rank: int
    block: int
    destination: Slice


@dataclass
class Counts:
    """Elements of every part: ``of(rank, buffer)`` lists the lengths of a buffer's groups."""

    plan: Plan
    table: int | Table

    def of(self, rank: int, buffer: str) -> list[int]:
        groups = self.plan.groups(buffer)
        if isinstance(self.table, int):
            return [self.table] * groups
        if self.plan.collective == "all_to_all":  # table[source][destination]
            rows: list[list[int]] = [list(row) for row in self.table]  # type: ignore[arg-type]
            return rows[rank] if buffer == "input" else [row[rank] for row in rows]
        parts = [int(count) for count in self.table]  # type: ignore[arg-type]
        return parts if groups > 1 or self.plan.rank_count == 1 else [parts[rank]]


@dataclass
class _Machine:
    plan: Plan
    counts: Counts
    data_type: str
    reduce_op: str
    scalar: float
    slots: int
    tile_bytes: int
    buffers: list[dict[str, _Buffer]] = field(default_factory=list)
    messages: dict[tuple[int, int, int], deque[Bytes]] = field(default_factory=dict)
    blocks: list[list[_BlockState]] = field(default_factory=list)
    tile_count: int = 0
    addresses: bool = False  # messages are
    lent: dict[tuple[int, int, int, Connection], _Lent] = field(default_factory=dict)  # by rank, block, index

    def __post_init__(self) -> None:
        for rank in range(self.plan.rank_count):
            self.buffers.append(self._allocate(rank))
            blocks = self.plan.ranks[rank].blocks
            self.blocks.append([_BlockState(rank, b, block.instructions) for b, block in enumerate(blocks)])
        largest = max(
            length for rank in self.buffers for buffer in rank.values() for _, length in buffer.groups
        )
        self.tile_count = -(-_chunk_bytes(largest, self.plan.chunks_per_group) // self.tile_bytes)
        # A factor belongs to who reads the input: premul_sum is never pulled or put (src/comm/lowering.cc).
        self.addresses = self.plan.protocol == "pull" and self.reduce_op != "premul_sum"
        if self.addresses:
            self._find_lent()

    def _find_lent(self) -> None:
        """The n-th message of a connection that is put in a tile is the n-th that its receiver wants put."""
        places: dict[tuple[int, int, int], deque[_Lent]] = {}
        states = [state for rank in self.blocks for state in rank]
        for s in states:
            for i in s.instructions:
                for c in i.receives:
                    if i.put and not i.sends and i.destination is not None:
                        link = places.setdefault((c.peer, s.rank, c.channel), deque())
                        link.append(_Lent(s.rank, s.block, i.destination))
        for s in states:
            for index, i in enumerate(s.instructions):
                for c in i.sends if i.put else ():
                    self.lent[s.rank, s.block, index, c] = places[s.rank, c.peer, c.channel].popleft()

    def _allocate(self, rank: int) -> dict[str, _Buffer]:
        """What nobody wrote yet holds garbage. In place, input and output are one memory."""
        width = element.DATA_TYPES[self.data_type].itemsize
        groups: dict[str, list[tuple[int, int]]] = {}
        for buffer in ("input", "output"):
            lengths = [count * width for count in self.counts.of(rank, buffer)]
            groups[buffer] = [(sum(lengths[:g]), length) for g, length in enumerate(lengths)]
        chunks = self.plan.chunks_per_group
        sizes = {buffer: sum(length for _, length in extents) for buffer, extents in groups.items()}
        memory = {buffer: np.full(size, 0xA5, np.uint8) for buffer, size in sizes.items()}
        if self.plan.in_place:
            small, large = sorted(
                ("input", "output"), key=lambda buffer: sizes[buffer] * 2 + (buffer == "output")
            )
            first = 0
            # The one part is the rank's own; of a collective of one's own, the two begin together.
            if len(groups[large]) > len(groups[small]) and self.plan.collective != "custom":
                first = groups[large][rank][0]
            memory[small] = memory[large][first : first + sizes[small]]
        buffers = {buffer: _Buffer(memory[buffer], groups[buffer], chunks) for buffer in groups}
        largest = max(length for extents in groups.values() for _, length in extents)
        chunk_bytes = largest if chunks == 1 else _chunk_bytes(largest, chunks)
        scratch_chunks = max(self.plan.ranks[rank].scratch_chunks, 1)
        scratch = np.full(chunk_bytes * scratch_chunks, 0xA5, np.uint8)
        buffers["scratch"] = _Buffer(
            scratch, [(c * chunk_bytes, chunk_bytes) for c in range(scratch_chunks)], 1
        )
        return buffers

    def step(self, state: _BlockState) -> bool:
        """Runs the block's next instruction on its tile; False, without any effect, if it would have to wait."""
        i = state.instructions[state.index]
        begin = state.tile * self.tile_bytes
        sizes = self.buffers[state.rank][i.size.buffer]
        chunks = range(i.size.chunk, i.size.chunk + i.size.chunks)
        lengths = [max(0, min(sizes.chunk_length(c) - begin, self.tile_bytes)) for c in chunks]
        if i.opcode.name == "nop" or any(lengths):
            if self.waits_for(state, i):
                return False
            if i.opcode.name != "nop":
                self._combine(state, i, begin, lengths)
        state.index += 1
        if state.index == len(state.instructions):
            state.tile, state.index = state.tile + 1, 0
        return True

    def waits_for(self, state: _BlockState, i: Instruction) -> str:
        """What the instruction waits for; empty if it can run."""
        for c in i.receives:
            if not self._fifo(c.peer, state.rank, c):
                return f"a message from rank {c.peer} on channel {c.channel}"
        for c in i.sends:
            if len(self._fifo(state.rank, c.peer, c)) >= self.slots:
                return f"a slot to rank {c.peer} on channel {c.channel}"
            lent = self.lent.get((state.rank, state.block, state.index, c))
            if lent is not None and self.blocks[lent.rank][lent.block].tile < state.tile:
                return f"the place that block {lent.block} of rank {lent.rank} tells when it begins the tile"
        for d in i.after:
            if not self.blocks[state.rank][d.block].finished(state.tile, d.instruction):
                return f"instruction {d.instruction} of block {d.block}"
        return ""

    def _fifo(self, source: int, destination: int, c: Connection) -> deque[Bytes]:
        return self.messages.setdefault((source, destination, c.channel), deque())

    def _combine(self, state: _BlockState, i: Instruction, begin: int, lengths: list[int]) -> None:
        """destinations = combine(sources): received operands before the local one, the local one, the rest."""
        operands = [(self._received(state, c, sum(lengths)), False) for c in i.receives]
        if self.addresses and i.put and not i.sends:
            return  # it lies there
        if i.source is not None:
            scaled = i.source.buffer == "input" and self.reduce_op == "premul_sum"
            operands.insert(i.local_position, (self._read(state, i.source, begin, lengths), scaled))
        if i.opcode.reduces_into:
            assert i.destination is not None
            operands.insert(0, (self._read(state, i.destination, begin, lengths), False))
        divisor = self.plan.rank_count if i.final and self.reduce_op == "avg" else 1
        result = self._reduced(operands, divisor)
        if i.destination is not None:
            first = 0
            for view in self._pieces(state, i.destination, begin, lengths):
                view[:] = result[first : first + len(view)]
                first += len(view)
        for c in i.sends:
            self._fifo(state.rank, c.peer, c).append(self._message(state, i, c, begin, result))

    def _received(self, state: _BlockState, c: Connection, length: int) -> Bytes:
        message = self._fifo(c.peer, state.rank, c).popleft().copy()
        if len(message) != length:
            raise ValueError(
                f"rank {state.rank} block {state.block} instruction {state.index} receives {length} bytes where rank "
                f"{c.peer} sends {len(message)}"
            )
        return message

    def _message(self, state: _BlockState, i: Instruction, c: Connection, begin: int, result: Bytes) -> Bytes:
        if not self.addresses:
            return result.copy()
        if i.put:
            lent = self.lent[state.rank, state.block, state.index, c]
            place = self._pieces(self.blocks[lent.rank][lent.block], lent.destination, begin, [len(result)])[
                0
            ]
            place[:] = result
            return place
        named = i.destination or i.source  # a view of the sender's memory, read when it is received
        assert named is not None
        return self._pieces(state, named, begin, [len(result)])[0]

    def _pieces(self, state: _BlockState, s: Slice, begin: int, lengths: list[int]) -> list[Bytes]:
        """Of each chunk of the slice the part that lies in the tile."""
        buffer = self.buffers[state.rank][s.buffer]
        starts = [buffer.chunk_begin(s.chunk + k) + begin for k in range(s.chunks)]
        return [buffer.memory[at : at + length] for at, length in zip(starts, lengths, strict=True)]

    def _read(self, state: _BlockState, s: Slice, begin: int, lengths: list[int]) -> Bytes:
        return np.concatenate(self._pieces(state, s, begin, lengths))

    def _reduced(self, operands: list[tuple[Bytes, bool]], divisor: int) -> Bytes:
        if len(operands) == 1 and not operands[0][1] and divisor == 1:
            return operands[0][0]  # bytes are moved, not looked at
        values = None
        for stored, scaled in operands:
            value = element.load(self.data_type, stored.view(element.DATA_TYPES[self.data_type]))
            if scaled:
                value = element.scale(self.data_type, value, self.scalar)
            if values is None:
                values = value
            else:
                values = element.reduce(self.data_type, self.reduce_op, values, value)
        assert values is not None
        if divisor != 1:
            values = element.divide(self.data_type, values, divisor)
        return element.store(self.data_type, values).view(np.uint8)

    def run(self, choose: random.Random) -> None:
        """Picks a block at random, again and again, until all are done."""
        unfinished = [s for rank in self.blocks for s in rank if s.instructions and self.tile_count > 0]
        while unfinished:
            candidates = list(unfinished)
            while candidates:
                state = candidates.pop(choose.randrange(len(candidates)))
                # A run of random length, so that some schedules are bursts and others alternate.
                burst = choose.choice((1, 1, 4, 1000))
                if self._advance(state, burst):
                    break
            else:
                raise DeadlockError(self._story(unfinished))
            unfinished = [s for s in unfinished if s.tile < self.tile_count]

    def _advance(self, state: _BlockState, most: int) -> bool:
        for steps in range(most):
            if state.tile >= self.tile_count or not self.step(state):
                return steps > 0
        return True

    def _story(self, stuck: list[_BlockState]) -> str:
        waits = (
            f"rank {s.rank} block {s.block} instruction {s.index} ({s.instructions[s.index].opcode.name}, tile "
            f"{s.tile}) waits for {self.waits_for(s, s.instructions[s.index])}"
            for s in stuck
        )
        return "no block can go on: " + "; ".join(waits)


def run(
    plan: Plan,
    inputs: Sequence[npt.NDArray | None],
    *,
    counts: int | Table,
    data_type: str,
    reduce_op: str = "sum",
    scalar: float = 1.0,
    slots: int = 2,
    tile_bytes: int = 1 << 20,
    schedule: random.Random | None = None,
) -> list[npt.NDArray | None]:
    """Runs all ranks of a plan and gives each rank's output, None where a rank has none.

    ``counts`` is the number of elements of a part (of the whole buffer where it has one part); for the v-variants
    a list by rank, for all_to_all a table ``[source][destination]``. ``inputs[rank]`` holds the rank's parts one
    after the other, stored as element.DATA_TYPES says; it is left as it is. ``tile_bytes`` must be a multiple of
    16; a plan may ask for smaller tiles. Raises DeadlockError if no block can go on with so many slots.
    """
    if tile_bytes <= 0 or tile_bytes % 16:
        raise ValueError(f"tile_bytes is {tile_bytes}; use a positive multiple of 16")
    if plan.tile_bytes:
        tile_bytes = min(tile_bytes, plan.tile_bytes)
    if not element.takes(data_type, reduce_op):
        raise ValueError(f"{reduce_op} of {data_type} has no meaning")
    machine = _Machine(plan, Counts(plan, counts), data_type, reduce_op, scalar, slots, tile_bytes)
    for rank, given in enumerate(inputs):
        if plan.exists("input", rank):
            if given is None:
                raise ValueError(f"rank {rank} of {plan.collective} needs an input")
            machine.buffers[rank]["input"].memory[:] = np.ascontiguousarray(given).view(np.uint8)
    machine.run(schedule or random.Random(0))
    dtype = element.DATA_TYPES[data_type]
    return [
        buffers["output"].memory.view(dtype).copy() if plan.exists("output", rank) else None
        for rank, buffers in enumerate(machine.buffers)
    ]
