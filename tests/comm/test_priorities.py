"""Goal: waiting operations are served by priority where the context asks for it, else as they were submitted.

Method: a context of one rank and one block is busy with a large copy while small operations of mixed priorities
arrive; the order of their callbacks, which is the order of completion.
"""

import threading

import numpy as np
import pytest

from starling import Communicator, Context, Order, Scheduling
from starling.stores import InProcessStore

PRIORITIES = (0, 5, -3, 5, 9, 1, -3, 7)
BUSY_BYTES = 1 << 28  # some 100 ms of copying, far longer than eight submissions take


def served(order: Order) -> list[int]:
    with Context(blocks=1, scheduling=Scheduling(order=order)) as context:
        communicator = Communicator(context=context, rank=0, size=1, store=InProcessStore())
        large = np.ones(BUSY_BYTES, "uint8")
        communicator.all_reduce(large, np.empty_like(large)).wait()  # pages are there
        completed: list[int] = []
        all_done = threading.Event()

        def note(number: int) -> None:
            completed.append(number)
            if len(completed) == len(PRIORITIES):
                all_done.set()

        busy = communicator.all_reduce(large, np.empty_like(large), priority=20)
        values = [np.ones(4, "float32") for _ in PRIORITIES]
        for number, priority in enumerate(PRIORITIES):
            communicator.all_reduce(
                values[number],
                lane=f"number {number}",
                priority=priority,
                callback=lambda error, number=number: note(number),
            )
        assert not busy.done, (
            "the machine is so slow that the large operation ended before: the order says nothing"
        )
        assert all_done.wait(60)
        communicator.destroy()
    return completed


@pytest.mark.parametrize("order", tuple(Order))
def test_order_of_service(order: Order) -> None:
    numbers = range(len(PRIORITIES))
    by_priority = sorted(numbers, key=lambda n: -PRIORITIES[n])  # stable: equal ones as they came
    assert served(order) == (by_priority if order is Order.PRIORITY else list(numbers))
