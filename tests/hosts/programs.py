"""What ranks do in the tests of hosts; importable by them."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from comm import failures
from comm.programs import disordered
from conformance import call, cases
from hosts.messages import NAMED_BYTES
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
        if case.algorithm is None or not case.algorithm.endswith(("_packets", "_pull", "_put"))
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


def cores_of_threads(comm: Communicator, core: str = "", pinned: int = 0) -> list[str]:
    """The cores that each thread of this process may run on, while it has links to other hosts: as soon as so many are
    on that core alone, or after a while. A thread that has just begun is not there yet."""
    comm.barrier().wait(200)
    deadline = time.monotonic() + 20
    while (cores := cores_by_thread()).count(core) != pinned and time.monotonic() < deadline:
        time.sleep(0.01)
    comm.barrier().wait(200)
    return cores


def cores_by_thread() -> list[str]:
    cores = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            cores.append(status["Cpus_allowed_list"].strip())
    return cores


def lose_a_host(comm: Communicator, folder: str) -> failures.Told:
    """All-reduces until they fail."""
    values = failures.ones(1000)

    def run() -> None:
        for iteration in range(1_000_000):
            comm.all_reduce(values, np.empty_like(values)).wait(200)
            if iteration == 5 and comm.rank == 0:
                touch(folder, "running")

    return failures.told(run)


class PathCounts:
    """What rank 0 keeps in the file ``paths``: iterations done and, of its paths by peer and number, the bytes that
    landed and how often each was closed. Another rank keeps nothing."""

    def __init__(self, rank: int, folder: str) -> None:
        from starling.monitor import Watcher

        self.folder = folder
        self.watcher = Watcher() if rank == 0 else None

    def keep(self, done: int) -> None:
        if self.watcher is None:
            return
        landed: dict[int, list[int]] = {}
        closed: dict[int, list[int]] = {}
        for path in watched(self.watcher, 0).paths:
            landed.setdefault(path.peer, [0, 0])[path.path] += path.bytes
            closed.setdefault(path.peer, [0, 0])[path.path] += path.closed
        touch(self.folder, "paths", json.dumps({"done": done, "bytes": landed, "closed": closed}))


def disordered_with_counts(comm: Communicator, folder: str, order: str, every: int, seed: int) -> int:
    """DFCCL's programs (comm/programs.py), every element checked, until the file ``stop`` is there. How many rounds."""
    counts = PathCounts(comm.rank, folder)
    leaves = np.zeros(1, np.int32)
    for iteration in range(1_000_000):
        disordered(comm, order, 1, every, seed, first=iteration)
        counts.keep(iteration + 1)
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.all_reduce(leaves, lane="leave").wait(200)
        if leaves[0]:
            return iteration + 1
    raise AssertionError("nobody said stop")


def torch_training(rank: int, size: int, folder: str) -> tuple[list[float], list[float]]:
    """The losses of DistributedDataParallel until the file ``stop`` is there, and those of the same steps after it."""
    import torch
    import torch.distributed as dist

    import starling.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("starling", init_method=f"file://{folder}/torch", rank=rank, world_size=size)
    counts = PathCounts(rank, folder)

    def told_to_go_on(done: int) -> bool:
        counts.keep(done)
        leaves = torch.tensor([rank == 0 and (Path(folder) / "stop").exists()], dtype=torch.int32)
        dist.all_reduce(leaves)
        return not leaves

    disturbed = train(rank, told_to_go_on)
    undisturbed = train(rank, lambda done: done < len(disturbed))
    dist.destroy_process_group()
    return disturbed, undisturbed


def train(rank: int, go_on: Callable[[int], bool]) -> list[float]:
    """From the same beginning, as long as all are to go on after so many steps. The losses."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(100 + rank)
    losses: list[float] = []
    while go_on(len(losses)):
        inputs = torch.randn(16, 64, generator=generator)
        labels = inputs[:, :8].argmax(1)
        loss = functional.cross_entropy(module(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def all_reduces_with_counts(comm: Communicator, folder: str) -> int:
    """All-reduces, every element checked, until the file ``stop`` is there. How many."""
    pattern = (np.arange(SMALL_COUNT) % 31).astype(np.float32)
    total, ranks = np.empty_like(pattern), comm.size
    leaves = np.zeros(1, np.int32)
    counts = PathCounts(comm.rank, folder)
    for iteration in range(10_000_000):
        comm.all_reduce(pattern + (comm.rank + iteration % 7), total).wait(200)
        assert np.array_equal(total, ranks * (pattern + iteration % 7) + ranks * (ranks - 1) // 2), iteration
        if iteration % 10 == 0:
            counts.keep(iteration + 1)
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.all_reduce(leaves, lane="leave").wait(200)
        if leaves[0]:
            return iteration + 1
    raise AssertionError("nobody said stop")


def timed_all_reduces(comm: Communicator, folder: str, count: int) -> list[float]:
    """Of so many float32, until the file ``stop`` is there: when each was done. Rank 0 keeps its PathCounts."""
    values, total = np.ones(count, np.float32), np.empty(count, np.float32)
    leaves = np.zeros(1, np.int32)
    counts, kept = PathCounts(comm.rank, folder), 0.0
    done: list[float] = []
    while not leaves[0]:
        comm.all_reduce(values, total).wait(200)
        assert total[-1] == comm.size
        done.append(time.monotonic())
        if done[-1] - kept > 0.02:
            kept = done[-1]
            counts.keep(len(done))
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.all_reduce(leaves, lane="leave").wait(200)
    return done


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
        # A large receive may have got bytes of the wrong message before (docs/ERRORS.md).
        named = comm.rank == 1 and counts[1] >= NAMED_BYTES
        told = value.copy() if named else np.full_like(value, comm.rank + 1)
        time.sleep(0.2)
        assert (value == told).all(), "written after the error" if named else "written"
        return str(error)
    raise AssertionError("nobody noticed")
