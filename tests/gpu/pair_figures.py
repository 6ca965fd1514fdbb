"""Measures a send and a receive of PyTorch between two ranks that share a GPU, or have one each:
``python tests/gpu/pair_figures.py``. As one ``batch_isend_irecv``, which begins as one kernel, and as two calls, in
turns in one run; microseconds a pair, the median of 7 rounds of 100.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = (8, 64 << 10, 1 << 20, 2 << 20, 8 << 20, 64 << 20)
ROUNDS, CALLS = 7, 100


def ways(own: torch.Tensor, received: torch.Tensor, other: int) -> dict[str, Callable[[], None]]:
    def batch() -> None:
        calls = [dist.P2POp(dist.isend, own, other), dist.P2POp(dist.irecv, received, other)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    def two() -> None:
        works = [dist.isend(own, other), dist.irecv(received, other)]
        for work in works:
            work.wait()

    return {"batch": batch, "two": two}


def timed(call: Callable[[], None]) -> float:
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) * 1e6 / CALLS)
    return statistics.median(rounds)


def measure(rank: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    import starling.torch  # noqa: F401

    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("starling", rank=rank, world_size=2, device_id=device)
    for size in SIZES:
        own = torch.ones(size // 4, device=device)
        calls = ways(own, torch.empty_like(own), 1 - rank)
        for turn in range(2):
            times = {name: timed(call) for name, call in calls.items()}
            if rank == 0:
                print(f"{size} B, turn {turn}: " + ", ".join(f"{n} {us:.1f} us" for n, us in times.items()))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(measure, nprocs=2)
