"""Goal: waiting operations are served by priority where the context asks for it, else as they were submitted.

Method: the only block of rank 0 waits for a message of rank 1, with a budget that does not end, while small operations
of mixed priorities arrive; then the message is sent. The order of their callbacks is the order of completion.
"""

import threading

import numpy as np
import pytest

from starling import Communicator, Order, Scheduling
from starling.launch import run_threads

PRIORITIES = (0, 5, -3, 5, 9, 1, -3, 7)
UNENDING_NS = 1_000_000_000_000


def served(order: Order) -> list[int]:
    all_there = threading.Event()

    def rank_0(communicator: Communicator, alone: Communicator) -> list[int]:
        completed: list[int] = []
        all_done = threading.Event()

        def note(number: int) -> None:
            completed.append(number)
            if len(completed) == len(PRIORITIES):
                all_done.set()

        held = communicator.recv(np.zeros(4, "float32"), 1, priority=20)
        values = [np.ones(4, "float32") for _ in PRIORITIES]
        for number, priority in enumerate(PRIORITIES):
            alone.all_reduce(
                values[number],
                lane=f"number {number}",
                priority=priority,
                callback=lambda error, number=number: note(number),
            )
        assert not held.done and not completed
        all_there.set()
        assert all_done.wait(200)
        return completed

    def rank(communicator: Communicator) -> list[int]:
        communicator.barrier().wait(200)
        if communicator.rank == 0:
            alone = communicator.subgroup([0], "alone")
            assert alone is not None
            return rank_0(communicator, alone)
        assert all_there.wait(200)
        communicator.send(np.ones(4, "float32"), 0).wait(200)
        return []

    scheduling = Scheduling(
        order=order,
        in_turn=True,  # else it goes on with those that can, however long the budget
        initial_budget_ns=UNENDING_NS,
        minimum_budget_ns=UNENDING_NS,
        fixed=True,
    )
    context = {"blocks": 1, "scheduling": scheduling}
    completed: list[int] = run_threads(2, rank, timeout=250, context=context)[0]
    return completed


@pytest.mark.parametrize("order", tuple(Order))
def test_order_of_service(order: Order) -> None:
    numbers = range(len(PRIORITIES))
    by_priority = sorted(numbers, key=lambda n: -PRIORITIES[n])  # stable: equal ones as they came
    assert served(order) == (by_priority if order is Order.PRIORITY else list(numbers))
