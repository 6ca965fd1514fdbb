"""`starling bench gpu`: all_reduce on this host's GPUs, beside the NCCL that PyTorch carries."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .convention import parse_bytes
from .options import Json, Programs, finish, refuse, speaker
from .programs import MissingProgramError, find_program
from .results import document

PROGRAM = "gpu.collective_bench"


def with_nccl(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which the loader finds PyTorch's libnccl.so.2, if there is one."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        found = None
    folders = [f"{place}/lib" for place in (found.submodule_search_locations or [])] if found else []
    known = environment.get("LD_LIBRARY_PATH", "")
    return {**environment, "LD_LIBRARY_PATH": ":".join([*folders, *([known] if known else [])])}


def busbw(row: dict[str, Any], library: str, gpus: int) -> float:
    """GB/s by nccl-tests' convention, from the time of one of many under way."""
    return float(2 * (gpus - 1) / gpus * row["bytes"] / row[library]["burst"] / 1e3)


def measure(
    gpus: int, first: int, last: int, iterations: int, programs: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    program = str(find_program(PROGRAM, programs))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        call = [program, str(gpus), str(last), str(iterations), str(first), str(result)]
        done = subprocess.run(
            call, capture_output=True, text=True, check=False, timeout=600, env=with_nccl(dict(os.environ))
        )
        if done.returncode != 0:
            raise ValueError((done.stderr or done.stdout).strip().splitlines()[-1])
        found = json.loads(result.read_text())
    rows = found.pop("rows")
    gpus = found["gpus"]
    say(
        f"# all_reduce of float32 on {gpus} x {found['device']}; us: median of one alone, one of {found['burst']}"
    )
    say(
        f"# {'bytes':>10} {'place':>5} | {'starling':>9} {'burst':>9} {'GB/s':>6} | "
        f"{'nccl':>9} {'burst':>9} {'GB/s':>6} | {'nccl / starling':>15}"
    )
    for row in rows:
        ours, theirs = row["starling"], row["nccl"]
        line = f"  {row['bytes']:>10} {'in' if row['in_place'] else 'out':>5} | {ours['median']:>9.1f} "
        line += f"{ours['burst']:>9.1f} {busbw(row, 'starling', gpus):>6.1f} | "
        if found["nccl"]:
            line += f"{theirs['median']:>9.1f} {theirs['burst']:>9.1f} {busbw(row, 'nccl', gpus):>6.1f} | "
            line += f"{theirs['median'] / ours['median']:>15.2f}"
        say(line)
    return document("gpu", found, rows)


def command(
    gpus: Annotated[int, typer.Option("-n", "--gpus", min=1, help="the first so many of this host")] = 2,
    first: Annotated[str, typer.Option("-b", "--minbytes", help="first size")] = "8",
    last: Annotated[str, typer.Option("-e", "--maxbytes", help="last size")] = "64M",
    iterations: Annotated[int, typer.Option("--iterations", "--iters", min=20)] = 100,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """all_reduce on GPUs, out of place and in place, with NCCL in the same run; ranks are threads of one process.

    Times are the caller's, from the call until it knows that the result is there: submit and wait; for NCCL the
    launch and a stream synchronization. burst: one of 20 that are under way together, and the bus bandwidth of that.
    """
    try:
        sizes = parse_bytes(first), parse_bytes(last)
        doc = measure(gpus, *sizes, iterations, programs, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    finish(doc, json_path)
