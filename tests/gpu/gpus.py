"""Ranks on GPUs: as threads and as processes, one a GPU, or several as threads of one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling.launch import run_processes, run_threads


def count() -> int:
    import torch

    return int(torch.cuda.device_count())


def device_of(rank: int) -> str:
    """Round robin: several ranks share a GPU where there are fewer GPUs (threads only: processes take turns)."""
    return f"cuda:{rank % count()}"


@dataclass(frozen=True)
class GpuMachine:
    name: str
    launch: Callable[..., Any]

    def run(self, size: int, function: Any, *, context: dict | None = None, **arguments: Any) -> Any:
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
        return self.launch(size, function, context={**(context or {}), "device": device_of}, **arguments)


MACHINES = {
    machine.name: machine
    for machine in (GpuMachine("threads", run_threads), GpuMachine("processes", run_processes))
}
