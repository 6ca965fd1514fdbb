"""What is wrong with a plan that the verifier refuses, seen by running it: evidence against the verdict "refused".

The interpreter knows nothing of the verifier. ``evidence`` runs the plan so that what the refusal claims must show, and
says what it saw; nothing, if all went well. Claims of structure (bounds, peers, lengths) are not run: such a plan means
nothing.
"""

import random
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ir.oracle import Case, assert_right, make_case
from starling import ir
from starling.ir.interpreter import Bytes, Counts, _BlockState, _Machine
from starling.ir.plan import REDUCING, Slice

MANY = 1 << 20  # slots: as good as any number
# Refusals that must show, whatever the plan. What is finished once too often, or reduced afterwards, may be read by
# nobody; behind a chunk that was written too short may lie what an earlier one left; a race may be between equal
# values: those are counted.
ALWAYS = {"deadlock", "uninitialised", "postcondition", "final_missing", "race", "same_order"}
SOMETIMES = {"final_once", "final_is_last", "input_overwritten", "held_length"}

_RACE = re.compile(
    r"rank (\d+), block \d+, instruction \d+: block (\d+) instruction (\d+) .*? and block (\d+) instruction (\d+) "
)


class Watched(_Machine):
    """Remembers what instructions read, and may hold one block before an instruction."""

    def __init__(self, plan: ir.Plan, count: int, garbage: int, inputs: list[npt.NDArray | None]) -> None:
        super().__init__(plan, Counts(plan, count), "int32", "sum", 1.0, MANY, 16)
        for rank, given in enumerate(inputs):
            for buffer in self.buffers[rank].values():
                buffer.memory[:] = garbage
            if given is not None:
                self.buffers[rank]["input"].memory[:] = given.view(np.uint8)
        self.read: dict[tuple[int, int, int, int], list[bytes]] = {}
        self.moved: set[tuple[int, int, int]] = set()
        # Where in memory each instruction has been, by whether it wrote there: first byte, and one behind the last.
        self.touched: dict[tuple[int, int, int], list[tuple[bool, int, int]]] = {}
        self._reads = False

    def _pieces(self, state: _BlockState, s: Slice, begin: int, lengths: list[int]) -> list[Bytes]:
        found = super()._pieces(state, s, begin, lengths)
        touched = self.touched.setdefault((state.rank, state.block, state.index), [])
        for piece in found:
            first = piece.__array_interface__["data"][0]
            touched.append((not self._reads, first, first + len(piece)))
        return found

    def conflict(self, a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
        """Whether both were at one byte of memory, one of them writing."""
        return any(
            (writes or wrote) and first < end and begin < last
            for writes, first, last in self.touched.get(a, ())
            for wrote, begin, end in self.touched.get(b, ())
        )

    def _read(self, state: _BlockState, s: Slice, begin: int, lengths: list[int]) -> Bytes:
        self._reads = True
        found = super()._read(state, s, begin, lengths)
        self._reads = False
        self.read.setdefault((state.rank, state.block, state.index, state.tile), []).append(found.tobytes())
        return found

    def _combine(self, state: _BlockState, i: ir.Instruction, begin: int, lengths: list[int]) -> None:
        super()._combine(state, i, begin, lengths)
        if state.tile == 0:
            self.moved.add((state.rank, state.block, state.index))

    def go(self, held: tuple[int, int, int] | None = None) -> None:
        """Every block as far as it can, but not beyond the first tile of the held instruction."""
        went_on = True
        while went_on:
            went_on = False
            for state in (s for rank in self.blocks for s in rank):
                while state.instructions and state.tile < self.tile_count:
                    if held == (state.rank, state.block, state.index) and state.tile == 0:
                        break
                    if not self.step(state):
                        break
                    went_on = True

    def outputs(self) -> list[bytes]:
        return [buffers["output"].memory.tobytes() for buffers in self.buffers]


def evidence(plan: ir.Plan, refusal: str, seed: int) -> tuple[str, bool, bool]:
    """The rule; whether it is one that can be seen; and whether it was."""
    found = re.search(r"\(rule (\w+)\)", refusal)
    rule = found[1] if found is not None else "tables"  # what no table of a plan can hold was not even judged
    if rule not in ALWAYS | SOMETIMES:
        return rule, False, False
    see = {
        "deadlock": _deadlock,
        "uninitialised": _uninitialised,
        "held_length": _held_length,
        "race": _race,
        "same_order": _same_order,
    }
    return rule, True, see.get(rule, _wrong)(plan, refusal, seed)


def deadlocks(plan: ir.Plan, slots: int, seed: int) -> bool:
    """Under every schedule that is tried, or under none; the count is such that no chunk is empty."""
    outcomes = set()
    for schedule in range(3):
        try:
            _run(plan, _wide(plan, _full(plan), seed), slots, seed + schedule)
            outcomes.add(False)
        except ir.DeadlockError:
            outcomes.add(True)
    assert len(outcomes) == 1, "whether it deadlocks depends on the schedule"
    return outcomes == {True}


def race_changes_results(plan: ir.Plan, refusal: str, seed: int) -> bool:
    """Whether the two orders of the race's instructions come to different outputs."""
    for count, first, second in _orders(plan, refusal):
        results = []
        for held in (first, second):
            machine = _watched(plan, count, seed)
            machine.go(held)
            machine.go()
            results.append(machine.outputs())
        if results[0] != results[1]:
            return True
    return False


def _deadlock(plan: ir.Plan, refusal: str, seed: int) -> bool:
    with_slots = re.search(r"even with (\d+) slots", refusal)
    if with_slots is None:
        return deadlocks(plan, MANY, seed)
    return deadlocks(plan, int(with_slots[1]), seed) and not deadlocks(plan, MANY, seed)


def _uninitialised(plan: ir.Plan, refusal: str, seed: int) -> bool:
    return _reads_garbage(plan, _full(plan), seed)


def _held_length(plan: ir.Plan, refusal: str, seed: int) -> bool:
    """For some count that leaves later chunks of a part shorter than earlier ones."""
    counts = (4 * k + 1 for k in range(plan.chunks_per_group))
    return any(_reads_garbage(plan, count, seed) for count in counts)


def _reads_garbage(plan: ir.Plan, count: int, seed: int) -> bool:
    """Some instruction reads what was in memory before the operation."""
    logs = []
    for garbage in (0xA5, 0x3C):
        machine = _watched(plan, count, seed, garbage)
        machine.go()
        logs.append(machine.read)
    return logs[0] != logs[1]


def _wrong(plan: ir.Plan, refusal: str, seed: int) -> bool:
    """Under every schedule, for one of the operations that tell a sum that is right from one that is not finished, or
    was multiplied otherwise than once."""
    for op in ("sum", "avg", "premul_sum") if plan.collective in REDUCING else ("sum",):
        verdicts = set()
        for schedule in range(2):
            case = _wide(plan, _full(plan), seed, op)
            try:
                assert_right(case, _run(plan, case, MANY, seed + schedule))
                verdicts.add(True)
            except AssertionError:
                verdicts.add(False)
        assert len(verdicts) == 1, "the result depends on the schedule"
        if verdicts == {False}:
            return True
    return False


def _same_order(plan: ir.Plan, refusal: str, seed: int) -> bool:
    """Ranks come to different bits. Two operands in another order do so only if both are NaN: the first one's bits
    stay."""
    numbers = np.random.default_rng(seed)
    for op in ("sum", "max"):
        case = make_case(plan, 8 * _full(plan), "float32", op, seed)
        for rank, given in enumerate(case.inputs):
            assert given is not None
            if op == "max":
                given.view(np.uint32)[:] = 0x7FC00001 + rank
            else:
                given[:] = numbers.standard_normal(len(given), np.float32)
        outputs = {values.tobytes() for values in _run(plan, case, MANY, seed) if values is not None}
        if len(outputs) > 1:
            return True
    return False


def _race(plan: ir.Plan, refusal: str, seed: int) -> bool:
    """The two instructions touch the same memory, and each can come before the other. Nothing but messages and
    dependencies holds a block here, so what is enabled stays so, and holding one block alone decides it."""
    return any(True for _ in _orders(plan, refusal))


def _orders(plan: ir.Plan, refusal: str) -> Iterator[tuple[int, tuple[int, int, int], tuple[int, int, int]]]:
    """Counts for which both orders occur, and the two instructions."""
    found = _RACE.search(refusal)
    assert found is not None, refusal
    rank, *numbers = map(int, found.groups())
    first, second = (rank, numbers[0], numbers[1]), (rank, numbers[2], numbers[3])
    # Some counts leave the last chunks of a part empty, and instructions that have nothing to do wait for nothing.
    for count in sorted({_full(plan), *(4 * k + 1 for k in range(plan.chunks_per_group))}, reverse=True):
        both = True
        for held, other in ((first, second), (second, first)):
            machine = _watched(plan, count, 1)
            machine.go(held)
            both = both and other in machine.moved and held not in machine.moved
            machine.go()
            both = both and held in machine.moved and machine.conflict(held, other)
        if both:
            yield count, first, second


def _full(plan: ir.Plan) -> int:
    """No chunk is empty, and each goes in two tiles."""
    return 8 * plan.chunks_per_group


def _wide(plan: ir.Plan, count: int, seed: int, op: str = "sum") -> Case:
    """Numbers so large that two sums hardly ever agree by chance."""
    case = make_case(plan, count, "int32", op, seed)
    numbers = np.random.default_rng(seed)
    for given in case.inputs:
        if given is not None:
            given[:] = numbers.integers(-(2**24), 2**24, len(given))
    return case


def _watched(plan: ir.Plan, count: int, seed: int, garbage: int = 0xA5) -> Watched:
    return Watched(plan, count, garbage, _wide(plan, count, seed).inputs)


def _run(plan: ir.Plan, case: Case, slots: int, schedule: int) -> list[npt.NDArray | None]:
    return ir.run(
        plan,
        case.inputs,
        counts=case.counts,  # type: ignore[arg-type]
        data_type=case.data_type,
        reduce_op=case.reduce_op,
        scalar=case.scalar,
        slots=slots,
        tile_bytes=16,
        schedule=random.Random(schedule),
    )
