"""Records that belong together: a job, its ranks, and what each has called and not called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from starling.diagnose import names
from starling.diagnose.record import Fault, Group, Lane, Operation, Record

CONTROL = "control"  # the lane that carries no operations


@dataclass(frozen=True)
class Rank:
    """One of the job's. Without a record: another host's, or it left nothing."""

    number: int
    id: int
    record: Record | None = None

    def operations(self, index: int, lane: Lane) -> Iterator[Operation]:
        """Of the lane in this place of the record; another may have been there before."""
        if self.record is not None:
            for op in self.record.operations:
                if op.lane == index and op.submitted_ns >= lane.opened_ns:
                    yield op


@dataclass
class JobLane:
    """One lane, as all of its ranks that have opened it see it."""

    key: tuple[int, int]
    name: str
    members: tuple[int, ...]  # ids
    entries: dict[int, tuple[int, Lane]] = field(
        default_factory=dict
    )  # by id: index in its record, and the entry

    def submitted(self, member: int) -> int:
        return self.entries[member][1].submitted if member in self.entries else 0


@dataclass(frozen=True)
class Call:
    """An operation that has not ended."""

    rank: Rank
    lane: JobLane
    operation: Operation
    until_ns: int  # the moment of which it is

    @property
    def waited_s(self) -> float:
        return (
            max(0, self.until_ns - self.operation.submitted_ns) / 1e9 if self.operation.submitted_ns else 0.0
        )

    def place(self) -> str:
        return f"lane '{self.lane.name}' at position {self.operation.sequence}"


@dataclass
class Job:
    name: str
    world: Group | None
    ranks: dict[int, Rank]  # by id

    @property
    def records(self) -> list[Record]:
        return [rank.record for rank in self.ranks.values() if rank.record is not None]

    @property
    def names(self) -> set[str]:
        """All that it may be asked for by: also its group's, as `starling top` calls it."""
        groups = {record.groups[0].name for record in self.records if record.groups}
        return names.given(self.name) | groups | ({self.world.name} if self.world else set())

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def live(self) -> bool:
        return any(record.state == "live" for record in self.records)

    @property
    def seen_ns(self) -> int:
        return max((record.seen_ns for record in self.records), default=0)

    def number(self, rank_id: int) -> int:
        return self.ranks[rank_id].number if rank_id in self.ranks else -1

    @cached_property
    def lanes(self) -> dict[tuple[int, int], JobLane]:
        lanes: dict[tuple[int, int], JobLane] = {}
        for record in self.records:
            for index, lane in record.lanes.items():
                if lane.name == CONTROL or lane.group >= len(record.groups) or self._is_over(lane):
                    continue
                members = _members(record.groups[lane.group], lane)
                known = lanes.setdefault(lane.key, JobLane(lane.key, lane.name, members))
                # A communicator may have been made anew, with the same name and ranks.
                if record.id not in known.entries or known.entries[record.id][1].opened_ns < lane.opened_ns:
                    known.entries[record.id] = (index, lane)
        return lanes

    def _is_over(self, lane: Lane) -> bool:
        """Closed, and not because of a fault."""
        return lane.closed_ns != 0 and not 0 < self.first_fault_ns <= lane.closed_ns

    @cached_property
    def first_fault(self) -> Fault | None:
        return min(
            (fault for record in self.records for fault in record.faults),
            key=lambda fault: fault.time_ns,
            default=None,
        )

    @property
    def first_fault_ns(self) -> int:
        """0: there was none."""
        return self.first_fault.time_ns if self.first_fault else 0

    @property
    def is_copied(self) -> bool:
        """Ranks copied their records when they saw a fault."""
        return any(record.state == "copy" for record in self.records)

    @property
    def broken_ns(self) -> int:
        """When the first fault came; in copies the first one that ended what they show under way, as others before
        may have been overcome. 0: there was none."""
        under_way = min(
            (
                op.submitted_ns
                for record in self.records
                if record.state == "copy"
                for op in record.operations
                if not op.completed_ns
            ),
            default=0,
        )
        times = [fault.time_ns for record in self.records for fault in record.faults]
        return min((time for time in times if time >= under_way), default=self.first_fault_ns)


@dataclass(frozen=True)
class Moment:
    """What was called and what was not, when the records were taken or at an earlier time that they remember."""

    job: Job
    at_ns: int = 0  # 0: when they were taken

    @cached_property
    def calls(self) -> list[Call]:
        """All that wait, the oldest first."""
        found = [
            call
            for lane in self.job.lanes.values()
            for member in lane.entries
            for call in self._calls_of(self.job.ranks[member], lane)
        ]
        return sorted(found, key=lambda call: (call.operation.submitted_ns, call.rank.number))

    def missing(self, call: Call) -> list[Rank]:
        """Ranks of the call's lane that have not called it."""
        return [
            self.job.ranks[member]
            for member in call.lane.members
            if member in self.job.ranks and not self._has_called(member, call)
        ]

    def _calls_of(self, rank: Rank, lane: JobLane) -> Iterator[Call]:
        record = rank.record
        assert record is not None
        index, entry = lane.entries[rank.id]
        known = [op for op in rank.operations(index, entry) if op.sequence < entry.submitted]
        for op in known:
            if self.at_ns == 0 and op.completed_ns == 0:
                yield Call(rank, lane, op, record.until_ns)
            elif self.at_ns and op.submitted_ns <= self.at_ns and not 0 < op.completed_ns < self.at_ns:
                yield Call(rank, lane, op, self.at_ns)
        lost = entry.submitted > entry.completed and not any(op.completed_ns == 0 for op in known)
        if lost and self.at_ns == 0:
            # So many operations have come since that the record has it no more.
            yield Call(rank, lane, Operation(0, index, entry.completed, "?"), record.until_ns)

    def _has_called(self, member: int, call: Call) -> bool:
        if call.lane.submitted(member) <= call.operation.sequence:
            return False
        index, entry = call.lane.entries[member]
        return self.at_ns == 0 or not any(
            op.sequence == call.operation.sequence and op.submitted_ns > self.at_ns
            for op in self.job.ranks[member].operations(index, entry)
        )


def _members(group: Group, lane: Lane) -> tuple[int, ...]:
    if lane.source < 0 or not group.members:
        return group.members
    return tuple({rank: group.members[rank] for rank in (lane.source, lane.destination)}.values())


def jobs_of(records: Iterable[Record]) -> list[Job]:
    """Records that share a group, or join one, are a job."""
    of_id = {record.id: record for record in records}
    parents: dict[object, object] = {}

    def root(key: object) -> object:
        while parents.setdefault(key, key) != key:
            key = parents[key]
        return key

    for record in of_id.values():
        root(record.id)
        for group in record.groups:
            for member in group.members:
                parents[root(member)] = root(record.id)
        if record.joining is not None:
            parents[root((record.host, record.job, record.joining.name))] = root(record.id)
    parts: dict[object, list[Record]] = defaultdict(list)
    for record in of_id.values():
        parts[root(record.id)].append(record)
    return [_job(part) for part in parts.values()]


def _job(records: list[Record]) -> Job:
    groups = [group for record in records for group in record.groups if group.members]
    world = max(groups, key=lambda group: (group.size, not group.subgroup, -group.joined_ns), default=None)
    of_id = {record.id: record for record in records}
    ids = list(world.members) if world is not None else []
    numbers = {member: number for number, member in enumerate(ids)}
    for record in sorted(records, key=lambda record: record.created_ns):
        if record.id not in numbers:
            free = next(n for n in range(len(records) + len(ids)) if n not in numbers.values())
            joins = record.joining.rank if record.joining is not None else free
            numbers[record.id] = joins if joins not in numbers.values() else free
    ranks = {member: Rank(number, member, of_id.get(member)) for member, number in numbers.items()}
    name = next((record.job for record in records if record.job), "")
    ranks = dict(sorted(ranks.items(), key=lambda item: item[1].number))
    return Job(name.strip() or (world.name if world is not None else "unnamed"), world, ranks)
