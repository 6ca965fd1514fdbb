"""Goal: operations whose buffers exceed the caches, which are copied past them, are right.

Method: two processes, 64 MB and an odd number of bytes, from addresses that no cache line begins at.
"""

import numpy as np

from starling import Communicator
from starling.launch import run_processes

BYTES = (64 << 20) + 13


def part(rank: int, count: int) -> np.ndarray:
    return np.arange(rank, rank + count, dtype="int64").astype("uint8")


def program(communicator: Communicator) -> bool:
    whole = np.zeros(BYTES * communicator.size + 1, "uint8")
    gathered = whole[1:]
    communicator.all_gather(part(communicator.rank, BYTES), gathered).wait()
    right = whole[0] == 0
    for rank in range(communicator.size):
        right &= np.array_equal(gathered[rank * BYTES : (rank + 1) * BYTES], part(rank, BYTES))
    shared = part(0, BYTES + 1)[1:] if communicator.rank == 0 else np.zeros(BYTES + 1, "uint8")[1:]
    communicator.broadcast(shared, root=0).wait()
    return bool(right) and np.array_equal(shared, part(0, BYTES + 1)[1:])


def test_past_the_caches() -> None:
    assert run_processes(2, program, timeout=250, operation_timeout=200) == [True, True]
