"""`starling bench overlap`: what computation and collectives on GPUs cost each other, Starling and NCCL in one run."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from . import gpu_devices, gpu_processes
from .convention import parse_bytes
from .options import Json, Programs, finish, refuse, speaker, words
from .programs import MissingProgramError, find_program
from .results import document

NUMBERS = (
    "kernel_alone_us",
    "kernel_alone_in_own_turns_us",
    "kernel_beside_us",
    "kernel_slowdown",
    "collective_alone_us",
    "collective_beside_us",
    "collective_slowdown",
)


@dataclass(frozen=True)
class Study:
    """What to measure."""

    ranks: int
    size_bytes: int
    kernels: list[str]
    collectives: list[str]
    libraries: list[str]
    rounds: int = 3
    timeout_s: float = 150.0

    def arguments(self, folder: Path) -> list[str]:
        return [
            *("--size", str(self.ranks), "--bytes", str(self.size_bytes)),
            *("--rounds", str(self.rounds), "--folder", str(folder)),
            *("--libraries", ",".join(self.libraries), "--kernels", ",".join(self.kernels)),
            *("--collectives", ",".join(self.collectives), "--limit", str(self.timeout_s - 5)),
        ]


def measure(
    study: Study, programs: Path | None, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], str]:
    """Rows, and what went wrong, "" if nothing did: the rows until then are there."""
    from .beside import LIBRARY

    find_program(LIBRARY, programs)  # or the remedy
    say(f"# {study.size_bytes} bytes of bfloat16 on {study.ranks} GPUs; times in us, slowdowns as ratios")
    say(
        f"# {'kernel':<16} {'collective':<15} {'library':<9} | {'kernel':>8} {'beside':>8} {'slower':>6} | "
        f"{'collect.':>8} {'beside':>8} {'slower':>6} | CPU, of a core (rank)"
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="starling-overlap-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "starling.bench.overlap_rank", *study.arguments(folder)]
        command += ["--programs", str(programs)] if programs else []

        def look() -> None:
            for row in _merged(folder, study.ranks)[len(rows) :]:
                rows.append(row)
                say(line(row))

        failure = gpu_processes.run(command, study.ranks, folder, study.timeout_s, look)
    return rows, failure


def _merged(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """Means over ranks of what all have reported; CPU shares of each rank."""
    rows = []
    for of_pair in gpu_processes.reported(folder, ranks):
        row = dict(of_pair[0])
        for key in NUMBERS:
            row[key] = round(statistics.fmean(one[key] for one in of_pair), 3)
        row["beside_throughout"] = all(one.get("beside_throughout", True) for one in of_pair)
        row["cpu_shares"] = [{"rank": rank, "threads": one["cpu_shares"]} for rank, one in enumerate(of_pair)]
        rows.append(row)
    return rows


def busiest(of_ranks: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """By threads' names the largest share of any rank, and that rank; the largest first."""
    found: dict[str, tuple[float, int]] = {}
    for one in of_ranks:
        for name, share in one["threads"].items():
            if share > found.get(name, (0.0, 0))[0]:
                found[name] = (share, one["rank"])
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def line(row: dict[str, Any]) -> str:
    most = busiest(row["cpu_shares"])
    seen = [f"{name} {share:.2f} ({rank})" for name, (share, rank) in most.items() if share >= 0.005]
    shares = ", ".join(seen) or "-"
    return (
        f"  {row['kernel']:<16} {row['collective']:<15} {row['library']:<9} | {row['kernel_alone_us']:>8.0f} "
        f"{row['kernel_beside_us']:>8.0f} {row['kernel_slowdown']:>6.2f} | {row['collective_alone_us']:>8.0f} "
        f"{row['collective_beside_us']:>8.0f} {row['collective_slowdown']:>6.2f} | {shares}"
        + ("" if row["beside_throughout"] else "  (not beside each other to the end)")
    )


def command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, help="processes, one a GPU")] = 2,
    size: Annotated[str, typer.Option("-b", "--bytes", help="of a collective")] = "256M",
    kernel: Annotated[
        str,
        typer.Option(
            help="matrix product, L2-bound, issue-bound, small kernels; default: all; or 'matrix product of zeros'"
        ),
    ] = "",
    collective: Annotated[str, typer.Option("--collective", "-C", help="some of them; default: all")] = "",
    libraries: Annotated[str, typer.Option(help="separated by commas")] = "starling,nccl",
    rounds: Annotated[int, typer.Option(min=1, help="of a turn for each library; medians count")] = 3,
    timeout_s: Annotated[float, typer.Option("--timeout", min=20, help="seconds for all")] = 150,
    plot: Annotated[Path | None, typer.Option(help="draw the slowdowns into this PNG")] = None,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """Computation beside collectives: how much slower each becomes, with Starling and with NCCL.

    Kernels: an 8192^3 bf16 matrix product, one bound by the L2 cache, one by instruction issue, and a row of small ones
    of a few microseconds, as long as each other.
    The product of zeros, if asked for, draws less power: what slows it less is slowed by the GPU's limit of power.
    What is measured runs beside the other from begin to end. Libraries take turns, and slowdowns of a kernel are on one
    base, the median of it alone in all turns. CPU: threads while a rank only communicates, by name (Starling's begin
    with st-), each of the rank in which it takes most; all ranks' are in the JSON.

    Exit codes: 0 measured; 1 the run failed (what was measured is written); 2 options to change.
    """
    try:
        from .overlap_rank import COLLECTIVES, KERNELS, QUIET
    except ModuleNotFoundError as error:
        refuse(f"needs {error.name}", 3)
    for what, chosen, known in (
        ("kernel", words(kernel), (*KERNELS, QUIET)),
        ("collective", words(collective), COLLECTIVES),
        ("library", words(libraries), ("starling", "nccl")),
    ):
        for name in chosen:
            if name not in known:
                refuse(f"no {what} '{name}'; choose from {', '.join(known)}")
    gpu_devices.require(ranks, fewest=2, may_share=False)
    study = Study(
        ranks,
        parse_bytes(size),
        words(kernel) or list(KERNELS),
        words(collective) or list(COLLECTIVES),
        words(libraries),
        rounds,
        timeout_s,
    )
    try:
        rows, failure = measure(study, programs, speaker(json_path))
    except MissingProgramError as error:
        refuse(error)
    settings = {"ranks": ranks, "bytes": study.size_bytes, "type": "bfloat16", "rounds": rounds}
    doc = document("overlap", settings, rows, **({"failure": failure} if failure else {}))
    finish(doc, json_path)
    if plot is not None and rows:
        from .plots import plot_overlap

        plot_overlap(doc, plot)
    if failure:
        refuse(failure, 1)
