"""Goal: compiled programs run on the cpu machine, while they are preempted, and are chosen by size and by name.

Method: ranks are threads; every rank submits all programs of plans/ for its number of ranks in an order of its own,
each on a lane of its own, with budgets of one poll, so that blocks park all the time. Results are compared with the
mathematics (ir/oracle.py).
"""

import random
from functools import partial

import numpy as np
import pytest
from starling.plans import program

from ir.oracle import Case, expected, make_case
from programs.cases import ALWAYS_APART, NAMES, NODED, make
from starling import Communicator, Scheduling, errors, ir, lang
from starling.ir.plan import REDUCING, ROOTED
from starling.launch import run_threads

HASTY = Scheduling(initial_budget_ns=1, minimum_budget_ns=1, success_factor=1, position_shift=1)


def plans_for(ranks: int, blocks: int) -> list[ir.Plan]:
    plans = []
    for collective, name in NAMES:
        if name in NODED and ranks % 2:
            continue
        for in_place in (False, True):
            if in_place and collective in ALWAYS_APART | ROOTED:
                continue
            plan = make(collective, name, ranks, 2, in_place).compile(blocks=blocks)
            plan.name = f"{collective}_{name}_{int(in_place)}"
            plans.append(plan)
    return plans


def case_of(plan: ir.Plan, count: int, seed: int) -> Case:
    op = (
        random.Random(seed).choice(["sum", "max", "avg", "premul_sum"])
        if plan.collective in REDUCING
        else "sum"
    )
    return make_case(plan, count, "int32", op, seed)


def buffers_of(plan: ir.Plan, case: Case, rank: int, count: int) -> tuple:
    """Input, output, and where the result will be."""
    mine = case.inputs[rank]
    out = np.full(count * plan.output_groups, -77, np.int32) if plan.exists("output", rank) else None
    if not plan.in_place:
        return (None if mine is None else mine.copy()), out, out
    if plan.collective in ("all_gather",):
        assert out is not None and mine is not None
        out[rank * count : (rank + 1) * count] = mine
        return None, out, out
    if plan.collective == "reduce_scatter":
        whole = mine.copy()
        return whole, None, whole[rank * count : (rank + 1) * count]
    assert mine is not None
    whole = mine.copy()
    return whole, whole, whole


def run_all(comm: Communicator, seed: int, blocks: int) -> int:
    plans = plans_for(comm.size, blocks)
    for plan in plans:
        comm.add_plan(plan)
    own = random.Random(seed * 31 + comm.rank)
    for round_ in range(2):
        count = (5, 3001)[round_]
        order = own.sample(range(len(plans)), len(plans))
        running = []
        for which in order:
            plan = plans[which]
            if plan.collective == "custom":
                source = [np.arange(count * plan.input_groups, dtype=np.int32) + r for r in range(comm.size)]
                result = np.zeros_like(source[0])
                request = comm.run_plan(plan.name, source[comm.rank], result, lane=plan.name)
                wanted = source[comm.rank - 1] if comm.rank else None
            else:
                case = case_of(plan, count, seed + which)
                given, out, result = buffers_of(plan, case, comm.rank, count)
                request = comm.run_plan(
                    plan.name, given, out, op=case.reduce_op, lane=plan.name, scalar=case.scalar
                )
                wanted = expected(case)[comm.rank]
            running.append((plan.name, request, result, wanted))
            if own.random() < 0.1:
                comm.context.synchronize()
        for name, request, result, wanted in running:
            request.wait(60)
            if wanted is not None:
                np.testing.assert_array_equal(
                    result, wanted, err_msg=f"{name}, rank {comm.rank}, seed {seed}"
                )
    return comm.context.statistics().parks


@pytest.mark.parametrize(("ranks", "blocks"), [(4, 1), (4, 3), (6, 2), (3, 2)])
def test_preempted_in_any_order(ranks: int, blocks: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    context = {"blocks": blocks, "scheduling": HASTY}
    parks = run_threads(
        ranks, partial(run_all, seed=seed, blocks=blocks), context=context, timeout=280, operation_timeout=250
    )
    assert sum(parks) > 0, "nothing was ever preempted; the test proves little"


def choose_by_size(comm: Communicator) -> list[bool]:
    """Whether the added plan ran, seen by the instructions that it takes."""
    slow = program("all_reduce", "ring", comm.size, instances=1)
    comm.add_plan(slow, sizes=(64, 4096))
    ran = []
    for count in (4, 16, 1024, 1025):
        data = np.ones(count, np.float32)
        out = np.zeros_like(data)
        before = comm.context.statistics().instructions
        comm.all_reduce(data, out).wait(30)
        after = comm.context.statistics().instructions
        assert np.all(out == comm.size)
        ran.append(after - before > 2)  # the one-shot plan of small sizes has two instructions
    return ran


def test_a_plan_is_chosen_in_its_range_of_sizes() -> None:
    for ran in run_threads(3, choose_by_size, timeout=200):
        assert ran == [False, True, True, False]


def misuse(comm: Communicator) -> None:
    plan = program("all_reduce", "ring", comm.size, channels=2).compile()
    assert len(plan.ranks[0].blocks) == 2
    with pytest.raises(errors.StarlingError, match=r"2 blocks.*compile it with blocks=1"):
        comm.add_plan(plan)
    other = program("all_reduce", "ring", comm.size + 1)
    with pytest.raises(errors.InvalidArgumentError, match="for 3 ranks, the communicator has 2"):
        comm.add_plan(other)
    with pytest.raises(errors.InvalidArgumentError, match="no plan named 'unheard'"):
        comm.run_plan("unheard", np.zeros(4, np.float32))
    comm.add_plan(program("all_reduce", "ring", comm.size))
    with pytest.raises(errors.InvalidArgumentError, match="was added before"):
        comm.add_plan(program("all_reduce", "ring", comm.size))
    data = np.zeros(4, np.float32)
    with pytest.raises(errors.InvalidArgumentError, match=r"out of place; this call is all_reduce.*in place"):
        comm.run_plan("ring", data)
    wrong = ir.to_text(program("all_reduce", "ring", comm.size).compile()).replace(
        "output[0]", "output[1]", 1
    )
    with pytest.raises(errors.InvalidArgumentError, match="is refused"):
        comm.add_plan(wrong)
    with pytest.raises(errors.InvalidArgumentError, match="the root may pass one buffer or two"):
        comm.add_plan(program("reduce", "chain", comm.size, in_place=True))
    comm.add_plan(program("all_to_next", "direct", comm.size))
    with pytest.raises(errors.InvalidArgumentError, match="all equally long"):
        comm.run_plan("all_to_next_direct", data, np.zeros(3, np.float32))


def too_wide(comm: Communicator) -> None:
    """300 chunks do not fit in a message of the smallest slots: 16 bytes of each are 4800."""
    for chunks, fits in ((300, False), (256, True)):
        made = lang.Program("wide", lang.AllReduce(comm.size, chunks, in_place=True))
        c = made.chunk(0, "input", 0, chunks)
        for r in range(1, comm.size):
            c = made.chunk(r, "input", 0, chunks).reduce(c)
        for r in range(comm.size - 1):
            c.copy(r, "output", 0)
        if not fits:
            with pytest.raises(
                errors.StarlingError, match=r"moves 300 chunks at once; a message has room for 256"
            ):
                comm.add_plan(made)
            continue
        comm.add_plan(made)
        data = np.ones(3000, np.float32)
        comm.run_plan("wide", data, data, lane="small").wait(30)
        assert np.all(data == comm.size)


def test_slices_that_no_message_holds_are_refused() -> None:
    run_threads(2, too_wide, timeout=200)


def test_misuse_names_the_remedy() -> None:
    run_threads(2, misuse, timeout=200)


def different(comm: Communicator) -> None:
    """Ranks that added different plans under one name are told so."""
    channels = 1 if comm.rank == 0 else 2
    made = program("all_reduce", "ring" if channels == 1 else "two_shot", comm.size)
    made.name = "mine"
    comm.add_plan(made)
    with pytest.raises(errors.MismatchError, match="all_reduce"):
        comm.run_plan("mine", np.zeros(64, np.float32), np.zeros(64, np.float32)).wait(30)


def test_ranks_with_different_plans_are_told() -> None:
    run_threads(2, different, timeout=200, check=False)


class Neighbours(lang.Collective):
    """Every rank gets the sum of its own chunk and its right neighbour's: a reduction of one's own."""

    def expected(self, rank: int, index: int) -> lang.Value:
        return lang.reduction([(rank, index), ((rank + 1) % self.ranks, index)])


def neighbours(comm: Communicator) -> None:
    made = lang.Program("neighbours", Neighbours(comm.size))
    for r in range(comm.size):
        made.chunk((r + 1) % comm.size, "input", 0).copy(r, "scratch", 0)
    for r in range(comm.size):
        made.chunk(r, "input", 0).copy(r, "output", 0).reduce(made.chunk(r, "scratch", 0))
    comm.add_plan(made)
    data = np.arange(1000, dtype=np.float32) + comm.rank
    out = np.zeros_like(data)
    comm.run_plan("neighbours", data, out).wait(30)
    np.testing.assert_array_equal(out, 2 * np.arange(1000) + comm.rank + (comm.rank + 1) % comm.size)


def test_a_custom_reduction() -> None:
    run_threads(4, neighbours, timeout=200)
