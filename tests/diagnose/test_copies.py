"""Goal: of copies in STARLING_FLIGHT_DIR, which show what was under way when a fault was seen, the fault is judged.

Method: records made by hand as ranks copy them; no process and no clock.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from diagnose.records import NOW, NOWHERE, Call, S, job_of, records_of
from starling.diagnose.judge import judge
from starling.diagnose.record import Fault, Record

NO_PATH = "no path to rank 1 lives: eth0: silent, eth1: the peer has closed it"


def copied(record: Record, ago: float, *faults: tuple[str, float, str], **changes: Any) -> Record:
    """As it was so many seconds before now, when its rank saw the last of these faults."""
    return dataclasses.replace(
        record,
        state="copy",
        seen_ns=NOW - int(ago * S),
        alive_ns=NOW - int(ago * S),
        faults=tuple(Fault(kind, 0, 0, NOW - int(time * S), text) for kind, time, text in faults),
        **changes,
    )


def lost(whom: int) -> str:
    ports = NO_PATH.replace("rank 1", f"rank {whom}")
    return (
        f"rank {1 - whom} has lost rank {whom} on another host: {ports}; lane 'x' waited for it; remedy: none"
    )


def kinds(records: list[Record]) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.kind, one.ranks) for one in judge(job_of(records), NOWHERE, 1.0).findings]


def test_a_lost_host_with_one_copy_and_with_both() -> None:
    waits: list[Call] = [("x", 0, 9, None)]
    first, second = records_of([waits, []])
    here = copied(first, 5, ("peer failed", 5, lost(1)))
    verdict = judge(job_of([here]), NOWHERE, 1.0).verdict
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("lost", (1,))
    assert NO_PATH in verdict.what
    there = copied(second, 4, ("peer failed", 4, lost(0)))
    assert kinds([here, there]) == [("lost", (1,)), ("not called", (1,))]
    first, second = records_of([waits, waits])
    both = [copied(first, 5, ("peer failed", 5, lost(1))), copied(second, 4, ("peer failed", 4, lost(0)))]
    assert kinds(both) == [("lost", (1,)), ("unfinished", ())]


def test_who_called_after_the_first_fault_had_not_called() -> None:
    """Rank 1's own copy is of a later time: of its own fault, which the call that came too late ran into."""
    first, second = records_of([[("x", 0, 9, None)], [("x", 0, 1, None)]])
    late = copied(first, 5, ("timeout", 5, "late"))
    assert kinds([late, copied(second, 0.5, ("peer failed", 0.5, "rank 0 gave up"))])[0] == (
        "not called",
        (1,),
    )


def test_a_fault_that_was_overcome_is_not_judged() -> None:
    """Rank 0 was lost and came again, long before rank 1 stayed away: nothing was under way of that time any more."""
    overcome = ("peer failed", 60.0, lost(1))
    before: Call = ("y", 0, 70, 60)
    calls: list[list[Call]] = [[before, ("x", 0, 9, None)], [before]]
    first, second = records_of(calls)
    now = [copied(first, 0, overcome, ("timeout", 0, "late")), copied(second, 0)]
    assert kinds(now) == [("not called", (1,))]


def test_of_ranks_that_live_what_hangs_since_comes_first() -> None:
    """And what hangs since before a host was lost hangs by that."""
    for began, expected in ((30.0, ["not called"]), (90.0, ["lost", "not called"])):
        first, second = records_of([[("x", 0, began, None)], [("y", 0, 99, 98)]])
        first = dataclasses.replace(first, faults=(Fault("peer failed", 0, 0, NOW - 60 * S, lost(1)),))
        assert [kind for kind, _ in kinds([first, second])] == expected
