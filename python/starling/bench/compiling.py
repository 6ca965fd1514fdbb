"""`starling bench compile`: how long programs of many ranks take to compile and to verify."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from starling import ir
from starling.plans import program

from .options import Json, finish, speaker
from .results import document

# Collective, program, ranks, what else it takes.
PROGRAMS: list[tuple[str, str, int, dict[str, int]]] = [
    ("all_reduce", "ring", 8, {}),
    ("all_reduce", "ring", 64, {}),
    ("all_reduce", "ring", 128, {}),
    ("all_reduce", "double_tree", 256, {}),
    ("all_reduce", "hierarchical", 64, {"nodes": 8}),
    ("all_reduce", "hierarchical", 256, {"nodes": 32}),
    ("all_to_all", "two_step", 64, {"nodes": 8}),
]


def measure(
    programs: list[tuple[str, str, int, dict[str, int]]], repetitions: int, say: Callable[[str], None]
) -> dict[str, Any]:
    say(f"# processor time in seconds, medians of {repetitions}; tracing is part of compiling")
    say(f"# {'program':<32} {'ranks':>5} {'instructions':>12} {'compile':>8} {'verify':>8} {'slots':>5}")
    rows = []
    for collective, name, ranks, more in programs:
        compiled, verified = [], []
        for _ in range(repetitions):
            begin = time.process_time()
            plan = program(collective, name, ranks, **more).compile(verify=False)
            compiled.append(time.process_time() - begin)
            begin = time.process_time()
            slots = ir.verify(plan)
            verified.append(time.process_time() - begin)
        rows.append(
            {
                "collective": collective,
                "program": name,
                "ranks": ranks,
                **more,
                "instructions": sum(len(block.instructions) for rank in plan.ranks for block in rank.blocks),
                "compile_s": statistics.median(compiled),
                "verify_s": statistics.median(verified),
                "slots": slots,
            }
        )
        row = rows[-1]
        say(
            f"  {collective + ' ' + name:<32} {ranks:>5} {row['instructions']:>12} {row['compile_s']:>8.2f} "
            f"{row['verify_s']:>8.2f} {slots:>5}"
        )
    return document("compile", {"repetitions": repetitions}, rows)


def command(
    repetitions: Annotated[int, typer.Option(min=1)] = 3,
    most_ranks: Annotated[int, typer.Option(min=2, help="leave out programs of more ranks")] = 256,
    json_path: Json = None,
) -> None:
    """What programs of 8 to 256 ranks cost to compile and to verify: processor time of this process."""
    chosen = [entry for entry in PROGRAMS if entry[2] <= most_ranks]
    finish(measure(chosen, repetitions, speaker(json_path)), json_path)
