"""Programs of lanes, groups, messages and callbacks, each rank's side, importable by its processes."""

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from comm.failures import segments, told
from starling import Communicator, Recv, Send, wait_all
from starling.stores import InProcessStore

MB = 1 << 20


def sums(comm: Communicator, lanes: list[str], count: int, seed: int) -> None:
    """One all_reduce in each lane, in an order of this rank's own; every result is checked."""
    order = random.Random(seed * 100 + comm.rank).sample(lanes, len(lanes))
    arrays = {lane: np.full(count, number + comm.rank, np.float32) for number, lane in enumerate(lanes)}
    wait_all([comm.all_reduce(arrays[lane], lane=lane) for lane in order])
    ranks = comm.size
    for number, lane in enumerate(lanes):
        expected = ranks * number + ranks * (ranks - 1) // 2
        assert (arrays[lane] == expected).all(), (lane, arrays[lane][0], expected)


def _resident_shared_bytes() -> int:
    """This process's share of the shared memory that it has touched, its peers' segments included."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Shmem:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Pss_Shmem in /proc/self/smaps_rollup")


def _stored_bytes() -> int:
    """Of all segments of the job: what /dev/shm really holds."""
    return sum(os.stat(name).st_blocks * 512 for name in segments() if Path(name).exists())


def many_lanes(comm: Communicator, lanes: int) -> dict[str, int]:
    """Memory that so many lanes cost, as the library counts it and as the system does."""
    comm.all_reduce(np.ones(1024, np.float32)).wait(100)
    comm.barrier().wait(100)
    before, stored_before = _resident_shared_bytes(), _stored_bytes()
    names = [f"lane {number}" for number in range(lanes)]
    for first in range(0, lanes, 50):  # so many operations under way at a time
        sums(comm, names[first : first + 50], 4096, first)
    comm.barrier().wait(100)
    result = {
        "resident": _resident_shared_bytes() - before,
        "stored_a_rank": (_stored_bytes() - stored_before) // comm.size,
        "lane_bytes": comm.context.statistics().lane_bytes,
        "lanes": comm.context.statistics().lanes,
    }
    comm.barrier().wait(100)
    return result


def lanes_in_any_order(comm: Communicator) -> None:
    """New lanes appear in another order on every rank, again and again."""
    for round_number in range(5):
        sums(comm, [f"{round_number}/{number}" for number in range(20)], 500, round_number)
        sums(comm, [f"0/{number}" for number in range(20)], 500, round_number)


def registered(comm: Communicator, rounds: int) -> int:
    """DFCCL's API: registration at run time and runs, both in an order of this rank's own; device sets overlap."""
    source = random.Random(comm.rank)
    ranks = list(range(comm.size))
    sets = {0: ranks, 1: ranks[:2], 2: ranks[1:], 3: ranks, 4: ranks[:2], 5: ranks[1:]}
    mine = [number for number, devices in sets.items() if comm.rank in devices]
    count = 1000
    done: list[Any] = []
    finished = threading.Semaphore(0)

    def on_completion(error: Any) -> None:
        done.append(error)
        finished.release()

    for number in source.sample(mine, len(mine)):
        comm.register(number, "all_reduce", count, "float32", "sum", devices=sets[number])
        arrays = np.full(count, comm.rank + 1, np.float32)
        comm.run(number, arrays, arrays, on_completion)  # at once, others are not registered yet
    for _ in mine:
        assert finished.acquire(timeout=100)
    for _ in range(rounds):
        buffers = {number: np.full(count, comm.rank + 1, np.float32) for number in mine}
        for number in source.sample(mine, len(mine)):
            comm.run(number, buffers[number], buffers[number], on_completion)
        for _ in mine:
            assert finished.acquire(timeout=100)
        for number in mine:
            assert (buffers[number] == sum(rank + 1 for rank in sets[number])).all()
    assert done == [None] * len(done)
    return len(done)


def callbacks_submit(comm: Communicator, rounds: int) -> int:
    """Each completion submits the next operation, from the library's own thread, in three lanes at a time."""
    finished = threading.Semaphore(0)
    errors: list[Any] = []
    counters = dict.fromkeys("abc", 0)
    arrays = {lane: np.ones(64, np.float64) for lane in counters}

    def submit(lane: str) -> None:
        comm.all_reduce(arrays[lane], op="max", lane=lane, callback=lambda error: after(lane, error))

    def after(lane: str, error: Any) -> None:
        errors.extend([error] if error else [])
        counters[lane] += 1
        if error or counters[lane] == rounds:
            finished.release()
        else:
            submit(lane)

    for lane in random.Random(comm.rank).sample("abc", 3):
        submit(lane)
    for _ in counters:
        assert finished.acquire(timeout=100), (counters, errors)
    assert not errors
    return sum(counters.values())


def split(comm: Communicator) -> list[Any]:
    """Even and odd ranks, in reverse order; a rank without a group; groups inside groups; a subgroup by ranks."""
    group = comm.split(comm.rank % 2, -comm.rank)
    assert group is not None
    gathered = np.zeros(group.size, np.int64)
    group.all_gather(np.array([comm.rank]), gathered).wait(100)
    assert gathered.tolist() == sorted((r for r in range(comm.size) if r % 2 == comm.rank % 2), reverse=True)
    without = comm.split(-1 if comm.rank == 0 else 0)
    assert (without is None) == (comm.rank == 0)
    pair = group.split(group.rank // 2)
    assert pair is not None
    total = np.array([comm.rank])
    pair.all_reduce(total).wait(100)
    chosen = [3, 0, 1]
    subgroup = comm.subgroup(chosen, "three") if comm.rank in chosen else None
    order: list[int] = []
    if subgroup is not None:
        assert subgroup.rank == chosen.index(comm.rank)
        received = np.zeros(3, np.int64)
        subgroup.all_gather(np.array([comm.rank]), received).wait(100)
        order = received.tolist()
    # Lanes of one name in different groups are different lanes.
    requests = [g.all_reduce(np.ones(10, np.float32), lane="x") for g in (comm, group, pair)]
    if comm.rank % 2:
        requests.reverse()
    wait_all(requests, 100)
    comm.barrier().wait(100)
    return [gathered.tolist(), int(total[0]), order]


def groups_of_one_name(comm: Communicator) -> None:
    """Two subgroups of one name are two groups: one may go, or be aborted by whichever rank, and the other works."""
    ranks = list(range(comm.size))
    for culprit in ranks[:2]:
        first, second = comm.subgroup(ranks, "twin"), comm.subgroup(ranks, "twin")
        assert first is not None
        assert second is not None
        sums(first, ["default"], 100, culprit)
        sums(second, ["default"], 100, culprit)
        if comm.rank == culprit:
            first.abort("the test says so")
        first.destroy()
        sums(second, ["default"], 100, culprit)
        second.destroy()


def again_after_abort(comm: Communicator, store: InProcessStore) -> None:
    """A group that was aborted on one rank is made again, with its name: nothing of the first one is left."""
    for attempt in range(3):
        group = Communicator(
            comm.context, rank=comm.rank, size=comm.size, name="again", store=store, timeout=100
        )
        sums(group, ["default"], 100, attempt)
        comm.barrier().wait(100)
        if comm.rank == attempt % comm.size:
            group.abort("the test says so")
        comm.barrier().wait(100)
        group.destroy()
        comm.barrier().wait(100)


def messages(comm: Communicator, rounds: int) -> None:
    """Crossed sends, in batches of an order of this rank's own, to oneself too; tags do not disturb each other."""
    source = random.Random(comm.rank)
    for round_number in range(rounds):
        count = (0, 1, 1000, 40000)[round_number % 4]
        sent = {
            (peer, tag): np.full(count, 1000 * comm.rank + 10 * peer + tag, np.int32)
            for peer in range(comm.size)
            for tag in (0, 7)
        }
        received = {key: np.zeros(count, np.int32) for key in sent}
        batch: list[Send | Recv] = [Send(buffer, peer, tag) for (peer, tag), buffer in sent.items()]
        batch += [Recv(buffer, peer, tag) for (peer, tag), buffer in received.items()]
        source.shuffle(batch)
        wait_all(comm.batch(batch), 100)
        for (peer, tag), buffer in received.items():
            assert (buffer == 1000 * peer + 10 * comm.rank + tag).all(), (peer, tag)


def any_source(comm: Communicator, rounds: int) -> list[int]:
    """Rank 0 receives from whoever sends; the source must be the one that the message says."""
    if comm.rank != 0:
        for number in range(rounds):
            time.sleep(random.Random(comm.rank * 1000 + number).random() * 0.002)
            comm.send(np.array([comm.rank, number]), 0, tag=3).wait(100)
        return []
    counts = [0] * comm.size
    for _ in range(rounds):
        buffers = [np.zeros(2, np.int64) for _ in range(comm.size - 1)]
        requests = [comm.recv(buffer, tag=3) for buffer in buffers]  # several wait at a time
        for buffer, request in zip(buffers, requests, strict=True):
            request.wait(100)
            assert request.source == buffer[0], (request.source, buffer)
            assert buffer[1] == counts[request.source], "messages of one sender overtook each other"
            counts[request.source] += 1
    return counts


def small_operations(comm: Communicator, operations: int, under_way: int) -> None:
    """Many small operations in one lane, so many under way at a time."""
    arrays = [np.zeros(2, np.int64) for _ in range(under_way)]
    requests: list[Any] = [None] * under_way
    for number in range(operations):
        slot = number % under_way
        if requests[slot] is not None:
            requests[slot].wait(100)
            assert arrays[slot][0] == comm.size * (number - under_way)
        arrays[slot][:] = number
        requests[slot] = comm.all_reduce(arrays[slot])
    wait_all([request for request in requests if request is not None], 100)


def priorities(comm: Communicator) -> list[str]:
    """Operations queue behind a gate (a lane whose last rank comes late); gives the order of their completions."""
    order: list[str] = []
    lanes = [("low", 0), ("middle", 5), ("high", 9)]
    if comm.rank == comm.size - 1:
        time.sleep(0.3)
    requests = []
    for lane, priority in lanes:
        requests.append(
            comm.all_reduce(
                np.ones(1 << 18, np.float32),
                lane=lane,
                priority=priority,
                callback=lambda error, lane=lane: order.append(lane),
            )
        )
    wait_all(requests, 100)
    deadline = time.monotonic() + 60
    while len(order) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    return order


def repeated_communicators(comm: Communicator, rounds: int) -> int:
    """Groups come and go; their memory is given back."""
    used = []
    for number in range(rounds):
        group = comm.subgroup(list(range(comm.size)), f"group {number}")
        assert group is not None
        group.all_reduce(np.ones(5000, np.float32)).wait(100)
        group.barrier().wait(100)
        group.destroy()
        used.append(comm.context.statistics().lanes)
    comm.barrier().wait(100)
    assert told(lambda: group.barrier())[0] == "InvalidArgumentError"
    return max(used) - min(used)
