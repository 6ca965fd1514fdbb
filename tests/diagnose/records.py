"""Flight records made by hand, and the job that they are of."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starling.diagnose.host import Hosts
from starling.diagnose.job import Job, jobs_of
from starling.diagnose.record import Group, Lane, Operation, Record

S = 1_000_000_000
NOW = 1_000 * S
NOWHERE = Hosts(Path("/nowhere"))
Call = tuple[
    str, int, float, float | None
]  # lane, sequence, begin and end in seconds before now; None: not yet


def records_of(
    calls: Sequence[Sequence[Call]],
    groups: Sequence[Sequence[int]] = (),
    lanes: dict[str, Any] | None = None,
    kinds: dict[str, str] | None = None,
    **changes: Any,
) -> list[Record]:
    """One for each rank. groups: beside that of all; lanes: the group of a lane, or its two ranks; else of all.

    kinds: of a lane's calls; else all_reduce.
    """
    size = len(calls)
    all_groups = [list(range(size)), *map(list, groups)]
    made = []
    for rank, of_rank in enumerate(calls):
        own = [g for g, members in enumerate(all_groups) if rank in members]
        names = list(dict.fromkeys(name for name, *_ in of_rank))
        entries = {}
        for index, name in enumerate(names):
            where = (lanes or {}).get(name, 0)
            pair = where if isinstance(where, tuple) else (-1, -1)
            group = 0 if isinstance(where, tuple) else where
            submitted = 1 + max(sequence for lane, sequence, *_ in of_rank if lane == name)
            completed = sum(1 for lane, _, _, end in of_rank if lane == name and end is not None)
            entries[index] = Lane(
                (zlib.crc32(name.encode()), group), name, own.index(group), 2, 0, submitted, completed, *pair
            )
        made.append(
            Record(
                id=100 + rank,
                host=1,
                host_name="here",
                pid=1000 + rank,
                arena=f"starling.{rank}",
                created_ns=NOW - 900 * S,
                alive_ns=NOW,
                seen_ns=NOW,
                groups=tuple(
                    Group(
                        (7, g),
                        f"group {g}",
                        all_groups[g].index(rank),
                        len(all_groups[g]),
                        tuple(100 + member for member in all_groups[g]),
                    )
                    for g in own
                ),
                lanes=entries,
                operations=tuple(
                    Operation(
                        number=number + 1,
                        lane=names.index(lane),
                        sequence=sequence,
                        kind=(kinds or {}).get(lane, "all_reduce"),
                        count=4,
                        submitted_ns=NOW - int(begin * S),
                        completed_ns=0 if end is None else NOW - int(end * S),
                    )
                    for number, (lane, sequence, begin, end) in enumerate(of_rank)
                ),
                submissions=len(of_rank),
                **changes,
            )
        )
    return made


def job_of(records: list[Record]) -> Job:
    (job,) = jobs_of(records)
    return job
