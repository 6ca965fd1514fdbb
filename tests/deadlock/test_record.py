"""Goal: flight records are read, judged, written back and refused with line and key. Method: hand-made records, and
round trips of deadlocks that the engine found."""

from __future__ import annotations

import pytest

from starling.deadlock import (
    Configuration,
    RecordError,
    engine,
    parse_record,
    shrunk_deadlocks,
    three_d,
    whole_deadlocks,
)

OPPOSITE = [
    '{"rank": 3, "event": "launch", "lane": "a", "group": [3, 7]}',
    '{"rank": 7, "event": "launch", "lane": "b", "group": [3, 7], "time_ns": 12}',
    '{"rank": 3, "event": "sync"}',
    '{"rank": 7, "event": "sync"}',
    "",
    '{"rank": 3, "event": "launch", "lane": "b"}',
    '{"rank": 7, "event": "launch", "lane": "a"}',
]


def test_a_record_is_judged() -> None:
    record = parse_record(OPPOSITE)
    assert record.ranks == [3, 7]
    assert record.lanes == ["a#0", "b#0"]
    assert engine.judge(record.program, engine.Rule.synchronization).exact
    calm = parse_record([line for line in OPPOSITE if "sync" not in line])
    assert not engine.judge(calm.program, engine.Rule.synchronization).exact
    assert engine.judge(calm.program, engine.Rule.single_queue).exact


def test_a_record_cut_by_the_hang_gives_the_same_verdict() -> None:
    cut = parse_record(OPPOSITE[:4])
    assert cut.missing == {3: 1, 7: 1}
    assert engine.judge(cut.program, engine.Rule.synchronization).exact


def test_launches_of_a_lane_match_by_number() -> None:
    launch = '{"rank": %d, "event": "launch", "lane": "grads", "group": [0, 1]}'
    record = parse_record([launch % 0, launch % 0, launch % 1, launch % 1])
    assert record.lanes == ["grads#0", "grads#1"]
    assert record.program.events == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: an event is an object"),
        ('{"event": "sync"}', "line 2: rank is null"),
        ('{"rank": true, "event": "sync"}', "line 2: rank is true"),
        ('{"rank": 0, "event": "wait"}', 'line 2: event is "wait"'),
        ('{"rank": 0, "event": "launch"}', "line 2: lane is null"),
        ('{"rank": 0, "event": "launch", "lane": "x", "group": [0, 0]}', "line 2: group is [0, 0]"),
        (
            '{"rank": 0, "event": "launch", "lane": "a", "group": [0, 7]}',
            "line 2: group of lane 'a' is [0, 7]",
        ),
        ('{"rank": 0, "event": "launch", "lane": "new"}', "line 2: group of lane 'new' is missing"),
        ('{"rank": 5, "event": "launch", "lane": "a"}', "line 2: rank 5 is not in the group of lane 'a'"),
    ],
)
def test_bad_records_are_refused(line: str, expected: str) -> None:
    with pytest.raises(RecordError) as refusal:
        parse_record([OPPOSITE[0], line], "job.jsonl")
    assert expected in str(refusal.value)
    assert "job.jsonl" in str(refusal.value)


def test_an_empty_record_is_refused() -> None:
    with pytest.raises(RecordError, match="no events"):
        parse_record(["", " "])


@pytest.mark.parametrize(
    ("model", "disorder", "sync"), [("single_queue", 1e-4, 0.0), ("synchronization", 0.01, 0.02)]
)
def test_deadlocks_survive_the_round_trip(model: str, disorder: float, sync: float) -> None:
    configuration = Configuration(
        groups=three_d(3, 3, 2, 40, 90),
        gpus=18,
        model=model,
        disorder_probability=disorder,
        synchronization_probability=sync,
        threads=1,
    )
    rule = getattr(engine.Rule, model)
    small = list(shrunk_deadlocks(configuration, 30))
    whole = list(whole_deadlocks(configuration, 3))
    assert (len(small), len(whole)) == (30, 3)
    assert all(len(sequence.ranks) == 18 for sequence in whole)
    for sequence in small + whole:
        record = parse_record(sequence.record())
        assert not record.missing
        assert engine.judge(record.program, rule).exact
        assert sorted(map(len, record.program.events)) == sorted(map(len, sequence.program.events))
