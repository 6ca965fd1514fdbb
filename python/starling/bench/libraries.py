"""The libraries that can be measured, and how their ranks are started."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .programs import find_program
from .workers import Launch, WorkerGroup

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class MissingLibraryError(RuntimeError):
    """A library to compare with is not installed; the text holds the remedy."""


@dataclass(frozen=True)
class Choices:
    """What a run gives to all libraries' programs."""

    programs: Path | None = None
    arguments: tuple[str, ...] = ()  # for Starling's program


@dataclass(frozen=True)
class Variant:
    """One way of running a library; where a library has several, the fastest counts."""

    name: str
    launches: Callable[[Path, int], list[Launch]]


@dataclass(frozen=True)
class Library:
    name: str
    help: str
    variants: list[Variant] = field(default_factory=list)

    def start(self, size: int, timeout_s: float) -> list[WorkerGroup]:
        groups: list[WorkerGroup] = []
        try:
            for variant in self.variants:

                def launches(folder: Path, variant: Variant = variant) -> list[Launch]:
                    return variant.launches(folder, size)

                groups.append(WorkerGroup(variant.name, size, launches, timeout_s=timeout_s))
        except BaseException:
            for group in groups:
                group.close()
            raise
        return groups


def starling_launches(choices: Choices, extra: list[str]) -> Callable[[Path, int], list[Launch]]:
    program = str(find_program("collective_bench", choices.programs))

    def launches(folder: Path, size: int) -> list[Launch]:
        job = {"STARLING_JOB": f"bench-{uuid.uuid4().hex}"}
        return [
            Launch(
                [
                    program,
                    "--pipes",
                    str(folder),
                    "--rank",
                    str(r),
                    "--size",
                    str(size),
                    *choices.arguments,
                    *extra,
                ],
                job,
            )
            for r in range(size)
        ]

    return launches


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torch_launches(backend: str) -> Callable[[Path, int], list[Launch]]:
    def launches(folder: Path, size: int) -> list[Launch]:
        port = str(free_port())
        shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **ONE_THREAD}
        command = [sys.executable, "-m", "starling.bench.torch_worker"]
        command += ["--pipes", str(folder), "--backend", backend]
        return [Launch(command, {**shared, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(size)]

    return launches


def openmpi_launches(choices: Choices, yields: bool) -> Callable[[Path, int], list[Launch]]:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise MissingLibraryError(
            "no mpirun. Remedy: apt-get install openmpi-bin libopenmpi-dev, then build again"
        )
    program = str(find_program("mpi.collective_bench", choices.programs))

    def launches(folder: Path, size: int) -> list[Launch]:
        command = [mpirun, "--oversubscribe", "-n", str(size), "--mca", "btl", "vader,self"]
        command += ["--mca", "mpi_yield_when_idle", "1" if yields else "0"]
        # With a core each, a rank is best kept there; otherwise the system must be free to move them.
        bound = not yields and size <= (os.cpu_count() or 1)
        command += ["--bind-to", "core" if bound else "none"]
        if os.geteuid() == 0:
            command += ["--allow-run-as-root"]
        return [Launch([*command, program, "--pipes", str(folder)], {})]

    return launches


def library(name: str, choices: Choices) -> Library:
    """`name`: starling, starling:ALGORITHM, torch (Starling through PyTorch), gloo or openmpi."""
    kind, _, algorithm = name.partition(":")
    if kind == "starling":
        extra = ["--algorithm", algorithm] if algorithm else []
        return Library(name, "Starling through its C API", [Variant(name, starling_launches(choices, extra))])
    if name in ("torch", "gloo"):
        backend = "starling" if name == "torch" else "gloo"
        return Library(
            name, f"torch.distributed, backend {backend}", [Variant(name, torch_launches(backend))]
        )
    if name == "openmpi":
        variants = [
            Variant("openmpi", openmpi_launches(choices, yields=False)),
            Variant("openmpi:yield", openmpi_launches(choices, yields=True)),
        ]
        return Library(name, "Open MPI over shared memory, waiting both ways", variants)
    raise MissingLibraryError(
        f"unknown library '{name}': starling, starling:ALGORITHM, torch, gloo or openmpi (comma-separated)"
    )
