"""Goal: lanes, groups, registered collectives, messages and callbacks work in any order on each rank.

Method: programs in which every rank takes an order of its own (lane_programs.py), as threads and as processes, with
one and with two blocks; every result is checked.
"""

import functools
from typing import Any

import numpy as np
import pytest

from comm import lane_programs
from conformance.machines import MACHINES
from starling import Communicator, Order, Scheduling
from starling.launch import run_threads
from starling.stores import InProcessStore

MB = 1 << 20


@pytest.fixture(params=[(machine, blocks) for machine in sorted(MACHINES) for blocks in (1, 2)], ids=str)
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a program on 4 ranks; gives each rank's value."""
    machine, blocks = request.param

    def start(function: Any, ranks: int = 4, scheduling: Scheduling | None = None, **arguments: Any) -> Any:
        return MACHINES[machine].run(
            ranks,
            functools.partial(function, **arguments),
            timeout=250,
            operation_timeout=200,
            context={"blocks": blocks, "scheduling": scheduling},
        )

    return start


def test_thousand_lanes_cost_little() -> None:
    """Under 64 MB a rank, counted by the library, resident in each process, and stored in /dev/shm."""
    used = MACHINES["processes"].run(
        4, functools.partial(lane_programs.many_lanes, lanes=1000), timeout=250, operation_timeout=200
    )
    for of_rank in used:
        assert of_rank["lanes"] >= 1000
        assert of_rank["lane_bytes"] < 64 * MB, of_rank
        assert of_rank["resident"] < 64 * MB, of_rank
        assert of_rank["stored_a_rank"] < 64 * MB, of_rank


def test_lanes_in_any_order(run: Any) -> None:
    run(lane_programs.lanes_in_any_order)


def test_registered_collectives(run: Any) -> None:
    assert run(lane_programs.registered, rounds=10) == [11 * n for n in (4, 6, 4, 4)]


def test_callbacks_submit_again(run: Any) -> None:
    assert run(lane_programs.callbacks_submit, rounds=100) == [300] * 4


def test_split_and_subgroup(run: Any) -> None:
    results = run(lane_programs.split, ranks=5)
    assert [result[0] for result in results] == [[4, 2, 0], [3, 1], [4, 2, 0], [3, 1], [4, 2, 0]]
    assert [result[1] for result in results] == [0, 4, 6, 4, 6]
    assert [result[2] for result in results] == [[3, 0, 1], [3, 0, 1], [], [3, 0, 1], []]


def test_two_groups_of_one_name(run: Any) -> None:
    run(lane_programs.groups_of_one_name)


def test_group_made_again_after_an_abort() -> None:
    run_threads(3, functools.partial(lane_programs.again_after_abort, store=InProcessStore()), timeout=200)


def test_crossed_messages(run: Any) -> None:
    run(lane_programs.messages, rounds=12)


def test_any_source(run: Any) -> None:
    assert run(lane_programs.any_source, rounds=50)[0] == [0, 50, 50, 50]


@pytest.mark.parametrize("under_way", (1, 40))
def test_many_small_operations(run: Any, under_way: int) -> None:
    run(lane_programs.small_operations, ranks=2, operations=5000, under_way=under_way)


def test_priorities(run: Any) -> None:
    """Under the priority order the larger one is served first where all are stuck; every order must be right."""
    for order in Order:
        for completed in run(lane_programs.priorities, scheduling=Scheduling(order=order)):
            assert sorted(completed) == ["high", "low", "middle"]


def test_groups_come_and_go(run: Any) -> None:
    assert max(run(lane_programs.repeated_communicators, rounds=50)) <= 3


def sent_and_gone(comm: Communicator) -> None:
    values = np.full(100, 7 if comm.rank == 0 else 0, np.int32)
    comm.broadcast(values, root=0).wait(100)
    assert (values == 7).all()


def test_who_has_sent_all_may_leave() -> None:
    """Its peers may look for it only then: they have its message, and need no more than to find where it was."""
    for _ in range(60):
        run_threads(4, sent_and_gone, timeout=200)
