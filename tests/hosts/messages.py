"""What ranks do in the tests of large messages; importable by them. Each runs on ranks 0 and 1."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from comm import failures
from hosts.ranks import touch
from starling import Communicator

NAMED_BYTES = 2 << 20  # kNamedBytes (src/wire/carried.h)
SLOTS_BYTES = 8 << 20  # of a lane of messages
UNTOUCHED, OVERWRITTEN = 0xA5, 0xEE


def pattern(rank: int, tag: int, count: int) -> np.ndarray:
    """No two pieces of a message are alike, nor two messages."""
    words = (np.arange(count // 4 + 1, dtype=np.uint32) * 2654435761 + rank * 977 + tag * 31) ^ 0x5BD1E995
    return words.view("uint8")[:count]


def check(value: np.ndarray, rank: int, tag: int) -> None:
    wrong = np.flatnonzero(value != pattern(rank, tag, value.size))
    assert wrong.size == 0, f"message {tag} of {value.size} bytes: {wrong.size} are wrong from {wrong[0]} on"


def sizes_around(unit: int) -> list[int]:
    return [unit - 1, unit, unit + 1]


def of_sizes(comm: Communicator, early: bool) -> None:
    """Both ways at a time, at sizes around the limit and that of pieces; early: sends before their receives."""
    peer = 1 - comm.rank
    sizes = [
        size
        for unit in (1 << 18, NAMED_BYTES, 2 * NAMED_BYTES, 11 * NAMED_BYTES)
        for size in sizes_around(unit)
    ]
    for tag, count in enumerate([*sizes, 8, 24 * NAMED_BYTES + 5, 8]):
        sent, value = pattern(comm.rank, tag, count), np.full(count, UNTOUCHED, "uint8")
        send = comm.send(sent, peer) if early else None
        if early:
            time.sleep(0.02)
        receive = comm.recv(value, peer)
        (send or comm.send(sent, peer)).wait(60)
        sent[:] = UNTOUCHED  # the caller's again: what is still to be sent would be wrong
        receive.wait(60)
        check(value, peer, tag)


def crossed(comm: Communicator, seed: int) -> None:
    """Several tags, small and large by chance, all sends first in an order of the rank's own; then all receives."""
    peer, count = 1 - comm.rank, 40
    lengths = np.random.default_rng(seed).choice(
        [100, 1 << 19, NAMED_BYTES, NAMED_BYTES + (1 << 20) + 17], count
    )
    order = np.random.default_rng(seed + comm.rank).permutation(5)
    sends = [
        comm.send(pattern(comm.rank, m, lengths[m]), peer, tag=int(tag))
        for tag in order
        for m in range(int(tag), count, 5)
    ]
    values = {m: np.full(lengths[m], UNTOUCHED, "uint8") for m in range(count)}
    receives = [
        comm.recv(values[m], peer, tag=int(tag)) for tag in order[::-1] for m in range(int(tag), count, 5)
    ]
    for request in sends + receives:
        request.wait(100)
    for message, value in values.items():
        check(value, peer, message)


def one_send_is_over_first(comm: Communicator) -> float:
    """A send that fits in slots needs no receive, once the two have met; how long it took."""
    count = SLOTS_BYTES
    took = 0.0
    first = np.zeros(8, "uint8")
    (comm.send(first, 1) if comm.rank == 0 else comm.recv(first, 0)).wait(60)
    if comm.rank == 0:
        begin = time.monotonic()
        comm.send(pattern(0, 0, count), 1).wait(60)
        took = time.monotonic() - begin
        comm.barrier().wait(60)
    else:
        comm.barrier().wait(60)
        value = np.zeros(count, "uint8")
        comm.recv(value, 0).wait(60)
        check(value, 0, 0)
    return took


def through_failures(comm: Communicator, folder: str) -> int:
    """Messages there and back, every byte checked, until ``stop``."""
    count, tag = (24 << 20) + 7, 0
    value = np.zeros(count, "uint8")
    while True:
        last = comm.rank == 0 and (Path(folder) / "stop").exists()
        sent = pattern(comm.rank, tag, count).copy()
        sent[0] = last
        for sender in (0, 1):
            request = comm.send(sent, 1 - comm.rank) if comm.rank == sender else comm.recv(value, sender)
            request.wait(60)
            if comm.rank != sender == 0:
                last = bool(value[0])
        value[0] = pattern(1 - comm.rank, tag, 1)[0]
        check(value, 1 - comm.rank, tag)
        tag += 1
        if comm.rank == 0:
            touch(folder, f"done.{tag}")
        if last:
            return tag


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def amid_a_message(comm: Communicator, folder: str, fault: str, culprit: int) -> tuple[str, str, float]:
    """Rank 0's large message to rank 1 is under way when the culprit dies, aborts, or both have waited too long.

    What the rank was told, and after how many seconds. From then on the link has nothing to do with its buffer: the
    receiver's stays as it is, and of what the sender writes into its own nothing arrives.
    """
    count = 200 << 20
    amid = Path(folder) / "amid"
    sent = pattern(0, 0, count)
    value = sent.copy() if comm.rank == 0 else np.full(count, UNTOUCHED, "uint8")
    comm.barrier().wait(60)
    timeout = 1.0 if fault == "timeout" else 60
    if comm.rank == 0:
        request = comm.send(value, 1, timeout=timeout)
        until(amid.exists)
    else:
        request = comm.recv(value, 0, timeout=timeout)
        # Or it came so late to its receive that the sender has waited too long.
        until(lambda: request.done or bool((value[: 1 << 20] != UNTOUCHED).any()))
        touch(folder, "amid")
    begin = time.monotonic()
    if comm.rank == culprit:
        assert not request.done, "the message was faster than the fault"
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "abort":
            comm.abort("enough")
    kind, text = failures.told(lambda: request.wait(60))
    took = time.monotonic() - begin
    if comm.rank == 0:
        value[:] = OVERWRITTEN
        time.sleep(1.0)
    else:
        then = value.copy()
        time.sleep(1.0)
        assert (value == then).all(), "written after the error"
        assert ((then == sent) | (then == UNTOUCHED)).all(), "what was sent after the error"
        assert (then != sent).any(), "the message was whole"
    if fault == "timeout":  # the lane alone is broken
        small = pattern(0, 1, NAMED_BYTES + 3)
        other = np.zeros_like(small)
        (comm.send(small, 1, tag=1) if comm.rank == 0 else comm.recv(other, 0, tag=1)).wait(60)
        if comm.rank == 1:
            check(other, 0, 1)
    return kind, text, took


def a_buffer_of_two_lanes(comm: Communicator) -> None:
    for k in range(4):
        used_again(comm, 2 * k, 2 * k + 1)


def used_again(comm: Communicator, early: int, later: int) -> None:
    """A receive that comes after its message; its lane breaks when its buffer has a message of another lane."""
    count, never = SLOTS_BYTES, np.zeros(8, "uint8")
    # A send that is over before its receive is one to a rank that has the lane.
    (comm.send(never, 1, tag=early) if comm.rank == 0 else comm.recv(never, 0, tag=early)).wait(60)
    if comm.rank == 0:
        comm.send(pattern(0, early, count), 1, tag=early).wait(60)
        comm.barrier().wait(60)
        comm.send(pattern(0, later, count), 1, tag=later).wait(60)
        return
    comm.barrier().wait(60)
    value = np.zeros(count, "uint8")
    comm.recv(value, 0, tag=early).wait(60)
    check(value, 0, early)
    value[:] = UNTOUCHED
    request = comm.recv(value, 0, tag=later)
    until(lambda: bool((value[: 1 << 20] != UNTOUCHED).any()))
    kind, text = failures.told(lambda: comm.recv(never, 0, tag=early, timeout=0.001).wait(60))
    assert kind == "OperationTimeoutError", text
    request.wait(60)
    check(value, 0, later)
