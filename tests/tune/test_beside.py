"""Goal: plans measured beside each other give honest ratios, and runs of one kind replace each other in a file.

Method: made-up samples; the shortest possible runs of `starling bench choice` and of Fig. 7, whose results are checked
while they run.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from starling import ir
from starling.bench.choice import TABLE, at_least, pooled, rows_of, told, works_of
from starling.bench.command import app
from starling.tune.candidates import CHOICE, Candidate
from starling.tune.figure_7 import rings
from starling.tune.figure_7_measured import COMPOSED, CPU_THREADS, CPUS, SHARED_GPUS, TWO_GPUS, measure, pairs
from starling.tune.measure import AGAIN, ITSELF, Memory, Point, Work
from starling.tune.table import Row, Table


def test_choices_are_held_against_the_best_plan() -> None:
    """By samples that did not choose it: a is best of those with even numbers, b of the others."""
    work = Work(
        Point("all_reduce", False, "float16", 64),
        [Candidate("a", "ring", 1), Candidate("b", "two_shot", 1), CHOICE, TABLE],
    )
    samples = {
        "a": [1.0, 8.0, 1.0, 8.0],
        "b": [5.0, 4.0, 5.0, 4.0],
        "c": [0.1, 0.1],  # came into no finals
        "choice": [6.0, 6.0, 6.0, 6.0],
        "table": [5.0, 8.0, 5.0, 8.0],
    }
    table = Table([Row("here", "all_reduce", False, "half", 64, "ring", 1)])
    (row,) = rows_of("here", [work], [samples], table)
    assert (row["best"], row["types"], row["same"], row["spread"]) == ("a", "half", True, 8.0)
    # By even samples a is best: the odd ones are 6 / 8 and 8 / 8; by odd ones b: 6 / 5 and 5 / 5.
    assert row["choice"] == pytest.approx(((6 / 8) * (6 / 5)) ** 0.5, abs=1e-3)
    assert row["table"] == 1.0
    assert row["choice_at_least"] == 0.75  # of 4 ratios none may be left out
    text = told([row, {**row, "same": False, "table": 1.2}], "table")
    assert "within 1.05 of the best plan at 1 of 2 points" in text and "worst 1.20" in text
    assert "at 1 it is the best plan, at 0 of the other 1 within 1.05" in text
    other = Table([Row("here", "all_reduce", False, "half", 63, "ring", 1)])
    assert not rows_of("here", [work], [samples], other)[0]["same"]  # too small a range


def test_a_plan_that_takes_part_twice_says_what_chance_does() -> None:
    work = Work(Point("all_reduce", False, "float32", 64), [Candidate("a", "ring", 1), CHOICE])
    one = [1.0] * 6
    samples = {"a": one, "choice": [2.0] * 6, AGAIN: [1.2] * 6, ITSELF: one}
    (row,) = rows_of("here", [work], [samples])
    assert row["best"] == "a" and (row["choice"], row["again"], row["itself"]) == (2.0, 1.2, 1.2)
    assert row["again_at_least"] == row["itself_at_least"] == 1.2 and ITSELF not in row["us"]
    text = told([row], AGAIN)
    assert "within 1.05 of the best plan at 0 of 1" in text and "within 1.05 at 0, surely slower at 1" in text


def test_launches_are_pooled() -> None:
    """A plan that was near the best in one launch alone is not compared."""
    first = {"a": [1.0] * 4, "b": [1.1] * 4, "choice": [1.0] * 4}
    second = {"a": [3.0] * 4, "b": [9.0], "choice": [3.0] * 4}
    found = pooled([first, second])
    assert found["a"] == [1.0] * 4 + [3.0] * 4 and len(found["b"]) == 4 and len(found["choice"]) == 8
    work = Work(Point("all_reduce", False, "float32", 64), [Candidate("a", "ring", 1), CHOICE])
    (row,) = rows_of("here", [work], [found])
    assert row["best"] == "a" and row["choice"] == 1.0
    third = {"a": [3.0], "b": [9.0], "choice": [3.0] * 4}
    assert pooled([first, third]) == first  # none is left


def test_how_much_slower_is_sure() -> None:
    others = [1.0] * 24
    assert at_least([1.0 + k / 100 for k in range(24)], others) == 1.06  # the 7th of 24
    assert at_least([2.0] * 7 + [1.0] * 17, others) == 1.0
    assert at_least([1.0] * 6 + [2.0] * 18, others) == 2.0


def advised(array: Any) -> bool:
    """Does it lie where somebody has asked for huge pages?"""
    address, inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *flags = line.split()
        if first == "VmFlags:" and inside:
            return "hg" in flags
        if "-" in first:
            begin, end = (int(one, 16) for one in first.split("-"))
            inside = begin <= address < end
    raise AssertionError("an array outside of every mapping")


def test_buffers_do_not_lie_in_what_a_heap_has_left() -> None:
    """numpy asks for huge pages for arrays of 4 MiB and more, and the heap keeps some of them for smaller ones."""
    for _ in range(2):  # the first one goes back to the kernel, and the next one to the heap
        np.ones(1 << 23, np.uint8)
    buffers = [Memory().put(np.zeros(1 << 21, np.uint8)) for _ in range(4)]
    assert not any(advised(buffer) for buffer in buffers)
    buffers[0][:] = 1
    assert not buffers[1].any() and Memory().put(np.zeros(0)).size == 0


def test_every_plan_stands_beside_the_choice() -> None:
    for work in works_of(["broadcast", "reduce_scatter"], 3, [64], False, True):
        names = [candidate.name for candidate in work.candidates]
        assert names[-2:] == ["choice", "table"]
        algorithms = {name.split("-")[0] for name in names}
        between_hosts = {"rails", "leaders"}
        assert algorithms >= set(ir.algorithms(work.point.collective)) - {"direct_pull"} - between_hosts


def choice(*words: str) -> str:
    few = ("--sizes", "64", "--repetitions", "2", "--finals", "4", "--slice-ms", "0.1")
    result = CliRunner().invoke(app, ["choice", *few, *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_runs_join_in_a_file(tmp_path: Path) -> None:
    path, table = tmp_path / "choice.json", tmp_path / "table.txt"
    table.write_text("starling-table 1\n")  # nothing for anybody
    for collectives in ("broadcast,gather", "gather"):
        output = choice(
            "-c",
            collectives,
            "--as",
            "threads",
            "--json",
            str(path),
            "--table",
            str(table),
            "--launches",
            "2",
        )
        assert "choice: within 1.05 of the best plan at" in output and "table: within" in output
        assert "again: within" in output
    document = json.loads(path.read_text())
    found = [[row["collective"] for row in run["rows"]] for run in document["runs"]]
    assert found == [["broadcast"], ["gather"]]
    assert document["summary"][0].startswith("choice: within") and " of 2 points" in document["summary"][0]


@pytest.mark.parametrize("words", [("-c", "barrier"), ("--as", "fibers")])
def test_what_cannot_be_measured_is_refused(words: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["choice", *words]).exit_code == 2


def test_the_pairs_of_figure_7_run_and_are_right() -> None:
    rows = [*measure(CPUS, [1024], 2, 0.0001), *measure(CPU_THREADS, [1024], 2, 0.0001)]
    both = [*pairs(CPUS), *pairs(CPU_THREADS)]
    assert [(row["first"], row["second"]) for row in rows] == [pair.names for pair in both]
    assert {"slots", "packets", "pull"} <= {
        one for name, _ in (pair.names for pair in both) for one in name.split(", ")
    }
    for row, pair in zip(rows, both, strict=True):
        (first, second), (ratio,) = row["us"][0], row["ratios"]
        assert ratio == pytest.approx(second / first, rel=1e-2, abs=1e-3)  # rounded
        assert (row["model_us"][0] is None) == (COMPOSED in pair.plans)


def test_rings_of_the_model_go_by_protocol() -> None:
    """Packets win the smallest buffers, and have no cells where they are not for; what is pulled wins none of those."""
    packets, pulled = rings(((8, 1),), [1024, 1 << 24])
    assert packets["first"] == "ring in packets, 8 ranks, 1 block" and packets["ratios"][1] is None
    assert packets["ratios"][0] > 1.5 > pulled["ratios"][0]
    assert pulled["ratios"][1] == pytest.approx(pulled["second_us"][1] / pulled["us"][1])


def test_the_pairs_of_gpus_compile() -> None:
    """Channels, instances and protocols of rings; and what knows nodes, for two ranks a GPU."""
    names = {name for pair in pairs(TWO_GPUS) for name in pair.names}
    assert {"ring, 2 channels, 16 instances, pull", "all pairs, 16 instances, packets"} <= names
    assert [pair.panel for pair in pairs(SHARED_GPUS)] == ["c", "e", "g"] * 2
    for group in (TWO_GPUS, SHARED_GPUS):
        for pair in pairs(group):
            for text in pair.plans:
                if text == COMPOSED:
                    continue
                plan = ir.parse(text)
                assert plan.rank_count == group.ranks
                assert max(len(rank.blocks) for rank in plan.ranks) <= group.blocks
