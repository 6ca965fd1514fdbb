"""Goal: where ranks of other hosts have no record here, what they told this host decides: a rank here is named, all is
well, or it is said that too little is known.

Method: records made by hand, and what was heard; no process and no clock.
"""

from __future__ import annotations

import dataclasses
import zlib

from diagnose.records import NOWHERE, Call, job_of, records_of
from starling.diagnose.finding import Diagnosis
from starling.diagnose.judge import judge
from starling.diagnose.paths import NOTHING
from starling.diagnose.record import Operation, Record
from starling.diagnose.remote import Heard, LaneThere, State

X = (zlib.crc32(b"x"), 0)  # the key that records_of() gives this lane
QUIET: list[Call] = [("x", 0, 9, 8)]
CALLED = LaneThere(0, 2, {1: Operation(0, 0, 1, "all_gather", 7)})


def of_another_host(
    rank: int, *waits: tuple[str, int], state: State = "there", lane: LaneThere = CALLED
) -> Heard:
    return Heard(f"starling.one.{rank + 5}", 100 + rank, state, waits, {X: lane})


def here(calls: list[list[Call]], *ranks: int, linked: bool = True) -> list[Record]:
    """The records of some."""
    records = records_of(calls, linked=linked)
    return [dataclasses.replace(records[rank], arena=f"starling.one.{rank}") for rank in ranks]


def diagnosed(records: list[Record], *heard: Heard) -> Diagnosis:
    return judge(job_of(records), NOWHERE, 5.0, NOTHING, heard)


def test_a_rank_here_is_waited_for() -> None:
    found = diagnosed(
        here([QUIET] * 3, 1), of_another_host(0, ("x", 1)), of_another_host(2, ("x", 1), lane=CALLED)
    )
    assert found.verdict is not None and not found.not_known
    assert (found.verdict.kind, found.verdict.ranks) == ("not called", (1,))
    assert "has not called all_gather of 7 uint8 in lane 'x' at position 1" in found.verdict.what
    assert "for which ranks 0 and 2 on other hosts wait" in found.verdict.what


def test_a_rank_here_that_goes_on_may_come() -> None:
    lately: list[Call] = [*QUIET, ("y", 0, 2, 1)]
    assert diagnosed(here([lately] * 2, 1), of_another_host(0, ("x", 1))).healthy


def test_a_rank_waits_for_others_than_those_here() -> None:
    """Those here have called it, or it is in a lane that none of them is in."""
    both: list[Call] = [*QUIET, ("x", 1, 7, 6)]
    for wait in (("x", 1), ("of others", 4)):
        found = diagnosed(here([both] * 3, 2), of_another_host(0, wait), of_another_host(1))
        assert found.verdict is None and not found.healthy
        assert f"rank 0 on another host waits in lane '{wait[0]}' at position {wait[1]}" in found.not_known


def test_all_have_told_that_they_wait_for_nothing() -> None:
    records = here([QUIET] * 3, 2)
    assert diagnosed(records, of_another_host(0), of_another_host(1)).healthy
    assert diagnosed(records, of_another_host(0), of_another_host(1, state="left")).healthy
    assert diagnosed(records, of_another_host(0)).healthy, "rank 1 was of this host, and has left"
    assert diagnosed(here([QUIET] * 3, 2, linked=False)).healthy, "all were of this host"


def test_who_has_told_nothing_is_said() -> None:
    records = here([QUIET] * 3, 2)
    strange = dataclasses.replace(of_another_host(1), id=None)
    for heard, whom in (
        ((), "ranks 0 and 1"),
        ((of_another_host(0), of_another_host(1, state="lost")), "rank 1"),
        ((of_another_host(0), strange), "rank 1"),
        ((dataclasses.replace(of_another_host(0), segment="starling.two.7"),), "ranks 0 and 1"),
    ):
        found = diagnosed(records, *heard)
        assert f"no record of {whom} is here" in found.not_known, heard
        assert "run `starling diagnose` on the other hosts" in found.not_known
