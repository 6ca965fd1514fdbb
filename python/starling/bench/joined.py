"""Joining a job that torchrun, mpirun or srun started: every process runs the worker of its own rank, rank 0 also
leads. The pipes are in a folder whose name all ranks know."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .libraries import Choices
from .programs import find_program
from .workers import Launch, WorkerError, WorkerGroup

_LAUNCHERS = [
    ("RANK", "WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_PORT")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
]


@dataclass(frozen=True)
class Place:
    """This process in a job that a launcher started."""

    rank: int
    size: int
    job: str

    @property
    def folder(self) -> Path:
        name = hashlib.sha256(self.job.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"starling-bench-{os.getuid()}-{name}"


def place_in_job(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Where this process stands, or None if nobody's launcher started it."""
    for rank, size, names in _LAUNCHERS:
        if rank in environment and size in environment:
            job = " ".join(environment[name] for name in names if name in environment)
            return Place(int(environment[rank]), int(environment[size]), f"{names[0]} {job}")
    return None


def _launch(place: Place, choices: Choices) -> Launch:
    command = [str(find_program("collective_bench", choices.programs)), "--pipes", str(place.folder)]
    command += ["--rank", str(place.rank), "--size", str(place.size), *choices.arguments]
    return Launch(command, {"STARLING_JOB": f"bench {place.job}"})


def joined_group(choices: Choices, timeout_s: float) -> WorkerGroup | None:
    """On rank 0 of a launcher's job: the group of all its ranks. None without a launcher."""
    place = place_in_job()
    if place is None or place.rank != 0:
        return None
    shutil.rmtree(place.folder, ignore_errors=True)
    # The ranks wait for the folder: it appears with its pipes in it.
    draft = Path(tempfile.mkdtemp(prefix=place.folder.name, dir=place.folder.parent))
    for name in ["replies", *(f"commands.{rank}" for rank in range(place.size))]:
        os.mkfifo(draft / name)
    draft.rename(place.folder)
    return WorkerGroup(
        "starling",
        place.size,
        lambda folder: [_launch(place, choices)],
        folder=place.folder,
        timeout_s=timeout_s,
    )


def follow(place: Place, choices: Choices, timeout_s: float = 60) -> int:
    """Every other rank: runs its worker until rank 0 is done; the worker's exit code."""
    deadline = time.monotonic() + timeout_s
    while not (place.folder / "replies").exists():
        if time.monotonic() > deadline:
            raise WorkerError(f"rank 0 did not open {place.folder} in {timeout_s:.0f} s")
        time.sleep(0.02)
    launch = _launch(place, choices)
    return subprocess.run(launch.command, env={**os.environ, **launch.environment}, check=False).returncode
