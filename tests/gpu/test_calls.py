"""Goal: operations that the CPU calls in a row are right, and cost a launch only now and then: a kernel that has stayed
takes the next one (docs/design/0024-calls-without-launches.md).

Method: two and four ranks, as threads and as processes. Buffers are used again and filled by other kernels in between,
so what such a kernel had in its caches is old; pauses end about when it leaves; sizes change, so the next one needs
another kernel, or none that stays; two threads of a rank call in lanes of their own. torch's profiler (CUPTI) counts
launches.
"""

import functools
import os
import random
import threading
import time
from typing import Any

import pytest

from gpu import gpus
from starling import Communicator
from starling.errors import MismatchError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
WAIT_S = 20
CALLS = 600
PAUSES_S = (0, 0, 0, 50e-6, 95e-6, 100e-6, 105e-6, 150e-6, 3e-3)
COUNTS = (1, 3, 64, 500, 2048, 2048, 40_000)  # of 4 bytes: to 8 KiB a kernel stays; the last has more blocks
IN_A_ROW = 200
ROWS = 5


@pytest.fixture(params=(2, 4))
def ranks(request: pytest.FixtureRequest) -> int:
    gpus.skip_unless(request.param)
    return int(request.param)


@pytest.fixture(params=("threads", "processes"))
def machine(request: pytest.FixtureRequest, ranks: int) -> str:
    gpus.skip_if_shared(str(request.param), ranks)
    return str(request.param)


def calls(comm: Communicator, seed: int, lane: str | None = None, count: int = CALLS) -> int:
    """So many calls in one order on all ranks, each compared; how many were wrong."""
    import torch

    chance = random.Random(seed)
    own = random.Random(100 * seed + comm.rank)
    stream = torch.cuda.Stream(comm.context.device)
    data = {n: torch.empty(n, device=comm.context.device) for n in COUNTS}
    out = {n: torch.empty(n, device=comm.context.device) for n in COUNTS}
    gathered = {n: torch.empty(n * comm.size, device=comm.context.device) for n in COUNTS}
    wrong = torch.zeros((), dtype=torch.int64, device=comm.context.device)
    for turn in range(count):
        n, kind = chance.choice(COUNTS), chance.choice(("all_reduce", "all_gather", "broadcast", "barrier"))
        with torch.cuda.stream(stream):
            data[n].fill_(turn + comm.rank)
        stream.synchronize()
        if kind == "all_reduce":
            comm.all_reduce(data[n], out[n], lane=lane).wait(WAIT_S)
            got, expected = out[n], comm.size * turn + comm.size * (comm.size - 1) // 2
        elif kind == "broadcast":
            root = turn % comm.size
            comm.broadcast(data[n], out[n], root, lane=lane).wait(WAIT_S)
            got, expected = out[n], turn + root
        elif kind == "all_gather":
            comm.all_gather(data[n], gathered[n], lane=lane).wait(WAIT_S)
            got, expected = gathered[n][-n:], turn + comm.size - 1
        else:
            comm.barrier(lane=lane).wait(WAIT_S)
            continue
        with torch.cuda.stream(stream):
            wrong += (got != expected).sum()
        if own.random() < 1 / 16:
            torch.cuda.synchronize()
        time.sleep(own.choice(PAUSES_S))
    stream.synchronize()
    return int(wrong)


def test_right_results(machine: str, ranks: int) -> None:
    wrong = gpus.MACHINES[machine].run(
        ranks, functools.partial(calls, seed=1), timeout=100, operation_timeout=10
    )
    assert wrong == [0] * ranks


def two_threads(comm: Communicator) -> list[int]:
    import torch

    results: list[int] = []

    def one(seed: int) -> None:
        torch.cuda.set_device(comm.context.device)
        results.append(calls(comm, seed, lane=f"thread {seed}", count=CALLS // 2))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_threads_call(machine: str, ranks: int) -> None:
    wrong = gpus.MACHINES[machine].run(ranks, two_threads, timeout=100, operation_timeout=10)
    assert wrong == [[0, 0]] * ranks


def mismatched(comm: Communicator) -> list[str]:
    """A call that fails as soon as it is made, when another has just ended: what is called behind it goes on."""
    import torch

    small, large = torch.ones(64, device=comm.context.device), torch.ones(40_000, device=comm.context.device)
    out = torch.empty_like(large)
    seen = []
    for turn in range(3):
        lane = f"lane {turn}"
        comm.barrier().wait(WAIT_S)
        torch.cuda.synchronize()
        theirs = comm.all_reduce(small, out[:64], lane=lane) if comm.rank == 0 else None
        time.sleep(0.05 * comm.rank)
        comm.all_reduce(large, out).wait(WAIT_S)
        try:
            (theirs or comm.all_reduce(small[:32], out[:32], lane=lane)).wait(WAIT_S)
        except MismatchError:
            seen.append("mismatch")
        for _ in range(20):
            comm.all_reduce(small, out[:64]).wait(WAIT_S)
        seen.append("right" if bool((out[:64] == comm.size).all()) else "wrong")
    return seen


def test_a_call_that_fails_at_once(machine: str, ranks: int) -> None:
    results = gpus.MACHINES[machine].run(ranks, mismatched, timeout=60, operation_timeout=10)
    assert results == [["mismatch", "right"] * 3] * ranks


def launched(comm: Communicator) -> list[int]:
    """Kernels in some rows of calls."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    data = torch.ones(64, device=comm.context.device)
    out = torch.empty_like(data)
    counts = []
    for _ in range(ROWS):
        comm.barrier().wait(WAIT_S)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(IN_A_ROW):
                comm.all_reduce(data, out).wait(WAIT_S)
            torch.cuda.synchronize()
        events = profiler.events()
        counts.append(sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events))
    return counts


@pytest.mark.parametrize("linger_us", ["2000", "0"])
def test_launches(linger_us: str, ranks: int) -> None:
    """Without a kernel that stays each call has one of its own. With it a row of them has few, where its process
    has the GPU meanwhile: one that is stuck leaves."""
    environment: dict[str, Any] = {
        "STARLING_CALL_LINGER_US": linger_us,
        "STARLING_JOB": f"calls-{os.getpid()}",
    }
    counts = gpus.MACHINES["processes"].run(
        ranks, launched, timeout=60, operation_timeout=10, environment=environment
    )
    print(counts)
    for rows in counts:
        assert min(rows) >= IN_A_ROW if linger_us == "0" else min(rows) < IN_A_ROW // 2
