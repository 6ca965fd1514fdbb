"""What the watcher in C++ sees (src/monitor/watcher.h), as types. Times are the host's monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starling._core import monitor as _monitor


@dataclass(frozen=True)
class Anomaly:
    """A time in which a path was slower than it uses to be: ``network``, or ``starved`` of transfers by its user."""

    cause: str
    begin_ns: int
    end_ns: int
    lost_ns: int
    left_bytes: int
    usual_bytes_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Operation:
    kind: str
    data_type: str
    count: int
    root: int
    deadline_ns: int


@dataclass(frozen=True)
class Lane:
    """`oldest`: of the operations that have not ended, the first; None: there is none, or it waits on the host."""

    name: str
    region: int
    rank: int
    size: int
    submitted: int
    completed: int
    fault: str
    oldest: Operation | None

    @property
    def under_way(self) -> int:
        return max(self.submitted - self.completed, 0)


@dataclass(frozen=True)
class Path:
    """What a rank sends to one other by one port. link: what carries it now, "tcp" or "verbs".

    straight_bytes, copied_bytes: payloads over RDMA that nobody copied on their way, and those that somebody did.
    """

    ring: int
    peer: int
    path: int
    link: str
    name: str
    transfers: int
    bytes: int
    left_bytes: int
    waiting_ns: int
    straight_bytes: int
    copied_bytes: int
    closed: int
    missed: int
    window_transfers: int
    window_bytes: int
    window_end_ns: int
    bytes_per_second: float
    busy_bytes_per_second: float
    slow_count: int
    slow_ns: int
    starved_count: int
    starved_ns: int
    anomaly: Anomaly | None


@dataclass(frozen=True)
class Rank:
    """`job` is None before it has joined a group; `counters` where its blocks' memory cannot be seen (GPUs)."""

    segment: str
    state: str
    pid: int
    device: str
    job: str | None
    job_key: tuple[int, int]
    rank: int
    size: int
    waiting: str
    window: int
    counters: dict[str, int] | None
    lanes: list[Lane] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    @property
    def submitted(self) -> int:
        return sum(lane.submitted for lane in self.lanes)

    @property
    def completed(self) -> int:
        return sum(lane.completed for lane in self.lanes)


@dataclass(frozen=True)
class Job:
    name: str
    size: int
    ranks: list[Rank]


@dataclass(frozen=True)
class Sample:
    """A transfer, and the window that ends with it."""

    segment: str
    ring: int
    posted_ns: int
    completed_ns: int
    bytes: int
    left_bytes: int
    bytes_per_second: float
    starved_ns: int
    transfers: int


def now_ns() -> int:
    """The clock of all times here."""
    return int(_monitor.now_ns())


def windows(records: Sequence[tuple[int, int, int, int]], size: int) -> list[tuple[int, float]]:
    """Of a path's records (posted_ns, completed_ns, bytes, left_bytes), in order: of each full window its end and its
    bytes a second (ICCL section 3.4)."""
    return [(end_ns, rate) for end_ns, rate in _monitor.windows(list(records), size)]


def anomalies(records: Sequence[tuple[int, int, int, int]], size: int = 8) -> list[Anomaly]:
    """When such a path was slower than it used to be, and why."""
    return [Anomaly(**fields) for fields in _monitor.anomalies(list(records), size)]


class Watcher:
    """Follows all ranks of this host and user on a thread of its own, from the moment when it is made.

    window: transfers; 0: what each rank was started with (STARLING_WINDOW). kept_samples: for each rank, those that
    wait for `take`; the oldest go first, as they do of more than 4,096 anomalies.
    """

    def __init__(self, window: int = 0, kept_samples: int = 0) -> None:
        self._watcher = _monitor.Watcher(window, kept_samples)

    def look(self) -> list[Rank]:
        """What there is now; also ranks that have ended within the last seconds. By job and rank."""
        return [_rank(fields) for fields in self._watcher.look()]

    def take(self) -> tuple[list[Sample], list[tuple[str, int, Anomaly]]]:
        """Samples since the last call, and anomalies that have ended: (segment, ring, anomaly)."""
        samples: list[Sample] = []
        anomalies: list[tuple[str, int, Anomaly]] = []
        for segment, some, found in self._watcher.take():
            samples += [Sample(segment, *sample) for sample in some]
            anomalies += [(segment, ring, Anomaly(**fields)) for ring, fields in found]
        return samples, anomalies


def _rank(fields: dict[str, Any]) -> Rank:
    lanes = [_lane(lane) for lane in fields.pop("lanes")]
    paths = [_path(path) for path in fields.pop("paths")]
    high, low = fields.pop("job_key")
    return Rank(**fields, job_key=(high, low), lanes=lanes, paths=paths)


def _lane(fields: dict[str, Any]) -> Lane:
    oldest = fields.pop("oldest")
    return Lane(**fields, oldest=Operation(**oldest) if oldest else None)


def _path(fields: dict[str, Any]) -> Path:
    anomaly = fields.pop("anomaly")
    return Path(**fields, anomaly=Anomaly(**anomaly) if anomaly else None)


def jobs_of(ranks: Iterable[Rank]) -> list[Job]:
    """Ranks by the first group that they joined; those that have joined none are a job without a name."""
    jobs: dict[tuple[str, tuple[int, int]], list[Rank]] = {}
    for rank in ranks:
        jobs.setdefault((rank.job or "", rank.job_key), []).append(rank)
    return [Job(name, max(rank.size for rank in some), some) for (name, _), some in jobs.items()]
