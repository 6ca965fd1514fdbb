"""The device side of this process: synchronization, counters and the trace of its daemons."""

from dataclasses import dataclass
from typing import Any

from starling.torch import _adapter


def synchronize() -> None:
    """Device synchronization: returns when nothing that was resident at the call is resident any more.

    As ``torch.cuda.synchronize()``: it does not wait for parked operations, the daemon quits under it.
    """
    if _adapter.loaded():
        _adapter.load().synchronize()


def statistics() -> dict[str, int]:
    """Counters of this process since its first group: parks, resumes, quits, launches, ... (summed over ranks)."""
    total: dict[str, int] = {}
    for one in _adapter.load().statistics() if _adapter.loaded() else []:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


EVENTS = ("launch", "quit", "fetch", "run", "park", "complete", "publish", "fault")


@dataclass(frozen=True)
class TraceRecord:
    """One event of a block of the daemon; ``time_ns`` is the monotonic clock of the host."""

    time_ns: int
    event: str
    lane: str
    sequence: int
    block: int
    detail: int


def trace(most: int = 1 << 16) -> list[TraceRecord]:
    """The newest records of all blocks, oldest first."""
    records: list[Any]
    records, names = _adapter.load().trace(most) if _adapter.loaded() else ([], {})
    return [
        TraceRecord(time_ns, EVENTS[event], names.get(lane, str(lane)), sequence, block, detail)
        for time_ns, sequence, detail, lane, block, event in records
    ]
