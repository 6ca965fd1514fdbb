"""Who this process is, as its launcher says: torchrun, mpirun (Open MPI, MPICH), srun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Place", "place"]


@dataclass(frozen=True)
class Place:
    """A rank among ``size`` ranks, as ``launcher`` numbered them."""

    launcher: str
    rank: int
    size: int


_VARIABLES = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIx", "PMIX_RANK", "PMIX_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
)


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """The rank and size that the launcher gave this process; None if it gave none.

    The library itself finds the job's name there (or in ``STARLING_JOB``) when no store is given.
    """
    for launcher, rank, size in _VARIABLES:
        if rank in environment and size in environment:
            return Place(launcher, int(environment[rank]), int(environment[size]))
    return None
