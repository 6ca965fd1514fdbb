"""Goal: a path that is slow is named, and one that has nothing to carry is not; beside what else is wrong with the job.

Method: looks at paths made by hand. On a real network: tests/hosts/test_monitor.py.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from diagnose.test_judging import NOWHERE, Call, job_of, records_of
from starling.diagnose import Diagnosis, record
from starling.diagnose.judge import judge
from starling.diagnose.paths import Look, Watched
from starling.diagnose.record import Fault, PathHistory, PathSample
from starling.monitor import Anomaly, Path, Sample

MS = 1_000_000
NOW_NS = 60_000 * MS
RAILS = ("rail0 10.0.0.1 -> rail0 10.0.0.2", "rail1 10.0.1.1 -> rail1 10.0.1.2")


def watched(
    rail: int,
    each_ms: float,
    gap_ms: float = 0.0,
    lasts_ms: float = 4_000,
    ends_ms: float = 0.0,
    anomalies: Sequence[Anomaly] = (),
    current: Anomaly | None = None,
    left_bytes: int = 0,
    to: int = 1,
) -> Watched:
    """A path of rank 0 that has carried 1 MB in so many ms again and again, resting between, until `ends_ms` ago."""
    count = int((lasts_ms - ends_ms) / (each_ms + gap_ms))
    samples = []
    for k in range(count):
        end = NOW_NS - int((ends_ms + (count - 1 - k) * (each_ms + gap_ms)) * MS)
        samples.append(Sample("starling.0", rail, end - int(each_ms * MS), end, 1_000_000, 0, 0.0, 0, 8))
    path = Path(
        *(
            rail,
            to,
            rail,
            "tcp",
            RAILS[rail],
            count,
            0,
            left_bytes,
            int(ends_ms * MS) if left_bytes else 0,
            0,
            0,
            0,
            0,
        ),
        *(8, 0, 0, 0.0, 0.0, 0, 0, 0, 0, current),
    )
    return Watched("starling.0", path, samples, anomalies)


def lost(cause: str, ms: float, ended_ms: float = 0.0, rate: float = 1e6) -> Anomaly:
    end = NOW_NS - int(ended_ms * MS)
    return Anomaly(cause, end - int(1.1 * ms * MS), end, int(ms * MS), 0, 100e6, rate)


def judged(*paths: Watched, calls: Sequence[Sequence[Call]] = ((), ()), known: int = 2) -> Diagnosis:
    return judge(job_of(records_of(calls)[:known]), NOWHERE, 1.0, Look(NOW_NS, paths))


def test_slow_against_its_own_history() -> None:
    long_ago = lost("network", 2_000, ended_ms=20_000)
    slow = watched(0, each_ms=100, lasts_ms=40_000, anomalies=[long_ago, lost("network", 3_000)])
    other = watched(1, each_ms=5, gap_ms=95, anomalies=[lost("starved", 3_000)])
    found = judged(slow, other).verdict
    assert found is not None and (found.kind, found.ranks, found.paths) == ("slow path", (0, 1), RAILS[:1])
    assert f"from rank 0 to rank 1 by {RAILS[0]} (tcp) is slow: 10 MB/s" in found.what
    assert "where 100 MB/s was usual" in found.what and "rail1" not in found.what
    assert (
        f"between the same ranks, {RAILS[1]} carries 200 MB/s, and had nothing to carry for 3.0 s"
        in found.details
    )
    assert judged(slow).verdict is not None, "it needs no other to be compared with"


def test_slow_since_before_anybody_looked() -> None:
    """Its history knows nothing else: only the other path tells."""
    found = judged(watched(0, each_ms=20), watched(1, each_ms=2, gap_ms=18)).verdict
    assert found is not None and found.paths == RAILS[:1] and "usual" not in found.what
    assert judged(watched(0, each_ms=20), watched(1, each_ms=10, gap_ms=10)).healthy, (
        "others are no such faster"
    )
    assert judged(watched(0, each_ms=20), watched(1, each_ms=2, gap_ms=1_000)).healthy, (
        "too few to compare with"
    )
    assert judged(watched(0, each_ms=20, gap_ms=60), watched(1, each_ms=2)).healthy, "nobody waits for it"
    assert judged(watched(0, each_ms=20), watched(1, each_ms=2, gap_ms=18, to=2)).healthy, "to another rank"


def test_what_stands_still_is_slow() -> None:
    stands = lost("network", 2_000, rate=0.0)
    found = judged(
        watched(0, each_ms=1, gap_ms=9, ends_ms=2_000, current=stands, left_bytes=5_000_000),
        watched(1, each_ms=1, gap_ms=9, ends_ms=2_000, current=lost("starved", 2_000, rate=0.0)),
    ).verdict
    assert found is not None and found.paths == RAILS[:1]


@pytest.mark.parametrize(
    "paths",
    [
        [watched(0, each_ms=1, gap_ms=99, anomalies=[lost("starved", 3_500)])],
        [watched(rail, each_ms=100, anomalies=[lost("network", 3_000)]) for rail in (0, 1)],
        [watched(0, each_ms=100, anomalies=[lost("network", 300)])],
        [watched(0, each_ms=2, lasts_ms=40_000, anomalies=[lost("network", 20_000, ended_ms=6_000)])],
        [watched(0, each_ms=10, lasts_ms=200, anomalies=[lost("network", 190)])],
    ],
    ids=[
        "starved",
        "all are, as on a host that stands still",
        "for a moment",
        "long ago",
        "not seen for long",
    ],
)
def test_what_is_not_slow(paths: list[Watched]) -> None:
    assert judged(*paths).healthy


def recorded(
    path: int, busy: float, rate: float, ends_s: float = 0.0, samples: int = 20, **more: int
) -> PathHistory:
    """A path of rank 0 to rank 1 that was busy for this share of its samples' 250 ms, until so many seconds ago; 100
    MB/s is usual."""
    end = NOW_NS - int(ends_s * 1000 * MS)
    step, busy_ns = 250 * MS, int(busy * 250 * MS)
    lost = max(0, busy_ns - int(busy_ns * rate / 100e6))
    made = []
    for k in range(samples):
        at = end - (samples - 1 - k) * step
        made.append(
            PathSample(at - step, at, int(rate * busy_ns / 1e9), busy_ns, lost, 100_000_000, int(rate), 10)
        )
    return PathHistory(1, path, "tcp", RAILS[path], seen_ns=NOW_NS, samples=tuple(made), **more)


def judged_dead(*paths: PathHistory, **changes: Any) -> Diagnosis:
    records = [
        dataclasses.replace(record, state="dead", alive_ns=NOW_NS, paths=paths if k == 0 else (), **changes)
        for k, record in enumerate(records_of([[], []]))
    ]
    return judge(job_of(records), NOWHERE, 1.0, Look())


def test_of_ranks_that_are_gone_their_records_tell() -> None:
    found = judged_dead(recorded(0, 0.9, 10e6), recorded(1, 0.1, 100e6)).verdict
    assert found is not None and (found.kind, found.ranks, found.paths) == ("slow path", (0, 1), RAILS[:1])
    assert "was slow: 10 MB/s while it had something to carry, where 100 MB/s was usual" in found.what
    assert (
        f"between the same ranks, {RAILS[1]} carried 100 MB/s, and had nothing to carry for 4.5 s"
        in found.details
    )
    long_ago = judged_dead(recorded(0, 0.9, 10e6, ends_s=600), recorded(1, 0.1, 100e6, ends_s=600)).verdict
    assert long_ago is not None and long_ago.kind == "slow path", "ranks may wait for long before they end"


def test_a_record_of_a_path_that_stood_still_when_its_rank_ended() -> None:
    stands = recorded(0, 0.3, 100e6, ends_s=4, left_bytes=5, waiting_since_ns=NOW_NS - 4_000 * MS)
    found = judged_dead(stands, recorded(1, 0.3, 100e6, ends_s=4)).verdict
    assert found is not None and (found.kind, found.paths) == ("slow path", RAILS[:1])
    unheard = recorded(0, 0.3, 100e6, ends_s=0.3, left_bytes=5, waiting_since_ns=NOW_NS - 300 * MS)
    assert judged_dead(unheard, recorded(1, 0.3, 100e6)).verdict.kind == "killed"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "paths",
    [
        (recorded(0, 0.9, 100e6), recorded(1, 0.9, 100e6)),
        (recorded(0, 0.9, 10e6), recorded(1, 0.9, 10e6)),
        (recorded(0, 0.3, 10e6), recorded(1, 0.1, 100e6)),
        (recorded(0, 0.9, 10e6, ends_s=20), recorded(1, 0.1, 100e6)),
        (recorded(0, 0.9, 10e6, samples=1),),
        (),
    ],
    ids=["busy", "all are slow", "nobody waits for it", "long before the end", "for a moment", "no paths"],
)
def test_records_of_paths_that_were_not_slow(paths: tuple[PathHistory, ...]) -> None:
    found = judged_dead(*paths).verdict
    assert found is not None and found.kind == "killed"


def test_what_a_fault_ended_is_judged_until_then() -> None:
    fault = Fault("peer failed", 0, 0, NOW_NS - 10_000 * MS, "rank 1 is gone")
    healed = recorded(0, 0.9, 10e6, ends_s=11), recorded(1, 0.1, 100e6)
    found = judged_dead(*healed, faults=(fault,))
    assert "slow path" in [one.kind for one in found.findings]


def bytes_of(samples: int, written: int) -> bytes:
    """Of a record with a path whose samples begin at their numbers."""
    raw = bytearray(record.BYTES)
    struct.pack_into("<Q", raw, 0, record.MAGIC)
    struct.pack_into("<I", raw, 124, 1)
    at = record.BYTES - record.PATHS * (192 + 32 * 64)
    struct.pack_into("<7Q3I108s", raw, at, written, 11, 12, 13, 14, 15, 16, 3, 1, 2, b"rail1 a -> rail1 b")
    for n in range(max(0, samples - 32), samples):
        struct.pack_into("<7QI", raw, at + 192 + n % 32 * 64, n + 1, n + 2, 3, 4, 5, 6, 7, 8)
    return bytes(raw)


def test_a_records_paths_are_read_from_its_bytes() -> None:
    (path,) = record.parse(bytes_of(2, 2), "dead").paths
    samples = (PathSample(1, 2, 3, 4, 5, 6, 7, 8), PathSample(2, 3, 3, 4, 5, 6, 7, 8))
    assert path == PathHistory(3, 1, "verbs", "rail1 a -> rail1 b", 11, 12, 13, 14, 15, 16, samples)


def test_samples_that_were_being_written_are_left_out() -> None:
    begins = [sample.begin_ns for sample in record.parse(bytes_of(41, 40), "dead").paths[0].samples]
    assert begins == list(range(10, 41)), "the one whose place is written again is none"
    early, late = bytes_of(40, 40), bytes_of(45, 44)
    for data, again in ((early, late), (late, early)):
        begins = [sample.begin_ns for sample in record.parse(data, "live", again).paths[0].samples]
        assert begins == list(range(14, 41))


def test_paths_of_others_are_none_of_the_jobs() -> None:
    slow = watched(0, each_ms=100, anomalies=[lost("network", 3_000)])
    assert judged(dataclasses.replace(slow, segment="starling.7")).healthy


def test_beside_a_hang() -> None:
    """It comes before what says little, and behind a culprit that is known."""
    slow = watched(0, each_ms=100, anomalies=[lost("network", 3_000)])
    waits: list[Call] = [("x", 0, 9, None)]
    kinds = {
        name: [finding.kind for finding in found.findings]
        for name, found in (
            ("unfinished", judged(slow, calls=[waits, waits])),
            ("no record", judged(slow, calls=[waits, waits], known=1)),
            ("not called", judged(slow, calls=[waits, []])),
        )
    }
    assert kinds == {
        "unfinished": ["slow path", "unfinished"],
        "no record": ["slow path", "not called"],
        "not called": ["not called", "slow path"],
    }


def test_a_path_that_stands_still_alone_may_be_of_a_host_that_does() -> None:
    """Then who is waited for comes first; another path to the same rank tells the wire from the host."""
    stands = watched(
        0, each_ms=1, gap_ms=9, ends_ms=3_000, current=lost("network", 3_000, rate=0.0), left_bytes=5_000_000
    )
    beside = watched(1, each_ms=1, gap_ms=9, ends_ms=3_000, current=lost("starved", 3_000, rate=0.0))
    waits: list[Call] = [("x", 0, 9, None)]
    calls = [waits, waits]
    assert [finding.kind for finding in judged(stands, calls=calls).findings] == ["unfinished", "slow path"]
    assert [finding.kind for finding in judged(stands, calls=calls, known=1).findings] == [
        "not called",
        "slow path",
    ]
    assert [finding.kind for finding in judged(stands, beside, calls=calls).findings] == [
        "slow path",
        "unfinished",
    ]
    crawls = watched(0, each_ms=70, gap_ms=30, anomalies=[lost("network", 3_000)], to=2)
    found = judged(stands, crawls, calls=calls).findings
    assert found[0].kind == "slow path" and "from rank 0 to rank 2" in found[0].what
