"""Goal: sends and receives that no block moves (sm_free): matching, order, disorder and errors, as of every lane.

Method: on CPUs, where a rank's proxy makes the copies that a copy engine makes on a GPU, with ranks that are threads
and processes; the lanes, the proxy and the two sides' handshake are those of GPUs. What only streams do is tests/gpu's.
"""

import dataclasses
import functools
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance import call, cases
from conformance.machines import MACHINES
from conformance.test_conformance import check
from starling import Communicator
from starling.errors import MismatchError, OperationTimeoutError, PeerFailedError, StarlingError

MOVING = ("all_gather", "all_to_all", "broadcast", "gather", "scatter")


def run(machine: str, size: int, function: Callable[..., Any], **more: Any) -> list[Any]:
    arguments = {"timeout": 60, "communicator": {"sm_free": True}, **more}
    return list(MACHINES[machine].run(size, function, **arguments))


def pattern(rank: int, tag: int, count: int) -> np.ndarray:
    """No two pieces of a message are alike: a period that is prime, made once, and repeated."""
    return np.resize(((np.arange(251) * 7 + rank * 31 + tag) % 251).astype("uint8"), count)


def sizes(comm: Communicator) -> int:
    """A ring, at all sizes; returns what the daemon did."""
    assert comm.sm_free is True
    before = comm.context.statistics().instructions
    next_rank, previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for tag, count in enumerate((0, 1, 3, 4095, 65536, 65537, 1 << 20, (8 << 20) + 1)):
        value = np.zeros(count, "uint8")
        requests = [
            comm.recv(value, previous, tag=tag),
            comm.send(pattern(comm.rank, tag, count), next_rank, tag=tag),
        ]
        for request in requests:
            request.wait(30)
        assert (value == pattern(previous, tag, count)).all(), f"{count} bytes"
    return comm.context.statistics().instructions - before


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [2, 3])
def test_sizes(machine: str, size: int) -> None:
    """And no block of a daemon has executed anything."""
    assert run(machine, size, sizes) == [0] * size


def crossed(comm: Communicator, messages: int) -> None:
    """All sends first, in an order of the rank's own, then all receives in another; several tags, more than fit."""
    peer = 1 - comm.rank
    order = np.random.default_rng(comm.rank).permutation(messages)
    sends = [comm.send(pattern(comm.rank, int(tag), 1000), peer, tag=int(tag) % 5) for tag in sorted(order)]
    values = {tag: np.zeros(1000, "uint8") for tag in range(messages)}
    comm.context.synchronize()
    receives = []
    for group in np.random.default_rng(comm.rank + 9).permutation(5):
        receives += [comm.recv(values[tag], peer, tag=int(group)) for tag in range(int(group), messages, 5)]
    for request in sends + receives:
        request.wait(30)
    for tag, value in values.items():
        assert (value == pattern(peer, tag, 1000)).all(), f"message {tag}"


@pytest.mark.parametrize("machine", MACHINES)
def test_crossed_sends_finish(machine: str) -> None:
    run(machine, 2, functools.partial(crossed, messages=400))


def collective_cases(comm: Communicator, taken: list[cases.Case]) -> tuple[list[call.Result], int]:
    before = comm.context.statistics().instructions
    results = call.run_cases(comm, taken, seed=7)
    return results, comm.context.statistics().instructions - before


def moving_cases(size: int, count: int) -> list[cases.Case]:
    """Some of the conformance suite's; not in place where copies cannot be."""
    moved = {
        dataclasses.replace(case, algorithm=None)
        for case in cases.all_cases(size)
        if case.collective in MOVING and not (case.collective == "all_to_all" and case.in_place)
    }
    return random.Random(size).sample(sorted(moved, key=str), count)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [2, 4])
def test_collectives_that_only_move(machine: str, size: int) -> None:
    """Several at a time, in another order on each rank; no block takes part."""
    taken = moving_cases(size, 60)
    outcomes = run(machine, size, functools.partial(collective_cases, taken=taken))
    check([results for results, _ in outcomes])
    assert [instructions for _, instructions in outcomes] == [0] * size


def large_broadcasts(comm: Communicator, counts: tuple[int, ...]) -> int:
    """Passed on from rank to rank in pieces; two at a time, from two roots."""
    before = comm.context.statistics().instructions
    for count in counts:
        values = [pattern(comm.rank, tag, count) for tag in range(2)]
        roots = [comm.size - 1, 1]
        requests = [
            comm.broadcast(value, root=root, lane=f"from {root}")
            for value, root in zip(values, roots, strict=True)
        ]
        for request in requests[:: -1 if comm.rank % 2 else 1]:
            request.wait(30)
        for tag, (value, root) in enumerate(zip(values, roots, strict=True)):
            assert (value == pattern(root, tag, count)).all(), f"{count} bytes from {root}"
    return comm.context.statistics().instructions - before


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [3, 4])
def test_large_broadcasts(machine: str, size: int) -> None:
    counts = (1000, (8 << 20) - 1, 8 << 20, (9 << 20) + 5, 40 << 20)
    assert run(machine, size, functools.partial(large_broadcasts, counts=counts)) == [0] * size


def from_any(comm: Communicator) -> list[int]:
    if comm.rank != 0:
        comm.send(np.full(100, comm.rank, "int32"), 0, tag=3).wait(30)
        return []
    sources = []
    for _ in range(comm.size - 1):
        value = np.zeros(100, "int32")
        request = comm.recv(value, None, tag=3)
        request.wait(30)
        assert (value == request.source).all()
        sources.append(request.source)
    return sorted(sources)


@pytest.mark.parametrize("machine", MACHINES)
def test_any_source(machine: str) -> None:
    assert run(machine, 3, from_any)[0] == [1, 2]


def mixed(comm: Communicator) -> int:
    """auto: small ones by blocks, large ones not, in one order."""
    peer = 1 - comm.rank
    before = comm.context.statistics().instructions
    for count in (8, 4 << 20, 8, 4 << 20):
        value = np.zeros(count, "uint8")
        requests = [comm.recv(value, peer), comm.send(pattern(comm.rank, 0, count), peer)]
        for request in requests:
            request.wait(30)
        assert (value == pattern(peer, 0, count)).all()
    return comm.context.statistics().instructions - before


@pytest.mark.parametrize("machine", MACHINES)
def test_by_size(machine: str) -> None:
    by_size = run(machine, 2, mixed, communicator={"sm_free": "auto"})
    never = run(machine, 2, mixed, communicator={"sm_free": False})
    assert all(0 < few < many for few, many in zip(by_size, never, strict=True))


def mismatched(comm: Communicator, counts: tuple[int, int], types: tuple[str, str]) -> str:
    value = np.zeros(counts[comm.rank], types[comm.rank])
    value[:] = comm.rank + 1
    with pytest.raises(MismatchError) as caught:
        (comm.send(value, 1, tag=8) if comm.rank == 0 else comm.recv(value, 0, tag=8)).wait(30)
    time.sleep(0.2)
    assert (value == comm.rank + 1).all(), "written after the error"
    return str(caught.value)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("counts", "types"), [((4, 5), ("int32", "int32")), ((4, 4), ("int32", "float32"))], ids=["count", "type"]
)
def test_mismatch(machine: str, counts: tuple[int, int], types: tuple[str, str]) -> None:
    for text in run(machine, 2, functools.partial(mismatched, counts=counts, types=types)):
        assert "rank 0 calls" in text
        assert "rank 1 calls" in text
        assert "0->1 tag 8" in text
        assert "remedy" in text


def late(comm: Communicator) -> str:
    value = np.full(1000, 5, "uint8")
    if comm.rank == 0:
        time.sleep(2)  # never comes, but lives
        return ""
    with pytest.raises(OperationTimeoutError) as caught:
        comm.recv(value, 0, tag=1, timeout=0.3).wait(30)
    return str(caught.value)


@pytest.mark.parametrize("machine", MACHINES)
def test_timeout(machine: str) -> None:
    text = run(machine, 2, late)[1]
    assert "rank 0 has not called it" in text
    assert "0->1 tag 1" in text


def unmarked(comm: Communicator) -> str:
    """The lane is connected, so the receive is with the proxy."""
    first = np.zeros(1000, "uint8")
    if comm.rank == 0:
        comm.send(first, 1, tag=1).wait(30)
        time.sleep(1)
        return ""
    comm.recv(first, 0, tag=1).wait(30)
    with pytest.raises(OperationTimeoutError) as caught:
        comm.recv(first, 0, tag=1, timeout=0.3).wait(30)
    return str(caught.value)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_timeout_says_what_was_missing(machine: str) -> None:
    assert "nothing has come from rank 0" in run(machine, 2, unmarked)[1]


def aborted(comm: Communicator) -> str:
    value = np.full(1000, 5, "uint8")
    request = comm.recv(value, 1 - comm.rank)
    if comm.rank == 0:
        time.sleep(0.2)
        comm.abort("enough")
    with pytest.raises(StarlingError) as caught:
        request.wait(30)
    return str(caught.value)


@pytest.mark.parametrize("machine", MACHINES)
def test_abort(machine: str) -> None:
    for text in run(machine, 2, aborted):
        assert "aborted by rank 0: enough" in text


def killed(comm: Communicator, sends: bool) -> str:
    value = np.zeros(1 << 20, "uint8")
    peer = 1 - comm.rank
    (comm.send(value, 1) if comm.rank == 0 else comm.recv(value, 0)).wait(30)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerFailedError) as caught:
        (comm.send(value, peer) if sends else comm.recv(value, peer)).wait(30)
    return str(caught.value)


@pytest.mark.parametrize("sends", [True, False])
def test_killed_peer(sends: bool) -> None:
    outcomes = run("processes", 2, functools.partial(killed, sends=sends), check=False)
    assert "rank 1" in outcomes[0].value
    assert "died" in outcomes[0].value
