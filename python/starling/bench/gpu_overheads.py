"""`starling bench gpu-overheads`: what yielding costs on a GPU, beside what DFCCL §6.2 reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from . import gpu_devices
from .gpu import RunFailedError, lines_of
from .options import Json, Programs, finish, refuse, speaker
from .programs import MissingProgramError, find_program
from .results import document

PROGRAM = "gpu.overhead_bench"
# What is measured, the program's key, its unit and the factor to it, and DFCCL's figure (§6.2).
ROWS = (
    ("load a context", "context_load_us", "µs", 1.0, "0.45"),
    ("load a task: context, plan and lane", "task_load_us", "µs", 1.0, "-"),
    ("save a context", "context_save_us", "µs", 1.0, "0.05"),
    ("write a completion entry, the last one under way", "completion_write_us", "µs", 1.0, "2.0"),
    ("write a completion entry, 10 µs after the last", "completion_write_apart_us", "µs", 1.0, "2.0"),
    ("shared memory of a daemon's block", "daemon_shared_bytes", "KB", 1e-3, "13"),
    ("shared memory of a start kernel's block", "start_shared_bytes", "KB", 1e-3, "-"),
    ("memory of 1,000 registered collectives, a block", "bytes_per_block", "MB", 1e-6, "4"),
    ("memory of 1,000 registered collectives, a rank", "lane_bytes", "MB", 1e-6, "-"),
    ("memory of 1,000 lanes with names, a block", "named_bytes_per_block", "MB", 1e-6, "-"),
    ("memory of 1,000 lanes with names, a rank", "named_lane_bytes", "MB", 1e-6, "-"),
)


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": what, "unit": unit, "starling": round(found[key] * factor, 4), "dfccl": dfccl}
        for what, key, unit, factor, dfccl in ROWS
    ]


def measure(gpus: int, collectives: int, programs: Path | None) -> dict[str, Any]:
    command = [str(find_program(PROGRAM, programs)), str(gpus), str(collectives)]
    found = [json.loads(text) for text in lines_of(command, timeout_s=100)]
    if len(found) != 1:
        raise RunFailedError(f"{PROGRAM} printed {len(found)} results")
    return document("gpu_overheads", found[0], rows_of(found[0]))


def command(
    gpus: Annotated[
        int, typer.Option("-n", "--gpus", min=2, help="ranks, one a GPU, whose lanes are measured")
    ] = 2,
    collectives: Annotated[int, typer.Option(min=1, help="of which each has a lane, and runs once")] = 1000,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """Context load and save, completion entries, shared memory, memory of 1,000 collectives (DFCCL section 6.2).

    Exit codes: 0 measured; 1 the program failed; 2 options to change.
    """
    gpu_devices.require(gpus, fewest=2)
    try:
        doc = measure(gpus, collectives, programs)
    except MissingProgramError as error:
        refuse(error)
    except RunFailedError as error:
        refuse(error, 1)
    say = speaker(json_path)
    say(f"# {'':<54} {'':>3} {'starling':>10} {'DFCCL':>8}")
    for row in doc["rows"]:
        say(f"  {row['what']:<54} {row['unit']:>3} {row['starling']:>10.3f} {row['dfccl']:>8}")
    finish(doc, json_path)
