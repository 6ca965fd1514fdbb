"""Who waits for whom: ranks that have not called, and circles.

A rank waits for another if it has called an operation that the other has not. Along such waits there is a rank that
waits for nobody, which is the culprit, or a circle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from starling.diagnose import words
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import Call, Moment, Rank


@dataclass(frozen=True)
class Wait:
    waiter: Rank
    awaited: Rank
    call: Call


def waits_of(moment: Moment, after_s: float) -> list[Wait]:
    """Those older than ``after_s``, the oldest first."""
    return [
        Wait(call.rank, rank, call)
        for call in moment.calls
        if call.waited_s >= after_s
        for rank in moment.missing(call)
        if rank.id != call.rank.id
    ]


def circle_in(waits: list[Wait]) -> list[Wait]:
    """The waits of a circle, from its smallest rank on; empty: there is none."""
    of_rank: dict[int, list[Wait]] = {}
    for wait in waits:
        of_rank.setdefault(wait.waiter.id, []).append(wait)
    done: set[int] = set()
    # Depth first; a branch is the waits of one rank that were not followed yet.
    for start in sorted(of_rank, key=lambda id_: of_rank[id_][0].waiter.number):
        path: list[Wait] = []
        on_path: list[int] = [start]
        branches = [iter(of_rank[start])]
        while branches:
            step = next(branches[-1], None)
            if step is None:
                branches.pop()
                done.add(on_path.pop())
                if path:
                    path.pop()
                continue
            if step.awaited.id in on_path:
                at = on_path.index(step.awaited.id)
                found = [*path[at:], step]
                first = min(range(len(found)), key=lambda k: found[k].waiter.number)
                return found[first:] + found[:first]
            if step.awaited.id in of_rank and step.awaited.id not in done:
                path.append(step)
                on_path.append(step.awaited.id)
                branches.append(iter(of_rank[step.awaited.id]))
    return []


def circle(moment: Moment, waits: list[Wait], after_s: float) -> Finding | None:
    found = circle_in(waits)
    if not found or any(active_since(moment, wait.waiter) < after_s for wait in found):
        return None
    steps = [
        f"rank {wait.waiter.number} waits for rank {wait.awaited.number} in {wait.call.operation} of "
        f"{wait.call.place()}, since {words.seconds(wait.call.waited_s)}"
        for wait in found
    ]
    return Finding(
        "cycle",
        f"{words.ranks(w.waiter.number for w in found)} wait for each other in a circle: " + "; ".join(steps),
        "submit the operations of all lanes before waiting for one, or wait for them in one order on all ranks",
        ranks=tuple(wait.waiter.number for wait in found),
        lane=found[0].call.lane.name,
        sequence=found[0].call.operation.sequence,
    )


def culprit_of(waits: list[Wait]) -> Rank | None:
    """The rank that most wait for, directly or not, among those that wait for nobody.

    What a rank without a record has called is not known: one with a record that has not called comes first.
    """
    waiting = {wait.waiter.id for wait in waits}
    ends = Counter(wait.awaited.id for wait in waits if wait.awaited.id not in waiting)
    of_id = {wait.awaited.id: wait.awaited for wait in waits}
    if not ends:
        return None
    return of_id[min(ends, key=lambda id_: (of_id[id_].record is None, -ends[id_], of_id[id_].number))]


def active_since(moment: Moment, rank: Rank) -> float:
    """Seconds since the rank last called or finished anything; infinite if never, or if the moment is past."""
    record = rank.record
    if record is None or moment.at_ns:
        return float("inf")
    times = [max(op.submitted_ns, 0 if op.failed else op.completed_ns) for op in record.operations]
    return (record.until_ns - max(times)) / 1e9 if times else float("inf")


def not_called(moment: Moment, waits: list[Wait], hosts: Hosts, after_s: float) -> Finding | None:
    rank = culprit_of(waits)
    if rank is None or active_since(moment, rank) < after_s:
        return None  # one that goes on with something else may still come
    mine = [wait for wait in waits if wait.awaited.id == rank.id]
    first = mine[0].call
    if rank.record is None:
        return not_known(moment, first)
    waiters = sorted({wait.waiter.number for wait in mine})
    last = words.last_of(moment.job, rank)
    others = len({wait.call.lane.key for wait in mine}) - 1
    more = f" (and in {others} other lane{'s' if others > 1 else ''})" if others else ""
    what = (
        f"{words.who(rank)} has not called {first.operation} in {first.place()}{more}, for which "
        f"{words.ranks(waiters)} {'wait' if len(waiters) > 1 else 'waits'} since "
        f"{words.seconds(first.waited_s)}; {last}"
    )
    remedy = f"see what that rank does (py-spy dump --pid {rank.record.pid}, its log)"
    if rank.record.state in ("dead", "ended"):
        remedy = "see what that rank did (its log)"
    chained = sorted({wait.waiter.number for wait in waits} - set(waiters))
    details = [f"{words.ranks(chained)} wait for those in turn"] if chained else []
    details += hosts.words_for(rank.record)
    return Finding(
        "not called", what, remedy, (rank.number,), first.lane.name, first.operation.sequence, tuple(details)
    )


def not_known(moment: Moment, call: Call) -> Finding:
    """All that have records have called it: the culprit is one of the others, or on the way to them."""
    missing = [rank.number for rank in moment.missing(call) if rank.record is None]
    same = (call.lane.key, call.operation.sequence)
    waiters = {
        other.rank.number for other in moment.calls if (other.lane.key, other.operation.sequence) == same
    }
    several = len(missing) > 1
    whose = "their hosts, or pass their flight records" if several else "its host, or pass its flight record"
    return Finding(
        "not called",
        f"{words.ranks(waiters)} {'wait' if len(waiters) > 1 else 'waits'} since {words.seconds(call.waited_s)} for "
        f"{words.ranks(missing)} in {call.operation} of {call.place()}; no record of "
        f"{'them' if several else 'it'} is here: what {'they' if several else 'it'} called is not known",
        f"run `starling diagnose` on {whose} (STARLING_FLIGHT_DIR)",
        tuple(missing),
        call.lane.name,
        call.operation.sequence,
    )
