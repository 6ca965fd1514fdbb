"""A rank's flight record (``src/wire/flight.h``), read from its bytes.

All times become nanoseconds of the realtime clock, so that records of several hosts can be compared.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from starling.numbers import REDUCTIONS

MAGIC = 0x3254484749464C53
NO_GROUP = 0xFFFFFFFF
GROUPS, MEMBERS, OPERATIONS, LANES, FAULTS, PATHS, SAMPLES = 64, 4096, 256, 512, 4, 128, 32

_HEADER = struct.Struct("<9Q8IQ4I64s64s64s128s32s32x")
_FAULT = struct.Struct("<3QI4x480s")
_GROUP = struct.Struct("<5Q4I64s8x")
_OPERATION = struct.Struct("<9QiI4BIQ")
_LANE = struct.Struct("<7Q3I2i4x104sQ")
HEADER_BYTES = _HEADER.size + FAULTS * _FAULT.size
_PATH = struct.Struct("<7Q3I108s16x")
_SAMPLE = struct.Struct("<7QI4x")
_PATH_BYTES = _PATH.size + SAMPLES * _SAMPLE.size
_AT_OPERATIONS = HEADER_BYTES + GROUPS * _GROUP.size + MEMBERS * 8
_AT_LANES = _AT_OPERATIONS + OPERATIONS * _OPERATION.size
_AT_PATHS = _AT_LANES + LANES * _LANE.size
BYTES = _AT_PATHS + PATHS * _PATH_BYTES

KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send/recv",
    "barrier",
    "custom",
)
TYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "bool",
)
LINKS = {1: "tcp", 2: "verbs"}
FAULT_KINDS = ("none", "mismatch", "timeout", "peer failed", "aborted", "internal")
REDUCTION_NAMES = tuple(REDUCTIONS)
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")

# LIVE: read from /dev/shm while its rank holds its lock. DEAD: nobody holds it. ENDED: its rank left in order, after a
# fault. COPY: a file, written when somebody saw a fault.
State = Literal["live", "dead", "ended", "copy"]


class NotARecordError(ValueError):
    """The bytes are no flight record of this version."""


@dataclass(frozen=True)
class Operation:
    number: int
    lane: int
    sequence: int
    kind: str
    count: int = 0
    data_type: str = "uint8"
    reduction: str = "sum"
    root: int = 0
    bytes: int = 0
    varying: bool = False
    in_place: bool = False
    plan_hash: int = 0
    counts_hash: int = 0
    submitted_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    status: int = 0

    @property
    def failed(self) -> bool:
        return self.completed_ns != 0 and self.status != 0

    def arguments(self) -> tuple[object, ...]:
        """What all ranks must pass alike."""
        return (
            self.kind,
            self.data_type,
            self.reduction,
            self.root,
            self.count,
            self.varying,
            self.plan_hash,
            self.counts_hash,
        )

    def __str__(self) -> str:
        if self.kind in ("barrier", "?"):
            return "barrier" if self.kind == "barrier" else "an operation"
        how_many = "varying counts of" if self.varying or self.counts_hash else str(self.count)
        text = f"{self.kind} of {how_many} {self.data_type}"
        if self.kind in _REDUCING:
            text += f", {self.reduction}"
        if self.kind in _ROOTED:
            text += f", root {self.root}"
        return text + (", in place" if self.in_place else "")


@dataclass(frozen=True)
class Group:
    key: tuple[int, int]
    name: str
    rank: int
    size: int
    members: tuple[int, ...]  # ids; empty: the record had no room
    subgroup: bool = False
    joined_ns: int = 0
    left_ns: int = 0
    unmatched_since_ns: int = 0


@dataclass(frozen=True)
class Lane:
    key: tuple[int, int]
    name: str
    group: int
    size: int
    rank: int
    submitted: int
    completed: int
    source: int = -1  # ranks of the group, of a lane of messages
    destination: int = -1
    opened_ns: int = 0
    closed_ns: int = 0


@dataclass(frozen=True)
class Fault:
    kind: str
    lane: int
    sequence: int
    time_ns: int
    text: str


@dataclass(frozen=True)
class PathSample:
    """What a path carried from one look of its rank to the next; for what it means, ``src/wire/flight.h``."""

    begin_ns: int
    end_ns: int
    bytes: int
    busy_ns: int
    lost_ns: int
    usual_bytes_per_second: int
    window_bytes_per_second: int
    transfers: int


@dataclass(frozen=True)
class PathHistory:
    """What a rank sent to one other by one path."""

    peer: int
    path: int
    link: str
    name: str
    seen_ns: int = 0  # when its rank looked last: of then are the next two
    left_bytes: int = 0
    waiting_since_ns: int = 0  # of the oldest under way; 0: none was
    transfers: int = 0
    bytes: int = 0
    closed: int = 0
    samples: tuple[PathSample, ...] = ()  # oldest first; none of a time in which nothing completed


@dataclass(frozen=True)
class Joining:
    name: str
    rank: int
    size: int
    awaited: int
    since_ns: int


@dataclass(frozen=True)
class Record:
    id: int
    host: int
    host_name: str
    pid: int
    arena: str
    job: str = ""
    device: str = "cpu"
    blocks: int = 1
    linked: bool = False
    created_ns: int = 0
    alive_ns: int = 0  # when its poller last looked
    seen_ns: int = 0  # when this was read, or copied
    state: State = "live"
    copied_by: int = 0
    groups: tuple[Group, ...] = ()
    lanes: dict[int, Lane] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()  # oldest first
    submissions: int = 0
    faults: tuple[Fault, ...] = ()
    joining: Joining | None = None
    paths: tuple[PathHistory, ...] = ()

    @property
    def until_ns(self) -> int:
        """Until when its rank waited for what it says: one that is gone waits for nobody."""
        return self.alive_ns if self.state in ("dead", "ended") else self.seen_ns


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")


def name_of(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else "?"


def job_in(header: bytes) -> str:
    """The job's name alone, of a record's first HEADER_BYTES."""
    if len(header) < HEADER_BYTES or int.from_bytes(header[:8], "little") != MAGIC:
        raise NotARecordError("it does not begin as a flight record of this version does")
    return _text(_HEADER.unpack_from(header)[25])


def parse(data: bytes, state: State, again: bytes | None = None, seen_ns: int | None = None) -> Record:
    """A record from its bytes; ``again``: read a little later from a rank that runs, to find what was being written."""
    if len(data) < BYTES:
        raise NotARecordError(f"{len(data)} bytes are too few for a flight record")
    head = _HEADER.unpack_from(data)
    if head[0] != MAGIC:
        raise NotARecordError("it does not begin as a flight record of this version does")
    again = data if again is None or len(again) < BYTES else again
    offset = head[4]

    def clock(ns: int) -> int:
        return ns + offset if ns else 0

    (_, _, id_, host, _, created, alive, submissions, copied) = head[:9]
    (pid, ended, blocks, linked, group_count, lane_count, fault_count, copied_by) = head[9:17]
    joining_since, joining_rank, joining_size, joining_own, path_count = head[17:22]
    joining_name, arena, host_name, job, device = (_text(raw) for raw in head[22:27])
    if copied:
        state = "copy"
    elif ended:
        state = "ended"
    joining = None
    if joining_since:
        joining = Joining(joining_name, joining_own, joining_size, joining_rank, clock(joining_since))
    return Record(
        id=id_,
        host=host,
        host_name=host_name,
        pid=pid,
        arena=arena,
        job=job,
        device=device,
        blocks=blocks,
        linked=linked != 0,
        created_ns=clock(created),
        alive_ns=clock(alive),
        seen_ns=clock(copied) or seen_ns or clock(alive),
        state=state,
        copied_by=copied_by,
        groups=tuple(_group(data, k, clock) for k in range(min(group_count, GROUPS))),
        lanes=_lanes(data, again, min(lane_count, LANES), clock),
        operations=_operations(data, again, clock),
        submissions=submissions,
        faults=tuple(_fault(data, k, clock) for k in range(min(fault_count, FAULTS))),
        joining=joining,
        paths=tuple(_path(data, again, k, clock) for k in range(min(path_count, PATHS))),
    )


def _group(data: bytes, k: int, clock: Callable[[int], int]) -> Group:
    low, high, joined, left, unmatched, size, rank, first, subgroup, name = _GROUP.unpack_from(
        data, HEADER_BYTES + k * _GROUP.size
    )
    members: tuple[int, ...] = ()
    if first != NO_GROUP and first + size <= MEMBERS:
        members = struct.unpack_from(f"<{size}Q", data, HEADER_BYTES + GROUPS * _GROUP.size + 8 * first)
    return Group(
        (low, high),
        _text(name),
        rank,
        size,
        members,
        subgroup != 0,
        clock(joined),
        clock(left),
        clock(unmatched),
    )


def _fault(data: bytes, k: int, clock: Callable[[int], int]) -> Fault:
    kind, sequence, time, lane, text = _FAULT.unpack_from(data, _HEADER.size + k * _FAULT.size)
    return Fault(name_of(FAULT_KINDS, kind), lane, sequence, clock(time), _text(text))


def _operations(data: bytes, again: bytes, clock: Callable[[int], int]) -> tuple[Operation, ...]:
    found = []
    for k in range(OPERATIONS):
        at = _AT_OPERATIONS + k * _OPERATION.size
        words = _OPERATION.unpack_from(data, at)
        number, sequence, count, bytes_, plan, counts, submitted, started, completed = words[:9]
        root, lane, kind, data_type, reduction, flags, status, number_again = words[9:]
        if number == 0 or number != number_again or _OPERATION.unpack_from(again, at)[0] != number:
            continue
        found.append(
            Operation(
                number=number,
                lane=lane,
                sequence=sequence,
                kind=name_of(KINDS, kind),
                count=count,
                data_type=name_of(TYPES, data_type),
                reduction=name_of(REDUCTION_NAMES, reduction),
                root=root,
                bytes=bytes_,
                varying=flags & 1 != 0,
                in_place=flags & 2 != 0,
                plan_hash=plan,
                counts_hash=counts,
                submitted_ns=clock(submitted),
                started_ns=clock(started),
                completed_ns=clock(completed),
                status=status,
            )
        )
    return tuple(sorted(found, key=lambda operation: operation.number))


def _lanes(data: bytes, again: bytes, count: int, clock: Callable[[int], int]) -> dict[int, Lane]:
    lanes = {}
    for k in range(count):
        at = _AT_LANES + k * _LANE.size
        words = _LANE.unpack_from(data, at)
        number, low, high, submitted, completed, opened, closed, group, size, rank, source, to = words[:12]
        name, number_again = words[12:]
        if number == 0 or number != number_again or _LANE.unpack_from(again, at)[0] != number:
            continue
        lanes[k] = Lane(
            key=(low, high),
            name=_text(name),
            group=group,
            size=size,
            rank=rank,
            submitted=submitted,
            completed=completed,
            source=source,
            destination=to,
            opened_ns=clock(opened),
            closed_ns=clock(closed),
        )
    return lanes


def _path(data: bytes, again: bytes, k: int, clock: Callable[[int], int]) -> PathHistory:
    """From the older one of the two: a sample that is still in its place in the newer one is whole there."""
    at = _AT_PATHS + k * _PATH_BYTES
    data, again = sorted((data, again), key=lambda raw: int.from_bytes(raw[at : at + 8], "little"))
    written, seen, left, waiting, transfers, bytes_, closed, peer, path, link, name = _PATH.unpack_from(
        data, at
    )
    (later,) = struct.unpack_from("<Q", again, at)
    # One place may be under the writer's pen.
    oldest = max(0, later - SAMPLES + 1)
    found = (
        _SAMPLE.unpack_from(data, at + _PATH.size + (n % SAMPLES) * _SAMPLE.size)
        for n in range(oldest, written)
    )
    return PathHistory(
        peer=peer,
        path=path,
        link=LINKS.get(link, "?"),
        name=_text(name),
        seen_ns=clock(seen),
        left_bytes=left,
        waiting_since_ns=clock(waiting),
        transfers=transfers,
        bytes=bytes_,
        closed=closed,
        samples=tuple(PathSample(clock(begin), clock(end), *rest) for begin, end, *rest in found),
    )
