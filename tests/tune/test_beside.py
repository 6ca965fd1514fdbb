"""Goal: plans measured beside each other give honest ratios, and runs of one kind replace each other in a file.

Method: made-up samples; the shortest possible runs of `starling bench choice` and of Fig. 7, whose results are checked
while they run.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling import ir
from starling.bench.choice import TABLE, rows_of, works_of
from starling.bench.command import app
from starling.tune.candidates import CHOICE, Candidate
from starling.tune.figure_7_measured import COMPOSED, CPUS, SHARED_GPUS, TWO_GPUS, measure, pairs
from starling.tune.measure import Point, Work


def test_choices_are_held_against_the_best_plan() -> None:
    work = Work(
        Point("all_reduce", False, "float16", 64), [Candidate("a", "a"), Candidate("b", "b"), CHOICE, TABLE]
    )
    samples = {
        "a": [9.0, 10.0, 11.0],
        "b": [4.0, 2.0, 5.0],
        "choice": [5.0, 5.0, 6.0],
        "table": [1.0, 3.0, 9.0],
    }
    (row,) = rows_of("here", [work], [samples])
    assert (row["best"], row["choice"], row["table"], row["types"]) == ("b", 1.25, 0.75, "half")
    assert (row["choice_least"], row["table_least"]) == (2.5, 0.5)
    assert row["spread"] == 2.25  # 4.5 of the samples 4 and 5, 2 of the other


def test_every_plan_stands_beside_the_choice() -> None:
    for work in works_of(["broadcast", "reduce_scatter"], 3, [64], False, True):
        names = [candidate.name for candidate in work.candidates]
        assert names[-2:] == ["choice", "table"]
        algorithms = {name.split("-")[0] for name in names}
        between_hosts = {"rails", "leaders"}
        assert algorithms >= set(ir.algorithms(work.point.collective)) - {"direct_pull"} - between_hosts


def choice(*words: str) -> str:
    few = ("--sizes", "64", "--repetitions", "2", "--slice-ms", "0.1")
    result = CliRunner().invoke(app, ["choice", *few, *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_runs_join_in_a_file(tmp_path: Path) -> None:
    path, table = tmp_path / "choice.json", tmp_path / "table.txt"
    table.write_text("starling-table 1\n")  # nothing for anybody
    for collectives in ("broadcast,gather", "gather"):
        output = choice("-c", collectives, "--as", "threads", "--json", str(path), "--table", str(table))
        assert "choice: by medians within 1.05" in output and "table: by medians" in output
    document = json.loads(path.read_text())
    found = [[row["collective"] for row in run["rows"]] for run in document["runs"]]
    assert found == [["broadcast"], ["gather"]]
    assert (
        document["summary"][0].startswith("choice: by medians") and " of 2 points" in document["summary"][0]
    )


@pytest.mark.parametrize("words", [("-c", "barrier"), ("--as", "fibers")])
def test_what_cannot_be_measured_is_refused(words: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["choice", *words]).exit_code == 2


def test_the_pairs_of_figure_7_run_and_are_right() -> None:
    rows = measure(CPUS, [1024], 2, 0.0001)
    assert [(row["first"], row["second"]) for row in rows] == [pair.names for pair in pairs(CPUS)]
    for row, pair in zip(rows, pairs(CPUS), strict=True):
        (first, second), (ratio,) = row["us"][0], row["ratios"]
        assert ratio == pytest.approx(second / first, rel=1e-2, abs=1e-3)  # rounded
        assert (row["model_us"][0] is None) == (COMPOSED in pair.plans)


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
