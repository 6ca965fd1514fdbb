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

from programs.own import neighbours
from programs.running import HASTY, run_all
from starling import Communicator, errors, ir, lang
from starling.lang.msccl_write import write
from starling.lang.msccl_xml import read
from starling.launch import run_threads


@pytest.mark.parametrize(
    ("ranks", "blocks", "protocol"),
    [(4, 1, "slots"), (4, 3, "slots"), (6, 2, "slots"), (3, 2, "slots"), (4, 3, "packets"), (4, 4, "pull")],
)
def test_preempted_in_any_order(ranks: int, blocks: int, protocol: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    context = {"blocks": blocks, "scheduling": HASTY}
    parks = run_threads(
        ranks,
        partial(run_all, seed=seed, blocks=blocks, protocol=protocol),
        context=context,
        timeout=280,
        operation_timeout=250,
    )
    assert sum(parks) > 0, "nothing was ever preempted; the test proves little"


def choose_by_size(comm: Communicator, said_by: str) -> list[bool]:
    """Whether the added plan ran, seen by the instructions that it takes."""
    slow = program("all_reduce", "ring", comm.size, instances=1)
    if said_by == "program":
        slow.sizes = (64, 4096)
        comm.add_plan(slow)
    elif said_by == "xml":
        comm.add_plan(read(write(slow.compile(policy="connections", blocks=1), sizes=(64, 4096))))
    else:
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


@pytest.mark.parametrize("said_by", ["call", "program", "xml"])
def test_a_plan_is_chosen_in_its_range_of_sizes(said_by: str) -> None:
    """Which the call names, or the program, or the XML that it was read from."""
    for ran in run_threads(3, partial(choose_by_size, said_by=said_by), timeout=200):
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


def custom(comm: Communicator) -> None:
    comm.add_plan(neighbours(comm.size))
    data = np.arange(1000, dtype=np.float32) + comm.rank
    out = np.zeros_like(data)
    comm.run_plan("neighbours", data, out).wait(30)
    np.testing.assert_array_equal(out, 2 * np.arange(1000) + comm.rank + (comm.rank + 1) % comm.size)


def next_without_a_plan(comm: Communicator) -> None:
    """The library's own program runs by its name; one's own of this name goes before it, on all ranks or none."""
    for name in ("all_to_next", "all_to_next:2", "all_to_next_direct", "all_to_next@512"):
        for count in (0, 1, 1000, 70_001):
            data = np.arange(count, dtype=np.int64) + 100 * comm.rank
            out = np.full_like(data, -7)
            comm.run_plan(name, data, out).wait(30)
            np.testing.assert_array_equal(out, np.arange(count) + 100 * (comm.rank - 1) if comm.rank else -7)
            comm.run_plan(name, data).wait(30)  # in place
            np.testing.assert_array_equal(data, np.arange(count) + 100 * max(comm.rank - 1, 0))
    with pytest.raises(errors.InvalidArgumentError, match=r"takes 2 nodes or more, equally large"):
        comm.run_plan("all_to_next:3", data)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"no plan named 'next'.*library's: all_to_next, all_to_next_d"
    ):
        comm.run_plan("next", data)
    with pytest.raises(errors.InvalidArgumentError, match="all equally long"):
        comm.run_plan("all_to_next", data, np.zeros(3, np.int64))
    comm.add_plan(program("all_to_next", "spread", comm.size, instances=3))
    data, out = np.full(50, comm.rank, np.int8), np.zeros(50, np.int8)
    comm.run_plan("all_to_next", data, out).wait(30)
    assert np.all(out == max(comm.rank - 1, 0))


def test_all_to_next_needs_no_plan() -> None:
    run_threads(4, next_without_a_plan, context={"blocks": 3}, timeout=200)


def test_a_custom_reduction() -> None:
    run_threads(4, custom, timeout=200)
