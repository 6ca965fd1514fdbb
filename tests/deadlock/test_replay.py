"""Goal: deadlocks of the model finish when they are replayed through the real scheduler, and hang without yielding;
what is reported adds up. Method: planted, whole and recorded sequences through the package and through the command."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling.deadlock import (
    Configuration,
    Machine,
    engine,
    free_groups,
    replay,
    shrunk_deadlocks,
    three_d,
    whole_deadlocks,
)
from starling.deadlock.command import app
from starling.deadlock.replay import lanes_of

RUN = CliRunner()
SAMPLE = 120
SMALL = ["--shape", "3d:2,2,2:60,90", "--model", "synchronization", "--disorder", "0.02", "--sync", "0.02"]
OPPOSITE = [
    '{"rank": 3, "event": "launch", "lane": "a", "group": [3, 7]}',
    '{"rank": 7, "event": "launch", "lane": "b", "group": [3, 7]}',
    '{"rank": 3, "event": "sync"}',
    '{"rank": 7, "event": "sync"}',
    '{"rank": 3, "event": "launch", "lane": "b"}',
    '{"rank": 7, "event": "launch", "lane": "a"}',
]


GROUPINGS = {"3D (4,4,4)": three_d(4, 4, 4, 400, 1200), "free 32 x 64": free_groups(64)}


def of_the_paper(shape: str, model: str) -> Configuration:
    return Configuration(
        groups=GROUPINGS[shape], gpus=64, shape=shape, model=model,
        disorder_probability=4e-3, synchronization_probability=4e-3,
    )  # fmt: skip


@cache
def planted(shape: str, model: str, count: int = SAMPLE, circle: bool = True) -> list[engine.Program]:
    found = shrunk_deadlocks(of_the_paper(shape, model), count, circle=circle)
    return [sequence.program for sequence in found]


@pytest.mark.parametrize("model", ["single_queue", "synchronization"])
@pytest.mark.parametrize("shape", GROUPINGS)
@pytest.mark.parametrize("wild", [False, True])
def test_none_of_the_shrunk_deadlocks_hangs(model: str, shape: str, wild: bool) -> None:
    found = replay(planted(shape, model), Machine(wild=wild), threads=2)
    assert found.sequences == SAMPLE
    assert found.failures == []
    assert sum(found.parks) > 0
    if model == "synchronization":
        assert min(found.synchronizations) >= 2  # two GPUs at least wait for each other
        assert min(found.quits) >= 1  # which is what lets a synchronization return


@pytest.mark.parametrize("model", ["single_queue", "synchronization"])
@pytest.mark.parametrize("wild", [False, True])
def test_none_of_those_with_all_that_take_part_hangs(model: str, wild: bool) -> None:
    programs = planted("3D (4,4,4)", model, 25, circle=False)
    found = replay(programs, Machine(wild=wild), threads=2)
    assert (found.sequences, found.failures) == (25, [])
    assert sorted(found.launches) == sorted(sum(map(len, program.members)) for program in programs)
    if model == "synchronization":
        assert found.as_dict()["distinct_sequences"] > 15


@pytest.mark.parametrize("model", ["single_queue", "synchronization"])
def test_all_hang_without_yielding(model: str) -> None:
    found = replay(planted("3D (4,4,4)", model), Machine(yielding=False))
    assert (found.sequences, found.hung, found.wrong) == (SAMPLE, SAMPLE, 0)
    assert found.failures[0].state


def test_a_whole_round_of_the_paper_finishes() -> None:
    (sequence,) = whole_deadlocks(of_the_paper("3D (4,4,4)", "synchronization"), 1)
    found = replay([sequence.program], Machine(checks=False))
    assert found.failures == []
    assert found.collectives == [16 * 400 + 16 * 1200]
    assert found.launches == [64 * (400 + 1200)]
    result = found.as_dict()
    assert result["preemptions"] == round(result["preemptions_per_collective"]["mean"] * 25_600)


def test_the_threads_change_nothing() -> None:
    programs = planted("3D (4,4,4)", "synchronization")[:60]
    one = replay(programs, Machine(wild=True)).as_dict()
    assert one == replay(programs, Machine(wild=True), threads=3).as_dict()
    halves = [replay(programs[:30], Machine(wild=True)), replay(programs[30:], Machine(wild=True), first=30)]
    assert one["preemptions"] == sum(half.as_dict()["preemptions"] for half in halves)


def test_lanes_of_a_record_stay_lanes() -> None:
    assert lanes_of(["grads#0", "tp#0", "grads#1", "odd"]) == [0, 1, 0, 2]


def test_a_flight_record_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "job.jsonl"
    path.write_text("\n".join(OPPOSITE))
    done = RUN.invoke(app, ["replay", "--record", str(path), "--count", "50", "--wild", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)["result"]
    assert result["model_deadlocks"] == {"single_queue": True, "synchronization": True}
    assert (result["sequences"], result["distinct_sequences"], result["hung"]) == (50, 1, 0)
    hung = RUN.invoke(app, ["replay", "--record", str(path), "--count", "3", "--without-yielding"])
    assert hung.exit_code == 1, hung.output
    assert "3 hang" in hung.stdout


def test_the_command_reports_and_keeps_results(tmp_path: Path) -> None:
    out = tmp_path / "replay.json"
    for _ in range(2):  # the same command replaces its entry
        done = RUN.invoke(app, ["replay", *SMALL, "--count", "40", "--first", "5", "--out", str(out)])
        assert done.exit_code == 0, done.output
    assert "40 sequences, 0 hang" in done.stdout
    (run,) = json.loads(out.read_text())["runs"]
    assert set(run["provenance"]) == {"command", "commit", "version", "machine", "date"}
    assert run["result"]["sequences"] == 40
    assert run["result"]["preemptions"] > 0
    assert set(run["result"]["preemptions_per_collective"]) == {"mean", "p50", "p90", "p99", "max"}
    whole = RUN.invoke(app, ["replay", *SMALL, "--count", "2", "--whole", "--pace-ns", "3000", "--json"])
    assert whole.exit_code == 0, whole.output
    assert json.loads(whole.stdout)["result"]["gpus"]["mean"] == 8


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"rank": 0, "event": "launch"}')
    done = RUN.invoke(app, ["replay", "--record", str(path)])
    assert done.exit_code == 2
    assert "line 1: lane" in " ".join(done.output.split())
    assert RUN.invoke(app, ["replay"]).exit_code == 2
    few = RUN.invoke(app, ["replay", "--shape", "3d:2,2,1:3,3", "--disorder", "0", "--whole", "--count", "1"])
    assert few.exit_code == 2, few.output
    with pytest.raises(RuntimeError, match="launched after a later one"):
        swapped = engine.Program([[0, 1], [1, 0]], [[0, 1], [0, 1]], [0, 0])
        replay([swapped], Machine(), lane_of=[0, 0])
