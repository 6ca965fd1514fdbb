"""What has ended ranks, or their operations: death, a stop, calls that do not match, ranks that never joined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from starling.diagnose import words
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job, Rank
from starling.diagnose.record import Fault, Operation, Record

_DIED = re.compile(r"\(process (\d+)\) died")
_RANK = re.compile(r"rank (\d+) ")
_LEFT = re.compile(r"\(process (\d+)\) left")
_LOST = re.compile(r"has lost rank (\d+) on another host: (.*?)(?:; lane|$)")
_TOGETHER_NS = 300_000_000  # ranks of a job that was killed as a whole


def _ranks(job: Job) -> Iterator[tuple[Rank, Record]]:
    for rank in job.ranks.values():
        if rank.record is not None:
            yield rank, rank.record


def _faults(job: Job, kind: str) -> list[tuple[Record, Fault]]:
    found = [(record, fault) for record in job.records for fault in record.faults if fault.kind == kind]
    return sorted(found, key=lambda pair: pair[1].time_ns)


def died(job: Job) -> Finding | None:
    """Ranks that are gone while others live, or of which others said so before they ended."""
    told = {
        (record.host, int(match[1]))
        for record, fault in _faults(job, "peer failed")
        if (match := _DIED.search(fault.text))
    }
    first_fault = job.first_fault_ns if job.first_fault and job.first_fault.kind != "peer failed" else 0
    dead = [
        rank for rank, record in _ranks(job) if (record.host, record.pid) in told and record.state != "live"
    ]
    if not dead:
        gone = [(rank, record) for rank, record in _ranks(job) if record.state == "dead"]
        alive = [record for _, record in _ranks(job) if record.state in ("live", "ended")]
        last = max((record.alive_ns for _, record in gone), default=0)
        # Of a job that is gone as a whole: the one that ended well before the others.
        dead = [rank for rank, record in gone if alive or last - record.alive_ns > _TOGETHER_NS]
    # Launchers kill what is left of a job: then the fault, or the hang before it, is the cause.
    if first_fault:
        dead = [r for r in dead if r.record and r.record.alive_ns + _TOGETHER_NS < first_fault]
    if not dead:
        return None if first_fault else _died_elsewhere(job)
    first = min(dead, key=lambda rank: rank.record.alive_ns if rank.record else 0)
    assert first.record is not None
    ago = words.seconds(max(0, job.seen_ns - first.record.alive_ns) / 1e9)
    what = f"{words.who(first)} died {ago} ago; {words.last_of(job, first)}"
    if len(dead) > 1:
        what += f" ({words.ranks(rank.number for rank in dead if rank is not first)} died too)"
    return Finding(
        "died",
        what,
        "see that rank's log and the kernel's (dmesg: out of memory?) for the cause",
        tuple(rank.number for rank in dead),
    )


def _died_elsewhere(job: Job) -> Finding | None:
    """A rank of another host, as those that have records here were told."""
    here = {record.pid for record in job.records}
    told = [
        (record, fault, match)
        for record, fault in _faults(job, "peer failed")
        if (match := _DIED.search(fault.text)) and int(match[1]) not in here
    ]
    if not told:
        return None
    _, fault, match = told[0]
    whom = words.ranks(job.number(record.id) for record, _, _ in told)
    return Finding(
        "died",
        f"{fault.text[: match.end()]}, as {whom} heard from its host; no record of it is here",
        "see that rank's log and its host's kernel's (dmesg: out of memory?) for the cause",
        tuple(int(number[1]) for number in [_RANK.match(fault.text)] if number),
    )


def lost(job: Job, since_ns: int = 0) -> Finding | None:
    """No path to a rank of another host lives, as was found at this time or later."""
    for record, fault in _faults(job, "peer failed"):
        match = _LOST.search(fault.text)
        if match is None or fault.time_ns < since_ns:
            continue
        return Finding(
            "lost",
            f"{words.who(job.ranks[record.id])} lost rank {match[1]} on another host: {match[2]}",
            "see that rank's log, and these ports",
            (int(match[1]),),
            _lane_of(record, fault),
        )
    return None


def left(job: Job) -> Finding | None:
    for record, fault in _faults(job, "peer failed"):
        match = _LEFT.search(fault.text)
        if match is None:
            continue
        lane = _lane_of(record, fault)
        numbers = [rank.number for rank, r in _ranks(job) if (r.host, r.pid) == (record.host, int(match[1]))]
        return Finding(
            "left",
            f"{words.ranks(numbers) if numbers else f'process {match[1]}'} left while others waited for it in lane "
            f"'{lane}'",
            "have every rank finish its operations before it destroys its communicator",
            tuple(numbers),
            lane,
        )
    return None


def _lane_of(record: Record, fault: Fault) -> str:
    return record.lanes[fault.lane].name if fault.lane in record.lanes else ""


def stopped(job: Job, hosts: Hosts) -> Finding | None:
    found = [(rank, why) for rank, record in _ranks(job) if (why := hosts.stopped(record))]
    if not found:
        return None
    rank, why = found[0]
    assert rank.record is not None
    what = f"{words.who(rank)} is {why}; {words.last_of(job, rank)}"
    if len(found) > 1:
        what += f" ({words.ranks(rank.number for rank, _ in found[1:])} too)"
    return Finding("stopped", what, f"kill -CONT {rank.record.pid}", tuple(rank.number for rank, _ in found))


def mismatch(job: Job) -> Finding | None:
    """Ranks that called different operations in one place, with both sides' arguments."""
    for lane in job.lanes.values():
        here: dict[int, list[tuple[Rank, Operation]]] = {}
        for member, (index, entry) in lane.entries.items():
            for op in job.ranks[member].operations(index, entry):
                here.setdefault(op.sequence, []).append((job.ranks[member], op))
        for sequence, calls in sorted(here.items()):
            sides: dict[tuple[object, ...], list[tuple[Rank, Operation]]] = {}
            for rank, op in calls:
                sides.setdefault(op.arguments(), []).append((rank, op))
            if len(sides) > 1:
                return _mismatch(lane.name, sequence, list(sides.values()))
    for record, fault in _faults(
        job, "mismatch"
    ):  # the record has the calls no more, or counts differ by pairs
        lane_name = _lane_of(record, fault)
        text, _, remedy = fault.text.partition("; remedy: ")
        return Finding("mismatch", text, remedy or _ORDER, lane=lane_name, sequence=fault.sequence)
    return None


_ORDER = (
    "let every rank call the same operation with the same arguments at each position of a lane, and name lanes where "
    "ranks call in different orders"
)


def _mismatch(lane: str, sequence: int, sides: list[list[tuple[Rank, Operation]]]) -> Finding:
    """The smallest side is the culprit; of equal ones both: a lane may break before all have called."""
    sides.sort(key=len)
    culprits = [rank.number for side in sides if len(side) == len(sides[0]) for rank, _ in side]
    told = []
    texts = [str(side[0][1]) for side in sides]
    for side, text in zip(sides, texts, strict=True):
        if texts.count(text) > 1:
            text += f" by plan {side[0][1].plan_hash:016x}"
        told.append(f"{words.ranks(rank.number for rank, _ in side)} called {text}")
    return Finding(
        "mismatch",
        f"calls do not match in lane '{lane}' at position {sequence}: " + ", ".join(told),
        _ORDER,
        tuple(sorted(culprits)),
        lane,
        sequence,
    )


def not_joined(job: Job, after_s: float) -> Finding | None:
    for rank, record in _ranks(job):
        joining = record.joining
        if joining is None or record.until_ns - joining.since_ns < after_s * 1e9 or record.state == "ended":
            continue
        return Finding(
            "not joined",
            f"{words.who(rank)} has waited for rank {joining.awaited} of {joining.size} to join "
            f"'{joining.name}' for {words.seconds((record.until_ns - joining.since_ns) / 1e9)}",
            f"see whether rank {joining.awaited} was started, with the same name, size and store",
            (joining.awaited,),
        )
    return None


def no_sender(job: Job, after_s: float) -> Finding | None:
    for rank, record in _ranks(job):
        for group in record.groups:
            since = group.unmatched_since_ns
            if not since or group.left_ns or record.until_ns - since < after_s * 1e9:
                continue
            return Finding(
                "no sender",
                f"{words.who(rank)} waits for a message from any rank of '{group.name}' since "
                f"{words.seconds((record.until_ns - since) / 1e9)}, and none was sent",
                "see which rank should send, and with which tag",
                (rank.number,),
            )
    return None


def aborted(job: Job) -> Finding | None:
    for kind in ("internal", "aborted", "timeout", "peer failed"):
        for record, fault in _faults(job, kind):
            text, _, remedy = fault.text.partition("; remedy: ")
            lane = _lane_of(record, fault)
            return Finding(
                kind, text, remedy or "see the ranks' logs", (job.number(record.id),), lane, fault.sequence
            )
    return None
