"""`starling bench gpu-graphs`: all_reduce inside of CUDA graphs, Starling and NCCL in one run."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from . import gpu_devices, gpu_processes
from .convention import parse_bytes
from .options import Json, finish, refuse, speaker, words

SIZES = "8,128,1K,8K,32K,128K,512K,2M"
NUMBERS = ("graph_us", "single_us", "eager_us")


def measure(
    ranks: int, sizes: list[int], libraries: list[str], timeout_s: float, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], str]:
    """Rows, and what went wrong, "" if nothing did: the rows until then are there."""
    say(f"# all_reduce of float32 on {ranks} GPUs, in place; microseconds of one")
    say(
        f"# {'bytes':>8} {'library':<9} | {'in a graph of 20':>16} | {'alone in one':>12} | {'eager':>8} | #wrong"
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="starling-graphs-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "starling.bench.gpu_graphs_rank"]
        command += ["--size", str(ranks), "--folder", name, "--limit", str(timeout_s - 5)]
        command += ["--libraries", ",".join(libraries), "--sizes", ",".join(map(str, sizes))]

        def look() -> None:
            for row in merged(folder, ranks)[len(rows) :]:
                rows.append(row)
                say(line(row))

        failure = gpu_processes.run(command, ranks, folder, timeout_s, look)
    return rows, failure


def merged(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """Means over ranks of what all have reported."""
    rows = []
    for of_size in gpu_processes.reported(folder, ranks):
        row = dict(of_size[0])
        for key in NUMBERS:
            row[key] = round(statistics.fmean(one[key] for one in of_size), 2)
        row["wrong"] = sum(one["wrong"] for one in of_size)
        rows.append(row)
    return rows


def line(row: dict[str, Any]) -> str:
    return (
        f"  {row['bytes']:>8} {row['library']:<9} | {row['graph_us']:>16.1f} | {row['single_us']:>12.1f} | "
        f"{row['eager_us']:>8.1f} | {row['wrong']}"
    )


def command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, help="processes, one a GPU")] = 2,
    sizes: Annotated[str, typer.Option(help="bytes, separated by commas")] = SIZES,
    libraries: Annotated[str, typer.Option(help="separated by commas")] = "starling,nccl",
    timeout_s: Annotated[float, typer.Option("--timeout", min=20, help="seconds for all")] = 100,
    json_path: Json = None,
) -> None:
    """all_reduce inside of CUDA graphs: 20 in a row, one alone, and 20 eager ones.

    Each is repeated; the median of five counts. A replay's time holds the graph's launch.

    Exit codes: 0 measured; 1 the run failed (what was measured is written); 2 options to change.
    """
    for name in words(libraries):
        if name not in ("starling", "nccl"):
            refuse(f"no library '{name}'; choose from starling, nccl")
    chosen = [parse_bytes(size) for size in words(sizes)]
    if any(size % 4 for size in chosen):
        refuse("sizes are of float32: multiples of 4 bytes")
    from .results import document

    gpu_devices.require(ranks)
    rows, failure = measure(ranks, chosen, words(libraries), timeout_s, speaker(json_path))
    settings = {"ranks": ranks, "type": "float32", "operations": 20}
    finish(document("gpu-graphs", settings, rows, **({"failure": failure} if failure else {})), json_path)
    if failure:
        refuse(failure, 1)
