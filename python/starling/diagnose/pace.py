"""Which rank computes slowly: how much of the time each spends between its calls, with nothing of its own under way."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from starling.diagnose import stages, words
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job
from starling.diagnose.record import Record

FEWEST_CALLS = 8  # of which to judge
SHARE = 0.3  # of the time on its own, from which a rank may be slow
FACTOR = 2.0  # and that much more than half of the others


@dataclass(frozen=True)
class Pace:
    """Of one rank, in the time that all ranks' records cover."""

    own_share: float  # of the time with no operation under way; without the longest such time
    own_s: float  # mean time between its calls
    calls: int


def _pace_of(record: Record, begin: int, end: int) -> Pace | None:
    done = [op for op in record.operations if op.completed_ns and not op.failed and op.submitted_ns >= begin]
    done = [op for op in done if op.completed_ns <= end]
    if len(done) < FEWEST_CALLS or end <= begin:
        return None
    gaps = []
    busy_until = done[0].completed_ns
    for op in done[1:]:
        if op.submitted_ns > busy_until:
            gaps.append(op.submitted_ns - busy_until)
        busy_until = max(busy_until, op.completed_ns)
    own = sum(gaps) - max(gaps, default=0)
    return Pace(own / (end - begin), own / 1e9 / max(1, len(gaps) - 1), len(done))


def paces(job: Job) -> dict[int, Pace]:
    """By rank; empty where a rank has called too little to compare."""
    if any(rank.record is None or not rank.record.operations for rank in job.ranks.values()):
        return {}
    ends = [max(op.completed_ns for op in record.operations) for record in job.records]
    if not all(ends):
        return {}
    begin = max(record.operations[0].submitted_ns for record in job.records)
    found = {
        rank.number: _pace_of(rank.record, begin, min(ends))
        for rank in job.ranks.values()
        if rank.record is not None
    }
    return {number: pace for number, pace in found.items() if pace} if all(found.values()) else {}


def slow_rank(job: Job, hosts: Hosts) -> Finding | None:
    """At most half of the ranks, that compute for long while the others wait for them."""
    found = paces(job)
    if len(found) < 2:
        return None
    ordered = sorted(found.values(), key=lambda pace: pace.own_share)
    usual = median(pace.own_share for pace in ordered[: max(1, (len(ordered) + 1) // 2)])
    slow = {n for n, pace in found.items() if pace.own_share >= max(SHARE, FACTOR * usual + 0.1)}
    if not slow or 2 * len(slow) > len(found):
        return None
    slowest = max(slow, key=lambda n: found[n].own_share)
    others = median(pace.own_s for n, pace in found.items() if n not in slow)
    known = stages.dimensions(job)
    stage = stages.name_of(known, slow)
    record = next(rank.record for rank in job.ranks.values() if rank.number == slowest)
    assert record is not None
    what = (
        f"{words.ranks(slow)}{f' ({stage})' if stage else ''} compute{'s' if len(slow) == 1 else ''} slowly: "
        f"{words.seconds(found[slowest].own_s)} between calls where the others take {words.seconds(others)}, and "
        f"the others wait for {'it' if len(slow) == 1 else 'them'} meanwhile"
    )
    shares = ", ".join(f"rank {n} {pace.own_share:.0%}" for n, pace in sorted(found.items()))
    details = [f"of the time each rank is on its own: {shares}", *map(str, known), *hosts.words_for(record)]
    remedy = "compare that rank's data, GPU clocks and host with the others'"
    if any(dimension.kind == "pipeline" and dimension.is_layer(slow) for dimension in known):
        remedy = "move layers from that stage to others, or compare its GPUs' clocks and hosts"
    return Finding("slow", what, remedy, tuple(sorted(slow)), details=tuple(details))
