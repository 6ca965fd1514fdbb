"""Goal: a plan is held fairly against the kernel that was written by hand for it; what is measured is right.

Method: made-up samples, and a program that prints them; the plans run on the cpu machine, on so many blocks.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from starling import Communicator, ir
from starling.bench import gpu_handwritten
from starling.bench.gpu_handwritten import PAIRS, Pair, measure, plan_of, rows_of
from starling.launch import run_threads


def samples(variant: str, grid: int, us: float, size: int = 8, wrong: int = 0) -> dict[str, object]:
    found = {"collective": "all_reduce", "size_bytes": size, "variant": variant, "grid": grid}
    return {**found, "wrong": wrong, "calls": 5, "samples_us": [us, 99.0, us, us, 0.1], "gpu_us": [us / 2]}


def test_each_counts_in_its_best_grid() -> None:
    found = [
        samples("hand", 1, 7.0), samples("hand_early", 1, 6.0), samples("compiled", 1, 7.5),
        samples("hand", 8, 9.0), samples("hand_early", 8, 9.5), samples("compiled", 8, 6.2, wrong=3),
        samples("library", 0, 6.5), samples("nccl", 0, 8.0),
    ]  # fmt: skip
    (row,) = rows_of(found)
    one = row["burst"]
    assert (one["hand_us"], one["hand_grid"], one["compiled_us"], one["compiled_grid"]) == (6.0, 1, 6.2, 8)
    assert one["ratio"] == pytest.approx(6.2 / 6.0, abs=1e-3) and one["within"] and row["wrong"] == 3
    assert (one["library_us"], one["nccl_us"]) == (6.5, 8.0)
    assert one["grids"][1] == {"grid": 8, "hand_us": 9.0, "compiled_us": 6.2}
    assert (row["gpu"]["hand_us"], row["gpu"]["compiled_us"]) == (3.0, 3.1)
    assert len(row["samples"]) == len(found)


@pytest.mark.parametrize(
    ("hand", "compiled", "within"), [(100, 104.9, True), (100, 105.2, False), (4, 4.29, True)]
)
def test_within_five_percent_or_a_third_of_a_microsecond(hand: float, compiled: float, within: bool) -> None:
    (row,) = rows_of(
        [samples(name, 1, us) for name, us in (("hand", hand), ("hand_early", hand), ("compiled", compiled))]
    )
    assert row["burst"]["within"] is within


def test_the_program_gets_its_plans(tmp_path: Path) -> None:
    """One that prints what it was given, and rows."""
    program = tmp_path / gpu_handwritten.PROGRAM
    rows = "\n".join(json.dumps(samples(name, 1, 5.0)) for name in ("hand", "hand_early", "compiled"))
    program.write_text(f"""#!/bin/sh
for word; do case $word in plans=*) ls ${{word#plans=}} >>{tmp_path}/seen;; esac; done
echo '{{"gpus": 2, "device": "made up"}}'
cat <<'X'
{rows}
X
""")
    program.chmod(0o755)
    doc = measure(2, 1, 1.0, 30, tmp_path, lambda line: None)
    assert [row["burst"]["ratio"] for row in doc["rows"]] == [1.0, 1.0] and doc["settings"][
        "device"
    ] == "made up"
    wanted = {f"{pair.collective}-{grid}" for pair in PAIRS for grid in pair.grids}
    assert set((tmp_path / "seen").read_text().split()) == wanted


def run_pair(comm: Communicator, pair: Pair, grid: int) -> None:
    plan = plan_of(pair, comm.size, grid)
    comm.add_plan(ir.to_text(plan))
    for count in (1, 5000):
        data = np.arange(count, dtype=np.float32) + comm.rank
        whole = [np.arange(count, dtype=np.float32) + rank for rank in range(comm.size)]
        wanted = np.sum(whole, axis=0) if pair.collective == "all_reduce" else np.concatenate(whole)
        out = np.full_like(wanted, -1)
        comm.run_plan(plan.name, data, out).wait(30)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.collective)
def test_the_plans_are_right(pair: Pair) -> None:
    for grid in pair.grids:
        run_threads(2, partial(run_pair, pair=pair, grid=grid), context={"blocks": grid}, timeout=60)
