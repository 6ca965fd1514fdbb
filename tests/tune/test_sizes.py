"""Goal: a plan gets no size that it is not for, and a tuning of some sizes leaves the others as they were.

Method: ranges of made-up times with limits; programs that say their sizes, with made-up measurements; a table that is
there already.
"""

import pytest
from starling.plans import program

from starling.tune.command import _told
from starling.tune.table import Row, Table, parse, ranges
from starling.tune.tuning import Tuning, tune, works_of


def test_a_plan_gets_no_size_that_it_is_not_for() -> None:
    measured = [
        (64, {"a": 9.0, "mine": 5.0}),
        (1024, {"mine": 5.0, "yours": 6.0}),  # nobody else was near, and measured to the end
        (16384, {"a": 9.0, "b": 30.0}),
    ]
    rest = {size: {**times, "a": 9.0, "b": 8.0} for size, times in measured}
    limits = {"mine": (50, 2000), "yours": (1000, 3000)}
    assert ranges(measured, limits=limits, rest=rest) == [
        (49, "a", 64),
        (2000, "mine", 1024),
        (3000, "yours", 1024),
        (4096, "b", 1024),
        (16384, "a", 16384),
    ]
    one_size = [(512, {"a": 2.0, "mine": 1.0})]
    assert ranges(one_size, limits={"mine": (512, 512)}) == [(511, "a", 512), (512, "mine", 512)]
    assert ranges(one_size, limits={"mine": (0, 1 << 40)}) == [(512, "mine", 512)]


def rows_after(begin: int, *newer: tuple[int, str]) -> list[tuple[int, str]]:
    def table(*rows: tuple[int, str]) -> Table:
        return Table([Row("here", "all_reduce", False, "plain", size, name, 1) for size, name in rows])

    older = table((1024, "a"), (8192, "b"), (65536, "c"))
    older.rows.append(Row("here", "broadcast", False, "moved", 64, "direct", 1))
    older.update(table(*newer), begin)
    assert older.rows[0].collective == "broadcast" and len(parse(older.text()).rows) == len(older.rows)
    return [(row.largest_bytes, row.algorithm) for row in older.rows[1:]]


def test_sizes_that_were_not_measured_anew_stay() -> None:
    assert rows_after(64, (1 << 20, "d")) == [(1 << 20, "d")]
    assert rows_after(64, (4096, "d")) == [(4096, "d"), (8192, "b"), (65536, "c")]
    assert rows_after(512, (4096, "d")) == [(511, "a"), (4096, "d"), (8192, "b"), (65536, "c")]
    assert rows_after(4096, (8192, "d")) == [(1024, "a"), (4095, "b"), (8192, "d"), (65536, "c")]
    assert rows_after(512, (4096, "a")) == [(4096, "a"), (8192, "b"), (65536, "c")]
    assert rows_after(1 << 20, (1 << 22, "d"))[-2:] == [(65536, "c"), (1 << 22, "d")]


def test_a_plan_of_one_s_own_takes_part_at_the_sizes_that_it_is_for() -> None:
    tuning = Tuning(["all_reduce"], 2, [64, 256, 1024], places=(False,), dtypes=("float32",), most=1, tiled=0)
    own = program("all_reduce", "ring", 2).compile()
    own.name, own.sizes = "own", (256, 1000)
    took_part = [
        "own" in [candidate.name for candidate in work.candidates] for work in works_of(tuning, [own])
    ]
    assert took_part == [False, True, False]
    own.sizes = (300, 1000)
    with pytest.raises(ValueError, match=r"plan own is for sizes of \(300, 1000\); none of them is measured"):
        works_of(tuning, [own])


def test_a_plan_of_one_s_own_wins_no_size_that_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [64, 1024], places=(False,), dtypes=("float32",), most=1, tiled=1)
    made = program("all_reduce", "halving_doubling", 2)
    made.name, made.sizes = "own", (100, 2000)
    works = works_of(tuning, [made.compile()])
    assert [any("own" in candidate.name for candidate in work.candidates) for work in works] == [False, True]
    others = works[1].candidates[0].name
    # It was twice as fast as any other: they were not measured to the end.
    samples = [
        {candidate.name: [4.0] * 3 for candidate in works[0].candidates},
        {c.name: [1.0] * 3 if c.name in ("own", "choice") else [2.0] for c in works[1].candidates},
    ]
    monkeypatch.setattr("starling.tune.tuning.measured", lambda *_, **__: ("here", samples))
    result = tune(tuning, works)
    rows = [(row.largest_bytes, row.algorithm.split(".")[0], row.time_us) for row in result.table.rows]
    assert rows[1:] == [(1024, "own", 1.0)] and rows[0][0] == 256
    made.sizes = (500, 800)
    with pytest.raises(ValueError, match="none of them is measured"):
        works_of(tuning, [made.compile()])
    made.sizes = (600, 1024)
    works[1] = works_of(tuning, [made.compile()])[1]
    rows = [(row.largest_bytes, row.algorithm.split(".")[0]) for row in tune(tuning, works).table.rows]
    assert rows[-2][0] == 599 and rows[-2][1] in others and rows[-1] == (1024, "own")
    assert all(line for line in _told(result))
