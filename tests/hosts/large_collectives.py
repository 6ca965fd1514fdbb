"""What ranks do in the tests of large collectives; importable by them."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from comm import failures
from hosts.messages import OVERWRITTEN, UNTOUCHED, check, pattern, until
from hosts.ranks import touch
from starling import Communicator


def parts(comm: Communicator, tag: int, count: int) -> np.ndarray:
    """One for each rank."""
    return np.concatenate([pattern(comm.rank, tag + to, count) for to in range(comm.size)])


def through_failures(comm: Communicator, folder: str) -> int:
    """Collectives, every byte checked, until ``stop``."""
    count, tag = (6 << 20) + 7, 0
    whole, one = np.zeros(comm.size * count, "uint8"), np.zeros(count, "uint8")
    leaves = np.zeros(1, "uint8")
    while not leaves[0]:
        for k in range(3):  # the buffers are used for something else at once
            sent, mine = parts(comm, tag, count), pattern(comm.rank, tag, count).copy()
            if k == 0:
                comm.all_to_all(sent, whole).wait(60)
            elif k == 1:
                comm.all_gather(mine, whole).wait(60)
            else:
                one[:] = mine
                comm.broadcast(one, root=tag % comm.size).wait(60)
            sent[:], mine[:] = OVERWRITTEN, OVERWRITTEN
            if k == 2:
                check(one, tag % comm.size, tag)
            for rank in range(comm.size if k < 2 else 0):
                check(whole[rank * count :][:count], rank, tag + (comm.rank if k == 0 else 0))
            whole[:] = UNTOUCHED
            tag += comm.size
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.broadcast(leaves, root=0, lane="leave").wait(60)
        if comm.rank == 0:
            touch(folder, f"done.{tag // (3 * comm.size)}")
    return tag // (3 * comm.size)


def amid_an_all_to_all(comm: Communicator, fault: str, culprit: int) -> tuple[str, str, float]:
    """All parts are under way when the culprit dies, aborts, or all have waited too long.

    What the rank was told, and after how many seconds. From then on no link has anything to do with its buffers.
    """
    count = 40 << 20
    sent, value = parts(comm, 0, count), np.full(comm.size * count, UNTOUCHED, "uint8")
    comm.barrier().wait(60)
    small = np.zeros(comm.size, "uint8")
    comm.all_to_all(small, small.copy()).wait(60)  # the lane is there
    request = comm.all_to_all(sent, value, timeout=1.0 if fault == "timeout" else 60)
    begin = time.monotonic()
    if comm.rank == culprit and fault != "timeout":
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        until(lambda: all((value[rank * count :][: 1 << 20] != UNTOUCHED).any() for rank in others))
        assert not request.done, "it was faster than the fault"
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        comm.abort("enough")
    kind, text = failures.told(lambda: request.wait(60))
    took = time.monotonic() - begin
    sent[:] = OVERWRITTEN
    then = value.copy()
    time.sleep(1.0)
    assert (value == then).all(), "written after the error"
    whole = 0
    for rank in range(comm.size):
        part, right = then[rank * count :][:count], pattern(rank, comm.rank, count)
        assert ((part == right) | (part == UNTOUCHED)).all(), "what was sent after the error"
        whole += bool((part == right).all())
    assert whole < comm.size, "all of it had come"
    return kind, text, took
