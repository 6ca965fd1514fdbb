"""Goal: buffers of operations under way stay: what the caller lets go of is kept, what it would move is locked.

Method: an operation is held back by the other rank while its arrays are deleted, resized and released.
"""

import functools
import gc
from typing import Any

import numpy as np
import pytest

from conformance.machines import MACHINES
from starling import Communicator

COUNT = 1 << 16


def flag(communicator: Communicator) -> None:
    communicator.all_reduce(np.ones(1, "float32"), lane="flag").wait()


def arrays_let_go(communicator: Communicator) -> bool:
    """The sender forgets its array, and fills memory of that size with something else."""
    if communicator.rank == 0:
        request = communicator.send(np.full(COUNT, 7, "float32"), 1)
        gc.collect()
        others = [np.full(COUNT, 9, "float32") for _ in range(16)]
        flag(communicator)
        request.wait()
        return len(others) == 16
    flag(communicator)
    value = np.zeros(COUNT, "float32")
    communicator.recv(value, 0).wait()
    return bool((value == 7).all())


def requests_let_go(communicator: Communicator) -> bool:
    """Not even the request is kept; another operation of the lane says when it is done."""
    value = np.full(COUNT, 1, "float32")
    if communicator.rank == 0:
        communicator.all_reduce(np.full(COUNT, 1, "float32"), lane="x")
        gc.collect()
        flag(communicator)
    else:
        flag(communicator)
        communicator.all_reduce(value, lane="x").wait()
    communicator.all_reduce(np.ones(1, "float32"), lane="x").wait()
    return communicator.rank == 0 or bool((value == communicator.size).all())


def arrays_resized(communicator: Communicator) -> bool:
    value = bytearray(b"\x01" * 64)
    array = np.ones(64, "float32")
    if communicator.rank == 0:
        requests = [
            communicator.all_reduce(value, dtype="uint8", lane="bytes"),
            communicator.all_reduce(array, lane="array"),
        ]
        with pytest.raises(BufferError):
            value.extend(b"more")
        with pytest.raises(ValueError, match="resize"):
            array.resize(1 << 20)
        flag(communicator)
    else:
        flag(communicator)
        requests = [
            communicator.all_reduce(value, dtype="uint8", lane="bytes"),
            communicator.all_reduce(array, lane="array"),
        ]
    for request in requests:
        request.wait()
    right = value == b"\x02" * 64 and bool((array == 2).all())
    value.extend(b"more")  # ours again
    return right


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize(
    "program", (arrays_let_go, requests_let_go, arrays_resized), ids=lambda p: p.__name__
)
def test_buffers_under_way(machine: str, program: Any) -> None:
    assert all(MACHINES[machine].run(2, functools.partial(program), timeout=250, operation_timeout=200))
