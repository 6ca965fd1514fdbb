"""Ranks on GPUs: as threads and as processes, one a GPU, or several that share one."""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from starling import Communicator
from starling.launch import run_processes, run_threads


def count() -> int:
    import torch

    return int(torch.cuda.device_count())


def places() -> int:
    """So many ranks may be processes at once: as many as there are GPUs, or RANKS_PER_GPU times as many.

    Processes that share a GPU take turns on it, which is right and slow, unless CUDA's MPS runs
    (``scripts/gpu_run.sh`` starts it)."""
    return count() * int(os.environ.get("RANKS_PER_GPU", "1"))


def skip_unless(processes: int) -> None:
    if processes > places():
        pytest.skip(
            f"{processes} processes need as many GPUs, or RANKS_PER_GPU of them share one; here are {places()}"
        )


def skip_if_shared(machine: str, ranks: int = 2) -> None:
    """For programs that synchronize the device: of threads that share one it waits for both ranks' streams."""
    if machine == "threads" and count() < ranks:
        pytest.skip("a device synchronization waits for the streams of both ranks")


def device_of(rank: int) -> str:
    """Round robin: several ranks share a GPU where there are fewer GPUs."""
    return f"cuda:{rank % count()}"


def on_device(function: Callable[..., Any], comm: Communicator) -> Any:
    """``function(comm)`` with the rank's device as the current one, whose streams ``synchronize()`` waits for."""
    import torch

    torch.cuda.set_device(comm.context.device)
    return function(comm)


@functools.cache
def import_once() -> None:
    """Processes are forked from one that has imported PyTorch, which takes each some seconds, and made no CUDA call."""
    multiprocessing.set_forkserver_preload(["numpy", "starling.launch", "torch"])
    multiprocessing.forkserver.ensure_running()


@dataclass(frozen=True)
class GpuMachine:
    name: str
    launch: Callable[..., Any]

    def run(self, size: int, function: Any, *, context: dict | None = None, **arguments: Any) -> Any:
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
        import_once()
        function = functools.partial(on_device, function)
        return self.launch(size, function, context={**(context or {}), "device": device_of}, **arguments)


MACHINES = {
    machine.name: machine
    for machine in (GpuMachine("threads", run_threads), GpuMachine("processes", run_processes))
}
