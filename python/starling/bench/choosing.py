"""`starling bench choosing`: what it costs a caller to have its algorithm chosen."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Json, Programs, finish, refuse, speaker
from .programs import MissingProgramError, find_program
from .results import document

PROGRAM = "choosing_bench"
COLUMNS = {
    "known_1_ns": "alone",
    "known_16_ns": "of 16",
    "known_256_ns": "of 256",
    "table_ns": "table",
    "first_ns": "first",
}


def measure(
    ranks: int, blocks: int, repetitions: int, programs: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    call = [str(find_program(PROGRAM, programs)), "--ranks", str(ranks), "--blocks", str(blocks)]
    done = subprocess.run(
        [*call, "--repetitions", str(repetitions)], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode == 2:
        raise ValueError(done.stderr.strip())
    found = json.loads(done.stdout)
    rows = found.pop("calls")
    say(f"# {ranks} ranks on GPUs, processes, {blocks} blocks; nanoseconds a call, medians of {repetitions}")
    say(f"# {'collective':<16} {'bytes':>10}" + "".join(f" {text:>10}" for text in COLUMNS.values()))
    for row in rows:
        times = "".join(f" {row[key]:>10.0f}" for key in COLUMNS)
        say(f"  {row['collective']:<16} {row['size_bytes']:>10}{times}")
    return document("choosing", {**found, "repetitions": repetitions}, rows)


def command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, max=64, help="of the group")] = 4,
    blocks: Annotated[int, typer.Option(min=1, max=32, help="of the daemon")] = 32,
    repetitions: Annotated[int, typer.Option(min=1)] = 5,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """What choosing an algorithm, and binding a call to its plan, takes of the caller's time.

    alone, of 16, of 256: a call whose like was called before, where the program calls so many shapes; table: the
    built-in table alone; first: a first call, whose plan is generated. No GPU is needed: nothing is moved.
    """
    try:
        doc = measure(ranks, blocks, repetitions, programs, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    finish(doc, json_path)
