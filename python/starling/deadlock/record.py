"""Recorded orders of launches: JSON lines, one event each, in the order of each rank.

    {"rank": 0, "event": "launch", "lane": "grads", "group": [0, 1]}
    {"rank": 0, "event": "sync"}

A lane is an ordered stream over a fixed group: its n-th launch on one rank meets the n-th on every other. `group` is
needed once per lane. Other keys (times, sizes) are ignored. Only the order inside each rank matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import engine


class RecordError(ValueError):
    """A record that cannot be read; the text names the line and the key."""


@dataclass
class Record:
    """Launches of a job. Where a rank never launched what its peers did, the record is cut there (the job hung, or the
    recorder stopped): the missing launches are taken to come after all that it recorded."""

    program: engine.Program
    ranks: list[int]  # of each GPU of the program
    lanes: list[str]  # "lane#n" of each collective
    missing: dict[int, int]  # rank -> launches that were added at its end


def read_record(path: Path) -> Record:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: it is no text ({error})") from error
    return parse_record(lines, str(path))


def parse_record(lines: Iterable[str], name: str = "record") -> Record:
    groups: dict[str, tuple[list[int], int]] = {}  # lane -> members and the line that said so
    launches: dict[int, list[str | None]] = {}  # rank -> lanes in order; None is a synchronization
    first_line: dict[tuple[int, str], int] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{name}, line {number}"
        rank, lane, group = _parse_line(text, where)
        events = launches.setdefault(rank, [])
        events.append(lane)
        if lane is None:
            continue
        first_line.setdefault((rank, lane), number)
        if group is not None:
            known, line = groups.setdefault(lane, (group, number))
            if known != group:
                raise RecordError(f"{where}: group of lane {lane!r} is {group}, but {known} in line {line}")
    if not launches:
        raise RecordError(f"{name}, line 1: the record has no events")
    for (rank, lane), number in first_line.items():
        if lane not in groups:
            raise RecordError(
                f"{name}, line {number}: group of lane {lane!r} is missing, here and everywhere else"
            )
        if rank not in groups[lane][0]:
            raise RecordError(f"{name}, line {number}: rank {rank} is not in the group of lane {lane!r}")
    return _build({lane: members for lane, (members, _) in groups.items()}, launches)


def _parse_line(text: str, where: str) -> tuple[int, str | None, list[int] | None]:
    try:
        event: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"{where}: {error.msg} (column {error.colno})") from error
    if not isinstance(event, dict):
        raise RecordError(f"{where}: an event is an object with rank, event, lane and group")
    rank = event.get("rank")
    if not isinstance(rank, int) or not _is_rank(rank):
        raise RecordError(f"{where}: rank is {json.dumps(rank)}; it must be a whole number from 0 on")
    kind = event.get("event")
    if kind == "sync":
        return rank, None, None
    if kind != "launch":
        raise RecordError(f'{where}: event is {json.dumps(kind)}; it must be "launch" or "sync"')
    lane = event.get("lane")
    if not isinstance(lane, str) or not lane:
        raise RecordError(f"{where}: lane is {json.dumps(lane)}; a launch needs the name of its lane")
    group = event.get("group")
    if group is None:
        return rank, lane, None
    if (
        not isinstance(group, list)
        or not group
        or not all(map(_is_rank, group))
        or len(set(group)) != len(group)
    ):
        raise RecordError(f"{where}: group is {json.dumps(group)}; it must list each rank of the lane once")
    return rank, lane, sorted(group)


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _build(groups: dict[str, list[int]], launches: dict[int, list[str | None]]) -> Record:
    ranks = sorted(set(launches) | {rank for members in groups.values() for rank in members})
    longest = {lane: max(events.count(lane) for events in launches.values()) for lane in groups}
    first: dict[str, int] = {}
    lanes: list[str] = []
    members: list[list[int]] = []
    group_numbers: dict[tuple[int, ...], int] = {}
    group: list[int] = []
    for lane, of_lane in groups.items():
        first[lane] = len(lanes)
        lanes += [f"{lane}#{n}" for n in range(longest[lane])]
        members += [[ranks.index(rank) for rank in of_lane]] * longest[lane]
        group += [group_numbers.setdefault(tuple(of_lane), len(group_numbers))] * longest[lane]
    events: list[list[int]] = []
    missing: dict[int, int] = {}
    for rank in ranks:
        mine: list[int] = []
        done = dict.fromkeys(groups, 0)
        for each in launches.get(rank, []):
            if each is None:
                mine.append(engine.SYNCHRONIZE)
            else:
                mine.append(first[each] + done[each])
                done[each] += 1
        left = [
            first[lane] + n
            for lane in groups
            if rank in groups[lane]
            for n in range(done[lane], longest[lane])
        ]
        if left:
            missing[rank] = len(left)
        events.append(mine + left)
    return Record(engine.Program(events, members, group), ranks, lanes, missing)


def record_lines(
    program: engine.Program, ranks: Sequence[int] | None = None, lanes: Sequence[str] | None = None
) -> Iterator[str]:
    """A program as a record, turn by turn. Every collective is a lane of its own, so any order can be said."""
    ranks = ranks if ranks is not None else range(len(program.events))
    lanes = lanes if lanes is not None else [f"group{g}.collective{c}" for c, g in enumerate(program.group)]
    all_events, all_members = program.events, program.members
    for turn in range(max(map(len, all_events), default=0)):
        for gpu, events in enumerate(all_events):
            if turn >= len(events):
                continue
            event = events[turn]
            if event == engine.SYNCHRONIZE:
                yield json.dumps({"rank": ranks[gpu], "event": "sync"})
            else:
                members = [ranks[member] for member in all_members[event]]
                yield json.dumps(
                    {"rank": ranks[gpu], "event": "launch", "lane": lanes[event], "group": sorted(members)}
                )
