"""What ranks do in the tests of hosts; importable by them."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from comm import failures
from conformance import call, cases
from hosts.ranks import touch, watched
from starling import Communicator
from starling.errors import MismatchError

DISTURBED_COUNT = 100_000
SMALL_COUNT = 20_000


def conformance(comm: Communicator, seed: int, share: int, shares: int) -> list[str]:
    """Problems of one share of the suite's cases, without plans that cannot cross hosts."""
    taken = [
        case
        for case in cases.chosen_cases(comm.size, share, shares, seed)
        if case.algorithm is None or not case.algorithm.endswith(("_packets", "_pull"))
    ]
    assert len(taken) > 20
    return [f"{one.case}: {one.problem}" for one in call.run_cases(comm, taken, seed) if one.problem]


def mismatch(comm: Communicator, what: str) -> Any:
    return failures.mismatch(comm, what=what, late_rank=comm.size - 1)


def packets(comm: Communicator) -> failures.Told:
    return failures.told(lambda: comm.all_reduce(failures.ones(4), algorithm="one_shot_packets").wait(200))


def leave_after_sending(comm: Communicator, count: int) -> float:
    """Rank 0 sends and leaves at once; the last rank looks for it later, from any source."""
    if comm.rank == 0:
        comm.send(np.arange(count, dtype=np.float32), comm.size - 1, tag=5).wait(200)
    elif comm.rank == comm.size - 1:
        time.sleep(0.2)
        received = np.zeros(count, np.float32)
        comm.recv(received, tag=5).wait(200)
        return float(np.array_equal(received, np.arange(count, dtype=np.float32)))
    return 1.0


def all_reduces_until(comm: Communicator, folder: str, stop: str = "stop") -> tuple[int, float]:
    """All-reduces, every element checked, until the file ``stop`` is there. How many, and the longest in seconds."""
    pattern = (np.arange(DISTURBED_COUNT) % 31).astype(np.float32)
    total = np.empty_like(pattern)
    longest = 0.0
    for iteration in range(1_000_000):
        begin = time.monotonic()
        comm.all_reduce(pattern + (comm.rank + iteration % 7), total).wait(200)
        longest = max(longest, time.monotonic() - begin)
        ranks = comm.size
        assert np.array_equal(total, ranks * (pattern + iteration % 7) + ranks * (ranks - 1) // 2), iteration
        if comm.rank == 0:
            touch(folder, f"done.{iteration}", str(time.monotonic()))
        # All leave in the same iteration.
        leaves = np.array([comm.rank == 0 and (Path(folder) / stop).exists()], np.int32)
        comm.all_reduce(leaves, lane="leave").wait(200)
        if leaves[0]:
            return iteration + 1, longest
    raise AssertionError("nobody said stop")


def crossing(comm: Communicator, collective: str, count: int) -> dict[int, float]:
    """By rank of another host, how much this one sends it in a call, in buffers of `count` float32; results checked."""
    from starling.monitor import Watcher

    watcher, calls = Watcher(), 4
    whole = (np.arange(count) % 251).astype(np.float32)
    part = np.array_split(whole, comm.size)[comm.rank]

    def run() -> None:
        if collective == "all_reduce":
            total = np.empty_like(whole)
            comm.all_reduce(whole + comm.rank, total).wait(200)
            assert np.array_equal(total, comm.size * whole + comm.size * (comm.size - 1) // 2)
        elif collective == "all_gather":
            gathered = np.empty_like(whole)
            comm.all_gather(part, gathered).wait(200)
            assert np.array_equal(gathered, whole)
        else:
            own = np.empty_like(part)
            comm.reduce_scatter(whole + comm.rank, own).wait(200)
            assert np.array_equal(own, comm.size * part + comm.size * (comm.size - 1) // 2)

    def landed() -> dict[int, int]:
        """When all that was sent has, and no more comes: who records transfers may have had no core for a while."""
        known: dict[int, int] | None = None
        while True:
            mine = watched(watcher, comm.rank)
            sent = {
                peer: sum(path.bytes for path in mine.paths if path.peer == peer)
                for peer in {path.peer for path in mine.paths}
            }
            if sent == known and not any(path.left_bytes for path in mine.paths):
                return sent
            known = sent
            time.sleep(0.3)

    run()  # connects
    comm.barrier().wait(200)
    before = landed()
    for _ in range(calls):
        run()
    comm.barrier().wait(200)
    after = landed()
    return {peer: (sent - before.get(peer, 0)) / (4 * count * calls) for peer, sent in after.items()}


def lose_a_host(comm: Communicator, folder: str) -> failures.Told:
    """All-reduces until they fail."""
    values = failures.ones(1000)

    def run() -> None:
        for iteration in range(1_000_000):
            comm.all_reduce(values, np.empty_like(values)).wait(200)
            if iteration == 5 and comm.rank == 0:
                touch(folder, "running")

    return failures.told(run)


def torch_training(rank: int, size: int, folder: str, backend: str, steps: int) -> list[float]:
    """DistributedDataParallel over the backend; the losses. Slowed, so that a disturbance meets it."""
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    import starling.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/torch.{backend}", rank=rank, world_size=size
    )
    total = torch.arange(1000.0) + rank
    dist.all_reduce(total)
    assert torch.equal(total, size * torch.arange(1000.0) + size * (size - 1) // 2)
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for step in range(steps):
        inputs = torch.randn(16, 64, generator=generator)
        labels = torch.randint(0, 8, (16,), generator=generator)
        loss = functional.cross_entropy(module(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if rank == 0:
            touch(folder, f"step.{step}")
        time.sleep(0.005)
    dist.destroy_process_group()
    return losses


def all_reduces_with_counts(comm: Communicator, folder: str) -> int:
    """All-reduces, every element checked, until the file ``stop`` is there. How many.

    Rank 0 keeps the file ``paths`` up to date: how many all-reduces are done and, of its paths, the bytes that landed
    and how often each was closed.
    """
    from starling.monitor import Watcher

    pattern = (np.arange(SMALL_COUNT) % 31).astype(np.float32)
    total, ranks = np.empty_like(pattern), comm.size
    leaves = np.zeros(1, np.int32)
    watcher = Watcher() if comm.rank == 0 else None
    for iteration in range(10_000_000):
        comm.all_reduce(pattern + (comm.rank + iteration % 7), total).wait(200)
        assert np.array_equal(total, ranks * (pattern + iteration % 7) + ranks * (ranks - 1) // 2), iteration
        if watcher is not None and iteration % 10 == 0:
            mine = watched(watcher, 0)
            paths = sorted(mine.paths, key=lambda path: path.path)
            counts = {"bytes": [path.bytes for path in paths], "closed": [path.closed for path in paths]}
            touch(folder, "paths", json.dumps({"done": iteration + 1, **counts}))
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.all_reduce(leaves, lane="leave").wait(200)
        if leaves[0]:
            return iteration + 1
    raise AssertionError("nobody said stop")


def pattern(rank: int, tag: int, count: int) -> np.ndarray:
    """No two pieces of a message are alike."""
    return ((np.arange(count) * 7 + rank * 31 + tag) % 251).astype("uint8")


def messages_through_failures(comm: Communicator, folder: str) -> int:
    """Messages there and back, every byte checked, until ``stop``."""
    count, tag = (3 << 20) + 7, 0
    value = np.zeros(count, "uint8")
    while True:
        last = comm.rank == 0 and (Path(folder) / "stop").exists()
        sent = pattern(comm.rank, tag, count)
        sent[0] = last
        if comm.rank == 0:
            comm.send(sent, 1).wait(60)
            comm.recv(value, 1).wait(60)
        else:
            comm.recv(value, 0).wait(60)
            last = bool(value[0])
            comm.send(sent, 0).wait(60)
        assert (value[1:] == pattern(1 - comm.rank, tag, count)[1:]).all(), f"message {tag}"
        tag += 1
        if tag == 3 and comm.rank == 0:
            (Path(folder) / "running").touch()
        if last:
            return tag


def mismatched_messages(comm: Communicator, counts: tuple[int, int]) -> str:
    """Who had already sent hears of it at one of the next calls."""
    value = np.full(counts[comm.rank], comm.rank + 1, "uint8")
    try:
        for _ in range(1000):
            (comm.send(value, 1, tag=8) if comm.rank == 0 else comm.recv(value, 0, tag=8)).wait(30)
            time.sleep(0.01)
    except MismatchError as error:
        time.sleep(0.2)
        assert (value == comm.rank + 1).all(), "written after the error"
        return str(error)
    raise AssertionError("nobody noticed")
