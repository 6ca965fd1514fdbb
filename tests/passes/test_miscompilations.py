"""Goal: mistakes that other compilers of this kind have made, or programs get wrong, are refused or compiled right.

Method: one test each: the program, or the plan, that shows the mistake; what is compiled is proved and interpreted
under random schedules.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
from starling.plans import program

from ir.oracle import assert_right, make_case
from ir.witness import deadlocks
from starling import Communicator, errors, ir, lang
from starling.lang import AllReduce, AllToAll, Collective, Program, Value, leaf
from starling.launch import run_threads
from starling.passes import CompileError, run_passes


def assert_runs(plan: ir.Plan, count: int = 53) -> None:
    """Right for every schedule that is tried, with as few slots as the verifier says."""
    slots = ir.verify(plan)
    for seed in range(12):
        case = make_case(plan, count, "int32", "sum", seed)
        outputs = ir.run(
            plan,
            case.inputs,
            counts=count,
            data_type="int32",
            slots=slots,
            tile_bytes=16,
            schedule=random.Random(seed),
        )
        assert_right(case, outputs)


def instructions(plan: ir.Plan, rank: int) -> list[ir.Instruction]:
    return [i for block in plan.ranks[rank].blocks for i in block.instructions]


def test_interleaved_replication_with_mixed_counts() -> None:
    """Pieces of slices of different counts overlap across instances: the dependencies must see it."""
    made = Program("mixed", AllReduce(2, 4, in_place=True))
    with made.parallelize(2):
        c = made.chunk(1, "input", 0, 4)
        made.chunk(0, "input", 0, 4).reduce(c)
    with made.parallelize(4):
        for first in (0, 3):
            made.chunk(0, "input", first).copy(1, "input", first)
        made.chunk(0, "input", 1, 2).copy(1, "input", 1)
    for policy in ("channels", "connections"):
        plan = made.compile(policy=policy)
        assert any(i.after for i in instructions(plan, 0))
        assert_runs(plan)
    for instances in (2, 3):
        assert_runs(program("all_reduce", "hierarchical", 4, instances=instances, local=2).compile())


def test_the_local_destination_of_a_fused_instruction_is_the_rank_s_own() -> None:
    """Every rank has another amount of scratch, and leaves what it passes on in its own."""
    made = Program("offsets", AllReduce(3, 1))
    c = made.chunk(0, "input", 0).copy(1, "scratch", 5).copy(2, "scratch", 1)
    c = made.chunk(2, "input", 0).copy(2, "scratch", 0).reduce(c)
    c = made.chunk(1, "input", 0).copy(1, "scratch", 2).reduce(c)
    for rank in range(3):
        c.copy(rank, "output", 0)
    for fusion in (True, False):
        assert_runs(made.compile(fusion=fusion))
    # Sums that the program leaves in inputs lie behind each rank's own scratch.
    made = Program("behind", AllReduce(3, 1))
    for rank in range(3):
        for index in range(2 * rank):
            made.chunk(rank, "input", 0).copy(rank, "scratch", index)
    s = made.chunk(1, "input", 0).reduce(made.chunk(0, "input", 0))
    s = made.chunk(2, "input", 0).reduce(s)
    for rank in (0, 1):
        s = s.copy(rank, "input", 0)
    for rank in range(3):
        made.chunk(rank, "input", 0).copy(rank, "output", 0)
    for fusion in (True, False):
        assert_runs(made.compile(fusion=fusion))


class Bounce(Collective):
    """Rank 0's two chunks, in their order, on rank 2."""

    def expected(self, rank: int, index: int) -> Value | None:
        return leaf(0, index) if rank == 2 else None


def test_rcs_compares_slices_not_places() -> None:
    """What is received in one place and sent from another with the same index is not passed on."""
    made = Program("places", Bounce(3, 2))
    made.chunk(0, "input", 0).copy(1, "output", 0)
    made.chunk(0, "input", 1).copy(1, "scratch", 0)
    made.chunk(1, "scratch", 0).copy(2, "output", 1)
    made.chunk(1, "output", 0).copy(2, "output", 0)
    plan = made.compile()
    values = [np.arange(40, dtype=np.int32) + 100 * rank for rank in range(3)]
    outputs = ir.run(plan, values, counts=40, data_type="int32", tile_bytes=16)
    np.testing.assert_array_equal(outputs[2], values[0])


def test_rcs_of_a_part_of_what_was_received_is_no_rcs() -> None:
    made = Program("part", Bounce(3, 2))
    c = made.chunk(0, "input", 0, 2).copy(1, "scratch", 0)
    c[1].copy(2, "output", 1)
    c[0].copy(2, "output", 0)
    plan = made.compile()
    assert all(not (i.receives and i.sends) for i in instructions(plan, 1))


def test_rcs_of_what_was_overwritten_since_is_no_rcs() -> None:
    """The slice that is sent is where the message was put, but one of its chunks is another by then."""
    made = Program("since", Bounce(3, 2))
    made.chunk(0, "input", 0).copy(1, "output", 0)
    made.chunk(0, "input", 0, 2).copy(1, "scratch", 0)
    made.chunk(1, "input", 1).copy(1, "scratch", 1)
    made.chunk(1, "scratch", 0, 2).copy(2, "scratch", 0)
    made.chunk(0, "input", 0, 2).copy(2, "output", 0)
    made.chunk(2, "scratch", 1).copy(2, "scratch", 5)
    values = [np.arange(40, dtype=np.int32) + 100 * rank for rank in range(3)]
    plan = made.compile()
    assert all(not (i.receives and i.sends) for i in instructions(plan, 1))
    np.testing.assert_array_equal(
        ir.run(plan, values, counts=40, data_type="int32", tile_bytes=16)[2], values[0]
    )


def test_rrs_keeps_a_store_that_is_only_partly_overwritten() -> None:
    """The first chunk of a sum is overwritten later, the second one is the result: the sum must be stored."""
    made = Program("partly", AllReduce(3, 2))
    c = made.chunk(0, "input", 0, 2)
    s = made.chunk(1, "input", 0, 2).copy(1, "output", 0).reduce(c)
    s = made.chunk(2, "input", 0, 2).copy(2, "output", 0).reduce(s)
    s[0].copy(1, "output", 0)
    s[1].copy(1, "output", 1)
    s.copy(0, "output", 0)
    assert_runs(made.compile())
    kept = Program("kept", Bounce(3, 2))
    c = kept.chunk(0, "input", 0, 2).copy(1, "scratch", 0)
    c.copy(2, "output", 0)
    kept.chunk(1, "input", 0).copy(1, "scratch", 0)  # one chunk of two is overwritten ...
    kept.chunk(1, "scratch", 1).copy(2, "output", 1)  # ... and the other one read
    passed = [i for i in instructions(kept.compile(), 1) if i.receives and i.sends]
    assert [i.opcode.name for i in passed] == ["recv_copy_send"]


def test_operands_of_rrc_and_rrs_are_the_receiver_s() -> None:
    """The local operand lies at another index than what the sender sends."""
    made = Program("receiver", AllReduce(2, 1))
    made.chunk(1, "input", 0).copy(1, "scratch", 3)
    c = made.chunk(0, "input", 0).copy(0, "scratch", 7)
    s = made.chunk(1, "scratch", 3).reduce(c)
    s.copy(1, "output", 0)
    s.copy(0, "output", 0)
    plan = made.compile()
    assert_runs(plan)
    reductions = [i for i in instructions(plan, 1) if i.opcode.reduces]
    assert reductions and all(i.source is not None for i in reductions)


def test_in_place_all_to_all_that_overwrites_what_it_has_to_send() -> None:
    made = Program("aliased", AllToAll(2, in_place=True))
    made.chunk(0, "input", 1).copy(1, "output", 0)
    made.chunk(1, "input", 0).copy(0, "output", 1)
    with pytest.raises(lang.PostconditionError, match=r"rank 0 output\[1\] holds rank 0 input\[1\]"):
        made.compile()
    right = Program("aside", AllToAll(2, in_place=True))
    c = right.chunk(1, "input", 0).copy(1, "scratch", 0)
    right.chunk(0, "input", 1).copy(1, "output", 0)
    c.copy(0, "output", 1)
    assert_runs(right.compile())
    # The plan that does it anyway is refused too.
    text = ir.to_text(right.compile()).replace("copy input[0] -> scratch[0]", "copy input[1] -> scratch[0]")
    assert text != ir.to_text(right.compile())
    with pytest.raises(errors.InvalidArgumentError, match="should hold"):
        ir.verify(ir.parse(text))


class Upward(Collective):
    """The root's chunk, on rank 1; in place the root's input is no buffer of rank 1's."""

    kind = "broadcast"

    def expected(self, rank: int, index: int) -> Value:
        return leaf(0, index)

    def chunks_per_group(self) -> int:
        return self.chunks

    def has(self, buffer: str, rank: int) -> bool:
        return buffer == "output" or rank == 0


def test_copy_maps_the_buffer_by_the_rank_that_owns_it() -> None:
    """In place, part r of all_gather's output is rank r's input: an index means another place on each rank."""
    made = Program("mapped", lang.AllGather(3, in_place=True))
    for rank in range(3):
        for peer in range(3):
            if peer != rank:
                made.chunk(rank, "input", 0).copy(peer, "output", rank)
    assert_runs(made.compile())
    scattered = Program("scattered", lang.ReduceScatter(3, in_place=True))
    for rank in range(3):
        c = scattered.chunk(rank, "output", 0)
        for peer in range(3):
            if peer != rank:
                c = c.reduce(scattered.chunk(peer, "input", rank).copy(rank, "scratch", peer))
    assert_runs(scattered.compile())
    away = Program("away", lang.ReduceScatter(3, in_place=True))
    for rank in range(3):  # its neighbour adds up its part, and puts it where that rank has its output
        helper = (rank + 1) % 3
        c = away.chunk(helper, "input", rank).copy(helper, "scratch", rank)
        for peer in range(3):
            if peer != helper:
                c = c.reduce(away.chunk(peer, "input", rank))
        c.copy(rank, "output", 0)
    assert_runs(away.compile())
    plan = Program("rooted", Upward(2))
    plan.chunk(0, "input", 0).copy(1, "output", 0)
    plan.chunk(0, "input", 0).copy(0, "output", 0)
    with pytest.raises(lang.ProgramError, match="rank 1 of Upward over 2 ranks has no input"):
        plan.chunk(0, "output", 0).copy(1, "input", 0)
    assert_runs(plan.compile())


def test_two_blocks_on_one_connection() -> None:
    made = Program("two", lang.AllGather(2, 2))
    for index in range(2):
        made.chunk(0, "input", index).copy(1, "output", index, sendtb=index, recvtb=0)
    for rank in range(2):
        made.chunk(rank, "input", 0, 2).copy(rank, "output", rank * 2)
    made.chunk(1, "input", 0, 2).copy(0, "output", 2)
    with pytest.raises(lang.ProgramError, match="one block at each end") as caught:
        made.compile()
    assert caught.value.place.file == __file__
    made = Program("apart", lang.AllGather(2, 2))
    for index in range(2):
        made.chunk(0, "input", index).copy(1, "output", index, ch=index, sendtb=index, recvtb=index)
    for rank in range(2):
        made.chunk(rank, "input", 0, 2).copy(rank, "output", rank * 2)
    made.chunk(1, "input", 0, 2).copy(0, "output", 2, sendtb=0, recvtb=0)
    assert_runs(made.compile())


def crossing(messages: int, channels: int = 1) -> Program:
    """Both ranks send everything before either receives: the receives wait for a last message."""
    made = Program("crossed", lang.AllGather(2, messages))
    first = [made.chunk(rank, "input", 0, messages) for rank in range(2)]
    for index in range(messages):
        for rank in range(2):
            first[rank][index].copy(1 - rank, "output", rank * messages + index, ch=index % channels)
    for rank in range(2):
        first[rank].copy(rank, "output", rank * messages)
    return made


def test_nine_crossed_sends_are_ordered_for_the_slots_there_are() -> None:
    assert ir.verify(crossing(9).compile()) <= 2
    assert ir.verify(crossing(9, 3).compile(slots=1)) == 1


def crossed(messages: int) -> ir.Plan:
    """The same with the order taken literally: each rank's sends, then its receives."""
    plan = crossing(messages).compile()
    for rank in plan.ranks:
        for block in rank.blocks:
            steps = [replace(i, after=()) for i in block.instructions]
            block.instructions = [i for i in steps if i.sends] + [i for i in steps if not i.sends]
    return plan


def test_a_plan_with_nine_crossed_sends_over_eight_slots_is_refused() -> None:
    plan = crossed(9)
    assert deadlocks(plan, 8, seed=1) and not deadlocks(plan, 9, seed=1)
    with pytest.raises(errors.InvalidArgumentError, match="even with 8 slots"):
        ir.verify(plan)


@pytest.mark.parametrize("needed", [2, 3, 8])
def test_a_plan_runs_with_the_slots_that_it_needs_and_deadlocks_with_one_less(needed: int) -> None:
    plans = [crossed(needed)]
    if needed == 2:
        plans.append(program("all_reduce", "ring", 4).compile(slots=2))
    for plan in plans:
        assert ir.verify(plan) == needed
        assert_runs(plan)
        assert deadlocks(plan, needed - 1, seed=1)


def add_and_run(comm: Communicator) -> None:
    """What needs more slots than lanes have is refused when it comes; what needs as many as they have runs."""
    assert ir.lane_slots() == 2
    for plan in (crossed(3), crossing(9).compile(slots=8)):
        slots = ir.verify(plan)
        words = (
            f"needs {slots} slots on a connection to finish; lanes have 2; .*compile its program with slots=2"
        )
        for sizes in (None, (1, 4096)):
            with pytest.raises(errors.UnsupportedError, match=words):
                comm.add_plan(plan, sizes=sizes)
    for name, plan in (("literally", crossed(2)), ("ordered", crossing(9).compile())):
        assert ir.verify(plan) == 2
        plan.name = name
        comm.add_plan(plan)
        for count in (7, 100_000):
            data = np.arange(count, dtype=np.int32) + comm.rank * 1_000_000
            out = np.zeros(2 * count, np.int32)
            comm.run_plan(name, data, out, lane=f"{name} {count}").wait(100)
            wanted = [np.arange(count, dtype=np.int32) + rank * 1_000_000 for rank in range(2)]
            np.testing.assert_array_equal(out, np.concatenate(wanted))


def test_a_communicator_takes_no_plan_that_needs_more_slots_than_its_lanes_have() -> None:
    run_threads(2, add_and_run, timeout=200)


def test_a_program_that_no_order_runs_with_the_slots_says_so() -> None:
    """With one slot the ring turns only where nothing is fused; without any, nothing does."""
    made = program("all_reduce", "ring", 4)
    plan = made.compile(slots=1, fusion=False)
    assert ir.verify(plan) == 1
    with pytest.raises(CompileError, match=r"no order with 0 slots: rank \d"):
        run_passes(made, slots=0)


def test_a_cycle_across_ranks_is_refused() -> None:
    """Every rank receives before it sends."""
    plan = program("all_gather", "ring", 3).compile()
    for rank in plan.ranks:
        block = rank.blocks[0]
        block.instructions.sort(key=lambda i: bool(i.sends) and not i.receives)
    with pytest.raises(errors.InvalidArgumentError, match="waits for ever, with any number of slots"):
        ir.verify(plan)


def test_a_wait_of_a_shorter_chunk_does_not_stand_for_a_longer_one() -> None:
    """An instruction whose tile is empty waits for nothing: chunk 1 is empty when the count is small."""
    made = Program("short", AllReduce(2, 2, in_place=True))
    for index in (1, 0):
        c = made.chunk(1, "input", index)
        s = made.chunk(0, "input", index).reduce(c, ch=0)
        s.copy(1, "input", index, ch=1)
    plan = made.compile()
    ir.verify(plan)
    assert sum(len(i.after) for i in instructions(plan, 0)) >= 2
    for count in (1, 3, 5, 40):
        assert_runs(plan, count)


@pytest.mark.parametrize("fusion", [True, False])
def test_scratch_used_again_for_a_shorter_chunk_and_again_for_a_longer_one(fusion: bool) -> None:
    """Who used it in between stands for nobody when the count is small, and its own chunk empty."""
    made = Program("again", lang.AllGather(2, 2))
    for channel, index in enumerate((0, 1, 0)):
        made.chunk(1, "input", index).copy(0, "scratch", 0, ch=channel)
        made.chunk(0, "scratch", 0).copy(0, "output", 2 + index)
    made.chunk(0, "input", 0, 2).copy(0, "output", 0)
    made.chunk(0, "input", 0, 2).copy(1, "output", 0)
    made.chunk(1, "input", 0, 2).copy(1, "output", 2)
    plan = made.compile(fusion=fusion)
    for count in (1, 5, 40):
        assert_runs(plan, count)


class Along(Collective):
    """Rank 0's two chunks, on rank 3."""

    def expected(self, rank: int, index: int) -> Value | None:
        return leaf(0, index) if rank == 3 else None


def test_a_whole_fused_chain_shares_its_channel() -> None:
    """The last hop says one when the hops before it are fused already."""
    made = Program("chain", Along(4, 2))
    for index, channels in enumerate(((None, None, 1), (1, 1, 1))):
        c = made.chunk(0, "input", index)
        for rank, ch in enumerate(channels, start=1):
            c = c.copy(rank, "output", index, ch=ch)
    plan = made.compile()
    for rank in (1, 2):
        fused = [i for i in instructions(plan, rank) if i.receives and i.sends]
        assert len(fused) == 2 and all(i.receives[0].channel == i.sends[0].channel for i in fused)
    values = [np.arange(40, dtype=np.int32) + 100 * rank for rank in range(4)]
    outputs = ir.run(plan, values, counts=40, data_type="int32", tile_bytes=16, slots=ir.verify(plan))
    np.testing.assert_array_equal(outputs[3], values[0])


def test_fans_of_two_channels_in_one_block() -> None:
    """Each channel's fan fits by itself; one block, and one channel for both, has no table for the two."""
    made = Program("fans", lang.Broadcast(4, 2))
    for channel, peers in enumerate(((1, 2), (2, 3))):
        for peer in peers:
            made.chunk(0, "input", channel).copy(peer, "output", channel, ch=channel)
    made.chunk(1, "output", 0).copy(3, "output", 0)
    made.chunk(2, "output", 1).copy(1, "output", 1)
    made.chunk(0, "input", 0, 2).copy(0, "output", 0)
    assert any(len(i.sends) == 2 for i in instructions(made.compile(), 0))
    assert_runs(made.compile(blocks=1))
