"""`starling bench gpu-handwritten`: what a plan of the language costs beside a kernel that was written by hand."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from starling import ir

from . import gpu_devices
from .gpu import RunFailedError, lines_of
from .options import Json, Programs, finish, refuse, speaker
from .programs import MissingProgramError, find_program
from .results import document

PROGRAM = "gpu.handwritten_bench"
WITHIN_RATIO, WITHIN_US = 1.05, 0.3
KINDS = {"burst": "samples_us", "gpu": "gpu_us"}


@dataclass(frozen=True)
class Pair:
    """A program of plans/ whose algorithm handwritten.h has, too."""

    collective: str
    algorithm: str
    protocol: str
    sizes: tuple[int, ...]
    grids: tuple[int, ...]


PAIRS = (
    Pair("all_reduce", "one_shot", "packets", (8, 512, 4 << 10, 16 << 10, 64 << 10), (1, 4, 8, 16)),
    Pair("all_gather", "all_pairs", "pull", tuple(1 << k for k in range(20, 29, 2)), (8, 16, 32)),
)


def plan_of(pair: Pair, ranks: int, grid: int) -> ir.Plan:
    """With a block for each instance."""
    from starling.plans import program

    made = program(pair.collective, pair.algorithm, ranks, instances=grid)
    made.protocol = pair.protocol
    plan: ir.Plan = made.compile(blocks=grid)
    plan.name = f"{pair.collective}-{grid}"
    assert all(len(rank.blocks) == grid for rank in plan.ranks)
    return plan


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a size: by how much the compiled plan is slower than the kernel, each in its best grid. ``burst``: the
    caller's time included; ``gpu``: when all calls are in the stream before the first begins."""
    rows = []
    for size in dict.fromkeys(one["size_bytes"] for one in found):
        of_size = [one for one in found if one["size_bytes"] == size]
        row: dict[str, Any] = {
            "collective": of_size[0]["collective"],
            "size_bytes": size,
            "wrong": sum(one["wrong"] for one in of_size),
        }
        for kind, key in KINDS.items():
            row[kind] = compared(
                {(one["variant"], one["grid"]): statistics.median(one[key]) for one in of_size}
            )
        row["samples"] = {
            f"{one['variant']}-{one['grid']}" if one["grid"] else one["variant"]: {
                key: one[key] for key in KINDS.values()
            }
            for one in of_size
        }
        rows.append(row)
    return rows


def compared(us: dict[tuple[str, int], float]) -> dict[str, Any]:
    """By variant and grid; by hand the faster of the two launches counts."""
    grids = sorted({grid for _, grid in us if grid})
    hand = {grid: min(us["hand", grid], us["hand_early", grid]) for grid in grids}
    compiled = {grid: us["compiled", grid] for grid in grids}
    best_hand, best_compiled = min(grids, key=hand.__getitem__), min(grids, key=compiled.__getitem__)
    ratio = compiled[best_compiled] / hand[best_hand]
    found: dict[str, Any] = {
        "hand_us": round(hand[best_hand], 3),
        "hand_grid": best_hand,
        "compiled_us": round(compiled[best_compiled], 3),
        "compiled_grid": best_compiled,
        "ratio": round(ratio, 3),
        "within": ratio <= WITHIN_RATIO or compiled[best_compiled] - hand[best_hand] <= WITHIN_US,
    }
    found |= {f"{name}_us": round(us[name, 0], 3) for name in ("library", "nccl") if (name, 0) in us}
    found["grids"] = [
        {"grid": grid, "hand_us": round(hand[grid], 3), "compiled_us": round(compiled[grid], 3)}
        for grid in grids
    ]
    return found


def lines(rows: list[dict[str, Any]]) -> list[str]:
    text = [
        f"# {'us':10} {'bytes':>10} {'':5} {'by hand':>9} {'grid':>4} {'compiled':>9} {'grid':>4} {'ratio':>6} "
        f"{'within':>6} {'library':>9} {'nccl':>9} {'#wrong':>6}"
    ]
    for row in rows:
        for kind in KINDS:
            one = row[kind]
            others = "".join(
                f" {one[name]:>9.2f}" if name in one else f" {'-':>9}" for name in ("library_us", "nccl_us")
            )
            text.append(
                f"  {row['collective']:10} {row['size_bytes']:>10} {kind:5} {one['hand_us']:>9.2f} "
                f"{one['hand_grid']:>4} {one['compiled_us']:>9.2f} {one['compiled_grid']:>4} {one['ratio']:>6.3f} "
                f"{'yes' if one['within'] else 'no':>6}{others} {row['wrong']:>6}"
            )
    return text


def measure(
    gpus: int,
    rounds: int,
    slice_ms: float,
    timeout_s: float,
    programs: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    head: dict[str, Any] = {"gpus": gpus}
    program = str(find_program(PROGRAM, programs))
    with tempfile.TemporaryDirectory(prefix="starling-handwritten-") as folder:
        for pair in PAIRS:
            for grid in pair.grids:
                plan = plan_of(pair, gpus, grid)
                Path(folder, plan.name).write_text(ir.to_text(plan))
            command = [
                program, f"gpus={gpus}", f"plans={folder}", f"kind={pair.collective}", f"rounds={rounds}",
                f"slice_us={slice_ms * 1e3:g}", f"sizes={','.join(map(str, pair.sizes))}",
                f"grids={','.join(map(str, pair.grids))}",
            ]  # fmt: skip
            found = [json.loads(text) for text in lines_of(command, timeout_s / len(PAIRS))]
            head = found[0]
            of_pair = rows_of(found[1:])
            for text in lines(of_pair):
                say(text)
            rows += of_pair
    settings = {**head, "rounds": rounds, "slice_ms": slice_ms, "ranks_as": "threads"}
    return document("gpu_handwritten", settings, rows)


def command(
    gpus: Annotated[int, typer.Option("-n", "--gpus", min=2, help="the first so many of this host")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="their median counts")] = 11,
    slice_ms: Annotated[float, typer.Option("--slice-ms", min=0.1, help="time of a burst")] = 2.0,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds for all")] = 90,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """A one-shot all_reduce in packets and an all_gather that copies from peers: the plan that the language's program
    compiles to, run by the library, beside a kernel written by hand for the same algorithm, in turns.

    burst: a call of a burst on a stream, with a kernel that reads the result behind each. gpu: the same when all calls
    were in the stream before the first began. within: at most 5 % or 0.3 us slower.

    Exit codes: 0 measured and right; 1 wrong results, or the program failed; 2 options to change.
    """
    gpu_devices.require(gpus)
    try:
        doc = measure(gpus, rounds, slice_ms, timeout_s, programs, speaker(json_path))
    except MissingProgramError as error:
        refuse(error)
    except RunFailedError as error:
        refuse(error, 1)
    finish(doc, json_path)
    if any(row["wrong"] for row in doc["rows"]):
        refuse("wrong results", 1)
