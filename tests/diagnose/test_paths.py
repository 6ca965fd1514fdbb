"""Goal: a path that is slow is named, and one that has nothing to carry is not; beside what else is wrong with the job.

Method: looks at paths made by hand. On a real network: tests/hosts/test_monitor.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from diagnose.test_judging import NOWHERE, Call, job_of, records_of
from starling.diagnose import Diagnosis
from starling.diagnose.judge import judge
from starling.diagnose.paths import Look, Watched
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
