"""Which path between hosts is slow: what ranks of this host keep of their transfers, watched for a moment; and what
those that are gone, or left files, kept in their flight records.

A path is told by what it does while it has something to carry. One that has nothing is starved: its user is late, or
another path holds it up.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starling.diagnose import words
from starling.diagnose.finding import Finding
from starling.diagnose.job import Job
from starling.diagnose.record import PathHistory, Record
from starling.monitor.views import Anomaly, Path, Sample, Watcher, now_ns

WATCH_S = 1.0
KEPT = 50_000  # samples of a rank
HORIZON_NS = 5_000_000_000  # what was before it says nothing of now
LEAST_TIME_NS = 300_000_000  # of which to judge
SHARE = 0.5  # of the time
FACTOR = 4.0  # slower than the other paths between the same two ranks
FEWEST_TRANSFERS = 8
UNHEARD_NS = 400_000_000  # a receiver may keep to itself for so long that the last transfers of many came


@dataclass(frozen=True)
class Watched:
    """A path of one rank (`segment`), what it carried lately and what was wrong with it."""

    segment: str
    path: Path
    samples: Sequence[Sample] = ()
    anomalies: Sequence[Anomaly] = ()


@dataclass(frozen=True)
class Look:
    """At all paths of the ranks of this host, when ``now_ns`` was the time."""

    now_ns: int = 0
    paths: Sequence[Watched] = ()


NOTHING = Look()


def watch(records: Iterable[Record], seconds: float = WATCH_S) -> Look:
    """Takes so long, where one of the ranks lives here and has paths; else nothing."""
    if not any(record.state == "live" and record.linked for record in records):
        return NOTHING
    watcher = Watcher(kept_samples=KEPT)
    time.sleep(seconds)
    ranks = watcher.look()
    samples, anomalies = watcher.take()
    samples_of: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        samples_of[sample.segment, sample.ring].append(sample)
    anomalies_of: dict[tuple[str, int], list[Anomaly]] = defaultdict(list)
    for segment, ring, anomaly in anomalies:
        anomalies_of[segment, ring].append(anomaly)
    found = [
        Watched(rank.segment, path, samples_of[key], anomalies_of[key])
        for rank in ranks
        for path in rank.paths
        if (key := (rank.segment, path.ring))
    ]
    return Look(now_ns(), found)


@dataclass(frozen=True)
class Pace:
    """Of a path, in the time that is looked at."""

    seen_ns: int  # how long that is
    transfers: int
    busy_ns: int  # with something under way
    rate: float  # bytes a second of that time
    usual: float  # what its own history expects; 0: it has lost no time
    lost_ns: int  # to the network, against that
    starved_ns: int
    quiet_ns: int  # since it has last carried something


def pace_of(watched: Watched, now: int) -> Pace | None:
    """None: it has carried nothing for long."""
    begin = now - HORIZON_NS
    if watched.samples:
        begin = max(begin, watched.samples[0].posted_ns)
    recent = [sample for sample in watched.samples if sample.completed_ns > begin]
    path = watched.path
    found = [*watched.anomalies, *([path.anomaly] if path.anomaly else [])]
    found = [anomaly for anomaly in found if anomaly.end_ns > begin]
    if not recent and not found:
        return None
    busy, until = 0, begin
    for sample in recent:
        busy += max(0, sample.completed_ns - max(sample.posted_ns, until))
        until = max(until, sample.completed_ns)
    if path.left_bytes:
        busy += max(0, now - max(now - path.waiting_ns, until))
    lost: dict[str, float] = {"network": 0.0, "starved": 0.0}
    for anomaly in found:
        inside = anomaly.end_ns - max(anomaly.begin_ns, begin)
        lost[anomaly.cause] += anomaly.lost_ns * inside / max(1, anomaly.end_ns - anomaly.begin_ns)
    worst = max(
        (anomaly for anomaly in found if anomaly.cause == "network"),
        key=lambda anomaly: anomaly.lost_ns,
        default=None,
    )
    carried = sum(sample.bytes for sample in recent)
    return Pace(
        seen_ns=max(1, now - begin),
        transfers=len(recent),
        busy_ns=busy,
        rate=carried / (busy / 1e9) if busy else 0.0,
        usual=worst.usual_bytes_per_second if worst else 0.0,
        lost_ns=int(lost["network"]),
        starved_ns=int(lost["starved"]),
        quiet_ns=now - max((sample.completed_ns for sample in recent), default=begin),
    )


def pace_in_record(history: PathHistory, now: int) -> Pace | None:
    """The same as its rank saw it, `now` being a time until which its paths had something to carry."""
    samples = [sample for sample in history.samples if now - HORIZON_NS < sample.end_ns <= now]
    seen, busy, lost = 0, 0, 0.0
    for sample in samples:
        inside = sample.end_ns - max(sample.begin_ns, now - HORIZON_NS)
        part = min(1.0, inside / max(1, sample.end_ns - sample.begin_ns))
        # Of one that began before, what is of the end: it was busy then, and idle before.
        seen += inside
        busy += min(sample.busy_ns, inside)
        lost += min(sample.lost_ns * part, inside)
    last = samples[-1].end_ns if samples else now - HORIZON_NS
    stands = _stands_since(history, last)
    tail = now - max(last, now - HORIZON_NS)
    still = min(tail, max(0, now - stands)) if stands else 0
    if not samples and still < UNHEARD_NS:
        return None
    usual = [sample.usual_bytes_per_second for sample in samples if sample.usual_bytes_per_second]
    slow = [sample.usual_bytes_per_second for sample in samples if sample.lost_ns]
    still = still if still >= UNHEARD_NS else 0
    lost += still if usual else 0
    carried = sum(sample.bytes for sample in samples)
    return Pace(
        seen_ns=max(1, seen + tail),
        transfers=sum(sample.transfers for sample in samples),
        busy_ns=busy + still,
        rate=carried / ((busy + still) / 1e9) if busy + still else 0.0,
        usual=float(slow[-1] if slow else usual[-1] if still and usual else 0),
        lost_ns=int(lost),
        starved_ns=max(0, seen + tail - busy - still),
        quiet_ns=now - last,
    )


def _stands_since(history: PathHistory, last: int) -> int:
    """0: nothing was under way."""
    return max(history.waiting_since_ns, last) if history.left_bytes and history.waiting_since_ns else 0


def _end_of(records: Sequence[Record], fault_ns: int) -> int:
    """Until when the paths of these ranks had something to carry, before the job's first fault."""
    ends = []
    for path in (path for record in records for path in record.paths):
        ends += [sample.end_ns for sample in path.samples[-1:]]
        if _stands_since(path, 0):
            ends.append(path.seen_ns)
    return min(max(ends, default=0), fault_ns or max(ends, default=0))


def _is_slow(pace: Pace, others: Sequence[Pace]) -> bool:
    """Against its own history, or against the other paths between the same ranks; and it is what they wait for."""
    if pace.seen_ns < LEAST_TIME_NS or pace.busy_ns < SHARE * pace.seen_ns:
        return False
    lost = pace.lost_ns >= SHARE * pace.seen_ns
    if lost and all(pace.lost_ns > FACTOR * other.lost_ns for other in others):
        return True
    judged = [other for other in others if other.transfers >= FEWEST_TRANSFERS]
    return (
        pace.transfers >= FEWEST_TRANSFERS
        and bool(judged)
        and all(other.rate > FACTOR * pace.rate for other in judged)
    )


@dataclass(frozen=True)
class SlowPath:
    finding: Finding
    # Not so of one that stands still and has no other beside it: the host at its other end may be what stands.
    is_the_wires: bool


Key = tuple[int, int, int]  # who sends, to whom, by which path


def _paces(job: Job, look: Look) -> dict[Key, tuple[Path | PathHistory, Pace]]:
    """Of ranks that live as they were seen now, of the others as their records say."""
    of_segment = {record.arena: job.number(record.id) for record in job.records}
    paces: dict[Key, tuple[Path | PathHistory, Pace]] = {
        (of_segment[one.segment], one.path.peer, one.path.path): (one.path, pace)
        for one in look.paths
        if one.segment in of_segment and (pace := pace_of(one, look.now_ns)) is not None
    }
    gone = [record for record in job.records if record.state != "live"]
    ended_ns = _end_of(gone, job.first_fault_ns)
    for record in gone:
        for history in record.paths:
            if (pace := pace_in_record(history, ended_ns)) is not None:
                paces[job.number(record.id), history.peer, history.path] = history, pace
    return paces


def slow_path(job: Job, look: Look) -> SlowPath | None:
    """The path that most time is lost to; others that are slow, too, in the details."""
    paces = _paces(job, look)
    others = {
        key: [found for other, found in paces.items() if other[:2] == key[:2] and other != key]
        for key in paces
    }
    slow = [key for key, (_, pace) in paces.items() if _is_slow(pace, [other for _, other in others[key]])]
    if not slow:
        return None
    of_wires = {key for key in slow if others[key] or paces[key][1].quiet_ns < SHARE * paces[key][1].seen_ns}
    slow.sort(key=lambda key: (key not in of_wires, -paces[key][1].busy_ns, key))
    first = slow[0]
    path, pace = paces[first]
    over = isinstance(path, PathHistory)
    what = (
        f"the path from rank {first[0]} to rank {first[1]} by {path.name} ({path.link}) {'was' if over else 'is'} "
        f"slow: {_rate(pace.rate)} while it {'had' if over else 'has'} something to carry"
    )
    if pace.usual > 0:
        what += f", where {_rate(pace.usual)} was usual"
    details = [
        f"it was busy for {pace.busy_ns / pace.seen_ns:.0%} of the last {words.seconds(pace.seen_ns / 1e9)}"
        + (" in which it carried anything" if over else "")
    ]
    for key in slow[1:]:
        also, its = paces[key]
        details.append(f"so is the one from rank {key[0]} to rank {key[1]} by {also.name}: {_rate(its.rate)}")
    for beside, its in others[first]:
        starved = (
            f", and had nothing to carry for {words.seconds(its.starved_ns / 1e9)}" if its.starved_ns else ""
        )
        details.append(
            f"between the same ranks, {beside.name} {'carried' if over else 'carries'} {_rate(its.rate)}{starved}"
        )
    finding = Finding(
        "slow path",
        what,
        "look at these ports and what is between them: their errors and speed (ethtool), and who else uses them",
        tuple(sorted({rank for key in slow for rank in key[:2]})),
        details=tuple(details),
        paths=tuple(dict.fromkeys(paces[key][0].name for key in slow)),
    )
    return SlowPath(finding, first in of_wires)


def _rate(bytes_per_second: float) -> str:
    for unit in ("B/s", "kB/s", "MB/s"):
        if bytes_per_second < 1000:
            return f"{bytes_per_second:.3g} {unit}"
        bytes_per_second /= 1000
    return f"{bytes_per_second:.3g} GB/s"
