"""Goal: the demos show what they claim: the training in random orders equals gloo's, the programs finish with yielding
and hang without; the timeline tells what the blocks did.

Method: short demos as a user starts them; spans and traces from events made by hand.
"""

import json
from pathlib import Path

import pytest

from cli.test_cli import starling
from starling import timeline
from starling.demo.deadlock import Wait, shortest_cycle, who_waits_for_whom
from starling.timeline import Event

PNG = b"\x89PNG"


def test_training_in_random_orders_equals_gloo(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    done = starling(
        "demo", "train", "-n", "2", "--steps", "20", "--out", str(tmp_path), "--json", timeout_s=250
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["largest_loss_difference"] < 1e-12
    assert summary["steps_with_different_orders"] > 0
    assert summary["device_synchronizations"] > 0
    assert (tmp_path / "timeline.png").read_bytes().startswith(PNG)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert any(event["ph"] == "X" and event["name"].startswith("ddp/") for event in events)


def test_programs_finish_with_yielding_and_hang_without(tmp_path: Path) -> None:
    arguments = ("-n", "4", "--iterations", "3", "--limit", "3", "--out", str(tmp_path), "--json")
    done = starling("demo", "deadlock", *arguments, timeout_s=250)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for runs in result["programs"].values():
        assert runs["with yielding"]["right"] and runs["with yielding"]["iterations"] == 3
        assert not runs["without"]["finished"]
        assert len(runs["without"]["cycle"]) >= 2
    assert (tmp_path / "deadlock.png").read_bytes().startswith(PNG)


def event(time_ns: int, rank: int, what: str, lane: str = "", sequence: int = 0, detail: int = 0) -> Event:
    return Event(time_ns, rank, 0, what, lane, sequence, detail)


EVENTS = [
    event(0, 0, "launch"),
    event(5, 0, "fetch", "a"),
    event(10, 0, "run", "a"),
    event(30, 0, "park", "a", 0, 7 << 32 | 1),
    event(40, 0, "run", "b"),
    event(45, 0, "complete", "b"),
    event(46, 0, "publish", "b"),
    event(50, 0, "quit"),
]


def test_runs_and_residencies() -> None:
    runs = timeline.runs(EVENTS)
    assert [(run.lane, run.start_ns, run.stop_ns, run.end) for run in runs] == [
        ("a", 10, 30, "park"),
        ("b", 40, 45, "complete"),
    ]
    assert (runs[0].waits_for, runs[0].instruction) == (1, 7)
    assert [(span.start_ns, span.stop_ns) for span in timeline.residencies(EVENTS)] == [(0, 50)]
    assert [one.event for one in timeline.unfinished(EVENTS)[0]] == ["park"]


def test_perfetto_trace_has_what_the_viewer_needs(tmp_path: Path) -> None:
    timeline.write_perfetto(tmp_path / "trace.json", EVENTS)
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [one for one in trace if one["ph"] == "X"]
    assert {one["name"] for one in complete} == {"resident", "a", "b"}
    assert all(one["dur"] >= 0 and one["ts"] >= 0 for one in complete)
    parked = next(one for one in complete if one["name"] == "a")
    assert parked["args"]["waits for rank"] == 1
    timeline.save(tmp_path / "events", EVENTS)
    assert timeline.load([tmp_path / "events"]) == EVENTS


def test_who_waits_for_whom_and_a_shortest_circle() -> None:
    # 0 holds a, 1 holds b, 2 holds c and has finished a.
    events = [event(1, 2, "run", "a"), event(2, 2, "publish", "a")]
    events += [event(3, rank, "run", lane) for rank, lane in enumerate("abc")]
    waits = who_waits_for_whom(events)
    assert Wait(0, "a", 2, "c") not in waits
    assert Wait(0, "a", 1, "b") in waits and Wait(2, "c", 0, "a") in waits
    circle = shortest_cycle(waits)
    assert len(circle) == 2 and circle[0].peer == circle[1].rank and circle[1].peer == circle[0].rank
    assert shortest_cycle([Wait(0, "a", 1, "b")]) == []
