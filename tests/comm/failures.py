"""Programs that go wrong, each rank's side, importable by its processes. Each returns what this rank was told."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from starling import Communicator, Request, StarlingError

Told = tuple[str, str]  # class of the error ("" if none), and its text

# Far above what anything takes, so that a failure that comes by itself is told from one that waited for the end.
LONG_S = 100
MORE_THAN_SLOTS = 100  # messages of one rank to another


def told(call: Callable[[], Any]) -> Told:
    try:
        call()
    except StarlingError as error:
        return type(error).__name__, str(error)
    return "", ""


def ones(count: int, data_type: str = "float32") -> np.ndarray:
    return np.ones(count, data_type)


def segments() -> list[str]:
    """Starling's shared segments that this process has mapped: its own, and its peers'. Not flight records."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in lines if "/dev/shm/starling." in line})


# What rank 1 does, and what the others do, in one place of the lane "x".
MISMATCHES: dict[str, tuple[Callable[[Communicator], Request], Callable[[Communicator], Request]]] = {
    "kind": (
        lambda c: c.all_reduce(ones(4), lane="x"),
        lambda c: c.all_gather(ones(4), ones(4 * c.size), lane="x"),
    ),
    "count": (
        lambda c: c.all_reduce(ones(4), lane="x"),
        lambda c: c.all_reduce(ones(5), lane="x"),
    ),
    "large count": (
        lambda c: c.all_reduce(ones(4), lane="x"),
        lambda c: c.all_reduce(ones(1 << 20), lane="x"),
    ),
    "data type": (
        lambda c: c.all_reduce(ones(4), lane="x"),
        lambda c: c.all_reduce(ones(4, "int32"), lane="x"),
    ),
    "reduction": (
        lambda c: c.all_reduce(ones(4), op="sum", lane="x"),
        lambda c: c.all_reduce(ones(4), op="max", lane="x"),
    ),
    "in place": (
        lambda c: c.all_reduce(ones(4), lane="x"),
        lambda c: c.all_reduce(ones(4), ones(4), lane="x"),
    ),
    "root": (
        lambda c: c.broadcast(ones(4), root=0, lane="x"),
        lambda c: c.broadcast(ones(4), root=1, lane="x"),
    ),
    "algorithm": (
        lambda c: c.all_reduce(ones(4), algorithm="ring", lane="x"),
        lambda c: c.all_reduce(ones(4), algorithm="one_shot", lane="x"),
    ),
    "counts": (
        lambda c: c.all_gather(ones(1), ones(3), counts=[2, 1, 0][: c.size], lane="x"),
        lambda c: c.all_gather(ones([1, 1, 1][c.rank]), ones(3), counts=[1, 1, 1][: c.size], lane="x"),
    ),
    "all_to_all counts": (
        lambda c: _all_to_all(c, [2, 2, 2]),
        lambda c: _all_to_all(c, [1, 1, 1]),
    ),
}


def _all_to_all(comm: Communicator, counts: list[int]) -> Request:
    """Every rank receives one element of each; rank 1 sends two to each."""
    total = sum(counts)
    return comm.all_to_all(
        ones(total), ones(comm.size), input_counts=counts, output_counts=[1] * comm.size, lane="x"
    )


def mismatch(comm: Communicator, what: str, late_rank: int) -> list[Told]:
    """The mismatched call, then a right one in the same lane: both must fail. Other lanes go on."""
    if comm.rank == late_rank:
        time.sleep(0.2)
    mine = MISMATCHES[what][0 if comm.rank == 1 else 1]
    first = told(lambda: mine(comm).wait(LONG_S))
    second = told(lambda: comm.all_reduce(ones(4), lane="x").wait(LONG_S))
    other = told(lambda: comm.all_reduce(ones(4), lane="y").wait(LONG_S))
    return [first, second, other]


def swapped_order(comm: Communicator) -> list[Told]:
    """Two different operations of one lane, in another order on rank 1."""
    counts = (4, 9) if comm.rank != 1 else (9, 4)
    requests = [comm.all_reduce(ones(count), lane="x") for count in counts]
    return [told(lambda request=request: request.wait(LONG_S)) for request in requests]


def send_recv_mismatch(comm: Communicator) -> list[Told]:
    """Rank 0 sends 4 elements, rank 1 expects 5. A small send may be complete before the receive is called: rank
    0 goes on until no slot is free, and is told by then."""
    if comm.rank == 1:
        return [told(lambda: comm.recv(ones(5), 0).wait(LONG_S))]
    sends = (told(lambda: comm.send(ones(4), 1).wait(LONG_S)) for _ in range(MORE_THAN_SLOTS))
    return [next((error for error in sends if error != ("", "")), ("", ""))]


def never_calls(comm: Communicator) -> list[Told]:
    """Rank 1 does not call until the others' timeout is over: the lane is given up then."""
    result = []
    if comm.rank != 1:
        result.append(told(lambda: comm.all_reduce(ones(4), lane="x", timeout=1.0).wait(LONG_S)))
    comm.barrier(lane="after").wait(LONG_S)
    if comm.rank == 1:
        result.append(told(lambda: comm.all_reduce(ones(4), lane="x").wait(LONG_S)))
    comm.barrier(lane="end").wait(LONG_S)
    return result


def never_sends(comm: Communicator) -> list[Told]:
    """An any-source receive, and a receive from a rank that sends nothing."""
    result = []
    if comm.rank == 0:
        requests = [comm.recv(ones(1), tag=5, timeout=0.5), comm.recv(ones(1), 1, tag=6, timeout=0.5)]
        result = [told(lambda request=request: request.wait(LONG_S)) for request in requests]
    comm.barrier().wait(LONG_S)
    return result


def cyclic_wait(comm: Communicator) -> list[Told]:
    """Rank 0 waits for A before it submits B; rank 1 waits for B before it submits A. Rank 0 gives up first."""
    first, second = ("A", "B") if comm.rank == 0 else ("B", "A")
    if comm.rank == 1:
        request = comm.all_reduce(ones(4), lane=first)
    comm.barrier(lane="both are there").wait(LONG_S)
    if comm.rank == 0:
        request = comm.all_reduce(ones(4), lane=first, timeout=2.0)
    result = [told(lambda: request.wait(LONG_S))]
    result.append(told(lambda: comm.all_reduce(ones(4), lane=second).wait(LONG_S)))
    comm.barrier(lane="end").wait(LONG_S)
    return result


def killed(comm: Communicator, in_the_middle: bool) -> tuple[list[Told], list[str]]:
    """Rank 1 is killed: between two operations, or with a long one under way."""
    comm.all_reduce(ones(4)).wait(LONG_S)
    if comm.rank == 1 and not in_the_middle:
        os.kill(os.getpid(), signal.SIGKILL)
    request = comm.all_reduce(ones(1 << 22), lane="big")
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    result = [told(lambda: request.wait(LONG_S)), told(lambda: comm.all_reduce(ones(4)).wait(LONG_S))]
    return result, segments()


def survives(comm: Communicator) -> list[str]:
    """All ranks but the first are killed at once; it does not wait for most of them."""
    comm.all_reduce(ones(1000)).wait(LONG_S)
    names = segments()
    comm.barrier().wait(LONG_S)
    if comm.rank != 0:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: comm.recv(ones(4), 1).wait(LONG_S))
    return names


def destroyed_inside(comm: Communicator, context: bool) -> Told | None:
    """Rank 0's communicator, or its context, is destroyed while a thread of its own waits in split()."""
    comm.barrier().wait(LONG_S)
    if comm.rank != 0:  # until rank 0 has left
        told(lambda: comm.barrier(lane="never").wait(LONG_S))
        return None
    inside: list[Told] = []
    submitted = comm.context.statistics().submissions
    thread = threading.Thread(target=lambda: inside.append(told(lambda: comm.split(0))))
    thread.start()
    while comm.context.statistics().submissions == submitted:  # until it gathers what the others want
        time.sleep(0.001)
    if context:
        comm.context.destroy()
    else:
        comm.destroy()
    thread.join()
    return inside[0]


def all_killed(comm: Communicator, folder: str, by: signal.Signals = signal.SIGKILL) -> None:
    """A job that dies as a whole; it leaves the names of its segments in the folder."""
    comm.all_reduce(ones(1000)).wait(LONG_S)
    (Path(folder) / str(comm.rank)).write_text("\n".join(segments()))
    comm.barrier().wait(LONG_S)
    os.kill(os.getpid(), by)


def abort(comm: Communicator) -> list[Told]:
    """Rank 0 aborts while the others wait: what is under way, and what comes later in any lane, fails."""
    comm.barrier(lane="known").wait(LONG_S)
    result = []
    if comm.rank == 0:
        for rank in range(1, comm.size):
            comm.recv(ones(1), rank).wait(LONG_S)
        comm.abort("the test says so")
    else:
        request = comm.all_reduce(ones(4), lane="x")
        comm.send(ones(1), 0)
        result.append(told(lambda: request.wait(LONG_S)))
    result.append(told(lambda: comm.barrier(lane="known").wait(LONG_S)))
    result.append(told(lambda: comm.barrier(lane="new").wait(LONG_S)))
    return result


def leaves_early(comm: Communicator) -> list[Told]:
    """Rank 0 destroys everything with work under way; the others are told that it left."""
    request = comm.all_reduce(ones(4), lane="x") if comm.rank != 2 else comm.barrier(lane="alone")
    if comm.rank == 0:
        ended = told(comm.context.destroy)
        return [told(lambda: request.wait(LONG_S)), ended]
    return [told(lambda: request.wait(LONG_S))]


def forgets(comm: Communicator) -> list[str]:
    """Leaves without destroying anything, with an operation under way and an unmatched callback."""
    comm.all_reduce(ones(4)).wait(LONG_S)
    comm.recv(ones(4), tag=9, callback=lambda error: None)
    comm.all_reduce(ones(1000), lane="never", callback=print) if comm.rank == 0 else None
    return segments()
