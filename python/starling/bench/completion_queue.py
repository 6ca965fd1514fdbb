"""`starling bench cq`: the three completion queues beside each other."""

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

COLUMNS = {
    "publish_alone_ns": "publish",
    "publish_contended_ns": "contended",
    "item_ns": "an item",
    "latency_median_ns": "latency",
    "latency_p99_ns": "99 %",
}


def measure(
    producers: int,
    items: int,
    capacity: int,
    repetitions: int,
    programs: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    call = [str(find_program("completion_queue_bench", programs)), "--producers", str(producers)]
    call += ["--items", str(items), "--capacity", str(capacity), "--repetitions", str(repetitions)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 2:
        raise ValueError(done.stderr.strip())
    found = json.loads(done.stdout)
    rows = found.pop("queues")
    say(f"# {producers} producers, one poller, {capacity} entries; nanoseconds, medians of {repetitions}")
    say("# " + f"{'queue':<12}" + "".join(f" {text:>10}" for text in COLUMNS.values()))
    for row in rows:
        say(f"  {row['queue']:<12}" + "".join(f" {row[key]:>10.0f}" for key in COLUMNS))
    return document("completion_queue", {**found, "repetitions": repetitions}, rows)


def command(
    producers: Annotated[int, typer.Option(min=1, help="blocks that publish together")] = 4,
    items: Annotated[int, typer.Option(min=100, help="each publishes so many")] = 100_000,
    capacity: Annotated[int, typer.Option(help="entries; a power of two")] = 1024,
    repetitions: Annotated[int, typer.Option(min=1)] = 5,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """The completion queue's three forms (DFCCL section 5): vanilla ring, packed ring, slots.

    publish: one block alone (with two looks at the clock); contended: with all others, retries included; an item:
    time over all; latency: from before the publish to after the poller's pop. That every token comes out exactly
    once is checked.
    """
    try:
        doc = measure(producers, items, capacity, repetitions, programs, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    finish(doc, json_path)
    if not doc["settings"]["every_item_once"]:
        refuse("a token was lost or came twice", 1)
