"""Where the benchmark programs of the build are."""

from __future__ import annotations

from pathlib import Path

import starling


class MissingProgramError(RuntimeError):
    """A compiled benchmark program was not found; the text holds the remedy."""


def find_program(name: str, folder: Path | None = None) -> Path:
    """The program `name`: in `folder` if given, else in the installed package, else in a build of this clone."""
    if folder is not None:
        places = [folder]
    else:
        package = Path(starling.__file__).resolve().parent
        places = [package / "bin", Path("build/dev/bench"), Path("build/gpu-dev/bench")]
    for place in places:
        program = place.resolve() / name
        if program.is_file():
            return program
    if name.startswith("mpi."):
        remedy = "install an MPI with its headers (Debian: apt-get install libopenmpi-dev), then build again"
    elif name.startswith("gpu."):
        remedy = (
            "where nvcc is: make build-gpu; with pip: pip install . -C cmake.define.STARLING_BUILD_BENCH=ON"
        )
    else:
        remedy = "in a clone: make build; with pip: pip install . -C cmake.define.STARLING_BUILD_BENCH=ON"
    raise MissingProgramError(f"no program {name} in {', '.join(map(str, places))}. Remedy: {remedy}")
