"""What streams and libraries cost a program's own kernels by being there: the time of small kernels in a row, each of
which waits for the one before it, on a GPU on which nothing else runs (docs/GPU_PROBE.md).

    python bench/gpu/kernel_gaps.py streams              one more stream used, step by step; then beside some that stand
    python bench/gpu/kernel_gaps.py starling|nccl [N]    N GPUs: before and after each step of using the library

A row stands behind a kernel that waits, so no caller counts. Printed by rank 0: us a kernel, the median and the least
of nine rows.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import os
import statistics
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROWS, KERNELS, SLEEP_CYCLES = 9, 400, 20_000_000


class Standing:
    """Streams that stand while a row runs, for a word of the GPU's or the host's memory."""

    def __init__(self, count: int, memory: str) -> None:
        self.streams = [torch.cuda.Stream() for _ in range(count)]
        word = torch.zeros(1, dtype=torch.int64)
        self.word = word.pin_memory() if memory == "host" else word.cuda()
        self.number = 0
        self.driver = ctypes.CDLL("libcuda.so.1")

    def stand(self) -> None:
        self.number += 1
        for stream in self.streams:
            self._put("cuStreamWaitValue64_v2", stream)

    def release(self) -> None:
        """Behind what is in the current stream."""
        self._put("cuStreamWriteValue64_v2", torch.cuda.current_stream())

    def _put(self, name: str, stream: torch.cuda.Stream) -> None:
        word = ctypes.c_uint64(self.word.data_ptr())
        status = getattr(self.driver, name)(
            ctypes.c_void_p(stream.cuda_stream), word, ctypes.c_uint64(self.number), 0
        )
        if status != 0:
            raise RuntimeError(f"{name}: {status}")


def measure(what: str, rank: int = 0, numel: int = 1, standing: Standing | None = None) -> None:
    x = torch.zeros(numel, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    us = []
    for _ in range(ROWS):
        torch.cuda.synchronize()
        torch.cuda._sleep(SLEEP_CYCLES)
        if standing is not None:
            standing.stand()
        begin.record()
        for _ in range(KERNELS):
            x.add_(1)
        end.record()
        if standing is not None:
            standing.release()
        torch.cuda.synchronize()
        us.append(1000 * begin.elapsed_time(end) / KERNELS)
    if rank == 0:
        print(f"| {what} | {statistics.median(us):.2f} | {min(us):.2f} |", flush=True)


def run_library(rank: int, library: str, ranks: int) -> None:
    torch.cuda.set_device(rank)
    measure("before", rank)
    if library == "starling":
        import starling.torch  # noqa: F401
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29571")
    dist.init_process_group(library, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
    measure("group made", rank)
    for numel in (1, 1 << 16, 1 << 24):
        dist.all_reduce(torch.ones(numel, device="cuda"))
        torch.cuda.synchronize()
        measure(f"all_reduce of {4 * numel} bytes", rank)
    dist.barrier()
    dist.destroy_process_group()
    measure("group destroyed", rank)


def run_streams() -> None:
    kept: list[object] = []

    def use(priority: int) -> None:
        stream = ctypes.c_void_p()
        status = ctypes.CDLL("libcudart.so.13").cudaStreamCreateWithPriority(
            ctypes.byref(stream), 1, priority
        )
        if status != 0:
            raise RuntimeError(f"cudaStreamCreateWithPriority: {status}")
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.value or 0)):
            kept.append(torch.zeros(1, device="cuda").add_(1))
        torch.cuda.synchronize()

    steps: list[tuple[str, Callable[[], None]]] = [("before", lambda: None)]
    steps += [(f"{k} streams of ordinary priority used", functools.partial(use, 0)) for k in range(1, 13)]
    steps += [(f"one of priority {-k} used", functools.partial(use, -k)) for k in range(1, 6)]
    for what, step in steps:
        step()
        measure(what)
    for numel in (1, 1 << 22):
        for memory in ("device", "host"):
            for count in (0, 1, 2, 4, 7):
                standing = Standing(count, memory)
                what = f"{numel} elements, beside {count} streams that wait for a word of {memory} memory"
                measure(what, numel=numel, standing=standing)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("streams", "starling", "nccl"):
        print(__doc__)
        sys.exit(2)
    library = sys.argv[1]
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    print(f"# {library}\n| | median us | least us |\n| --- | ---: | ---: |", flush=True)
    if library == "streams":
        run_streams()
    else:
        mp.spawn(run_library, args=(library, ranks), nprocs=ranks)
