"""How ranks and times are said."""

from __future__ import annotations

from collections.abc import Iterable

from starling.diagnose.job import Job, Rank


def seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def ranks(numbers: Iterable[int]) -> str:
    """rank 1; ranks 0, 2 and 3; ranks 0 to 5."""
    all_of = sorted(set(numbers))
    if len(all_of) == 1:
        return f"rank {all_of[0]}"
    if len(all_of) > 3 and all_of == list(range(all_of[0], all_of[-1] + 1)):
        return f"ranks {all_of[0]} to {all_of[-1]}"
    return "ranks " + ", ".join(str(n) for n in all_of[:-1]) + f" and {all_of[-1]}"


def who(rank: Rank) -> str:
    """With the process, so that it can be looked at."""
    record = rank.record
    return f"rank {rank.number}" + (f" (process {record.pid} on {record.host_name})" if record else "")


def last_of(job: Job, rank: Rank) -> str:
    """What it called last."""
    record = rank.record
    if record is None:
        return "no record of it is here"
    if not record.operations:
        return "it has called nothing yet"
    last = record.operations[-1]
    lane = record.lanes.get(last.lane)
    text = f"its last call was {last}" + (
        f" in lane '{lane.name}' at position {last.sequence}" if lane else ""
    )
    if last.completed_ns == 0:
        return text + f", {seconds((record.seen_ns - last.submitted_ns) / 1e9)} ago and not finished"
    # What failed ended when its lane broke: that says nothing of what the rank does.
    if last.failed:
        return text + ", which failed"
    return text + f", finished {seconds(max(0, job.seen_ns - last.completed_ns) / 1e9)} ago"
