"""What ranks of other hosts wait for, as they have told this one: each has a segment here that the proxy of a rank
writes, its shadow (src/link/carry/shadow.h; the layout: src/wire/arena.h).

Only what holds for a while counts: ranks wait for each other all the time.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Literal

from starling.diagnose import sources, words
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job, Moment, Rank
from starling.diagnose.record import KINDS, REDUCTION_NAMES, TYPES, Operation, Record, name_of
from starling.diagnose.waits import active_since

MAGIC = 0x33414E4552415453
LONGEST_S = 5.0  # of listening
BETWEEN_LOOKS_S = 0.1

_HEADER = struct.Struct("<3Q2I11Q456s")  # the doorbells are left out
_ENTRY = struct.Struct("<4Q")
_LANE = struct.Struct("<1024x8I160x8xQ")  # to `submitted`
_BOARD_AT = 1280
_SIGNATURE = struct.Struct("<Q4BiQ40x")
_MOST_IN_BOARD = 4096
_WAIT = re.compile(r"in lane '(.*?)' at position (\d+)(?=, |$)")

Key = tuple[int, int]
Wait = tuple[str, int]  # lane and position
State = Literal["there", "left", "lost"]  # lost: no path to it lives
_STATES: tuple[State, ...] = ("there", "left", "lost")  # as the header has it


@dataclass(frozen=True)
class LaneThere:
    rank: int
    submitted: int
    board: dict[int, Operation] = field(default_factory=dict)  # by position


@dataclass(frozen=True)
class Heard:
    """Of one rank of another host, by one process here."""

    segment: str
    id: int | None  # as in the members of groups; None: it shares no lane with a rank here yet
    state: State = "there"
    waits: tuple[Wait, ...] = ()
    lanes: dict[Key, LaneThere] = field(default_factory=dict)

    @property
    def process(self) -> str:
        """That hears it, as the segments of its ranks begin."""
        return self.segment.rpartition(".")[0]


def listen(records: Iterable[Record], seconds: float) -> list[Heard]:
    """What they say now, and of their waits those that last so long."""
    linked = [record for record in records if record.state == "live" and record.linked]
    until = time.monotonic() + min(seconds, LONGEST_S)
    heard = _hear(linked)
    while any(one.waits for one in heard) and time.monotonic() < until:
        time.sleep(BETWEEN_LOOKS_S)
        now = {one.segment: one for one in _hear(linked)}
        heard = [
            replace(now[one.segment], waits=tuple(w for w in one.waits if w in now[one.segment].waits))
            for one in heard
            if one.segment in now
        ]
    return heard


def not_called(job: Job, heard: Iterable[Heard], hosts: Hosts, after_s: float) -> Finding | None:
    """A rank here that others wait for and that does nothing."""
    moment, waits = Moment(job), _waits(job, heard)
    for one, (name, position) in waits:
        for rank, operation in _late(job, one, (name, position)):
            if rank.record is None or active_since(moment, rank) < after_s:
                continue
            waiters = {job.number(other.id or 0) for other, wait in waits if wait == (name, position)}
            what = (
                f"{words.who(rank)} has not called {operation} in lane '{name}' at position {position}, for which "
                f"{words.ranks(waiters)} on {'other hosts wait' if len(waiters) > 1 else 'another host waits'}; "
                f"{words.last_of(job, rank)}"
            )
            remedy = f"see what that rank does (py-spy dump --pid {rank.record.pid}, its log)"
            details = tuple(hosts.words_for(rank.record))
            return Finding("not called", what, remedy, (rank.number,), name, position, details)
    return None


def not_known(job: Job, heard: Iterable[Heard]) -> str:
    """Why ranks without a record here may be held up, or hold the job up; "" if they have told that they are not."""
    missing = {rank.id for rank in job.ranks.values() if rank.record is None}
    if not missing or (job.live and not any(record.linked for record in job.records)):
        return ""  # of one host: they left in order
    others = "run `starling diagnose` on the other hosts of the job, or pass all flight records"
    for one, (name, position) in _waits(job, heard):
        if not _late(job, one, (name, position)):
            return (
                f"rank {job.number(one.id or 0)} on another host waits in lane '{name}' at position {position}, and "
                f"not for a rank of this one; remedy: {others} (STARLING_FLIGHT_DIR)"
            )
    processes = {_process_of(record) for record in job.records}
    mine = [one for one in heard if one.process in processes]
    told = {one.id for one in mine if one.state != "lost"}
    # From when they meet, ranks hear of all of other hosts: one of whom they do not was of this host, and left.
    met = job.live and mine and None not in told
    unknown = missing & {one.id for one in mine} - told if met else missing - told
    if not unknown:
        return ""
    numbers = words.ranks(job.number(id_) for id_ in unknown)
    return f"nobody here is waited for, but no record of {numbers} is here; remedy: {others} (STARLING_FLIGHT_DIR)"


def _waits(job: Job, heard: Iterable[Heard]) -> list[tuple[Heard, Wait]]:
    """Of ranks of other hosts. What those of this one wait for, their records say."""
    return [
        (one, wait)
        for one in heard
        if one.id in job.ranks and job.ranks[one.id].record is None and one.state == "there"
        for wait in one.waits
    ]


def _late(job: Job, one: Heard, wait: Wait) -> list[tuple[Rank, Operation]]:
    """Ranks here that have not called what the other waits for."""
    name, position = wait
    found = []
    for rank in job.ranks.values():
        record = rank.record
        if record is None or record.state != "live":
            continue
        known = {lane.key: lane for lane in record.lanes.values() if not lane.closed_ns}
        # A lane that the rank has not opened yet has no name here: it may be this one, if no other is.
        unnamed = not any(lane.name == name and key in one.lanes for key, lane in known.items())
        for key, there in one.lanes.items():
            if position >= there.submitted:
                continue
            if key in known:
                late = known[key].name == name and known[key].submitted <= position
            else:
                late = unnamed and _process_of(record) == one.process
            if late:
                found.append((rank, there.board.get(position, Operation(0, 0, position, "?"))))
    return found


def _process_of(record: Record) -> str:
    return record.arena.rpartition(".")[0]


def _hear(linked: list[Record]) -> list[Heard]:
    found = []
    # Closing a segment of our own process would let go of its lock.
    processes = {_process_of(record) for record in linked if record.pid != os.getpid()}
    for process in sorted(processes - {""}):
        own = [record for record in linked if _process_of(record) == process]
        for path in sorted(sources.SHARED.glob(process + ".*")):
            with contextlib.suppress(OSError, struct.error), path.open("rb") as file:
                heard = _read(file, path, own)
                if heard is not None:
                    found.append(heard)
    return found


def _read(file: BinaryIO, path: Path, own: list[Record]) -> Heard | None:
    """None: it is no shadow."""
    fd = file.fileno()
    head = _HEADER.unpack(os.pread(fd, _HEADER.size, 0))
    magic, closed, directory, capacity, watched, version, text = (head[k] for k in (0, 4, 5, 6, 14, 15, 16))
    if magic != MAGIC or watched:
        return None
    lanes = {(low, high): _lane(fd, offset) for low, high, offset in _directory(fd, directory, capacity)}
    again = _HEADER.unpack(os.pread(fd, _HEADER.size, 0))
    # Odd, or another: it is being written.
    whole = version % 2 == 0 and again[15] == version
    said = text.partition(b"\0")[0].decode(errors="replace") if whole else ""
    waits = tuple((name, int(position)) for name, position in _WAIT.findall(said))
    return Heard(path.name, _id_of(lanes, own), _STATES[min(closed, 2)], waits, lanes)


def _directory(fd: int, begin: int, capacity: int) -> Iterator[tuple[int, int, int]]:
    """Keys and places of lanes. It is mostly holes."""
    end = begin + capacity * _ENTRY.size
    at = begin
    while at < end:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole is left
        stop = min(end, os.lseek(fd, data, os.SEEK_HOLE))
        if data < stop:
            raw = os.pread(fd, (stop - data) // _ENTRY.size * _ENTRY.size, data)
            for low, high, offset, _ in _ENTRY.iter_unpack(raw[: len(raw) // _ENTRY.size * _ENTRY.size]):
                if offset > 1:  # 1: a lane was there
                    yield low, high, offset
        at = max(stop, at + _ENTRY.size)


def _lane(fd: int, offset: int) -> LaneThere:
    words_ = _LANE.unpack(os.pread(fd, _LANE.size, offset))
    rank, board_size, submitted = words_[1], words_[6], words_[8]
    raw = os.pread(fd, min(board_size, _MOST_IN_BOARD) * _SIGNATURE.size, offset + _BOARD_AT)
    board = {}
    for entry in _SIGNATURE.iter_unpack(raw[: len(raw) // _SIGNATURE.size * _SIGNATURE.size]):
        position, kind, data_type, reduction, varying, root, count = entry
        if position:
            board[position - 1] = Operation(
                number=0,
                lane=0,
                sequence=position - 1,
                kind=name_of(KINDS, kind),
                count=count,
                data_type=name_of(TYPES, data_type),
                reduction=name_of(REDUCTION_NAMES, reduction),
                root=root,
                varying=varying != 0,
            )
    return LaneThere(rank, submitted, board)


def _id_of(lanes: dict[Key, LaneThere], own: list[Record]) -> int | None:
    for record in own:
        for lane in record.lanes.values():
            there = lanes.get(lane.key)
            if there is None or lane.group >= len(record.groups):
                continue
            members = record.groups[lane.group].members
            if lane.source >= 0:
                members = tuple(members[k] for k in (lane.source, lane.destination) if k < len(members))
            if there.rank < len(members):
                return members[there.rank]
    return None
