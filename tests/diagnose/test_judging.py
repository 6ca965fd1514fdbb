"""Goal: the verdict follows from the records alone: chains of waits, lost calls, several hosts, stages, quotas, GPUs.

Method: records made by hand, files of a made-up host below another root, a made-up nvidia-smi; no process and no clock.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.records import NOW, NOWHERE, Call, S, job_of, records_of
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import jobs_of
from starling.diagnose.judge import judge
from starling.diagnose.record import BYTES, Fault, NotARecordError, Record, parse
from starling.diagnose.stages import EITHER, dimensions, name_of


def verdict_of(records: list[Record], hosts: Hosts = NOWHERE, after_s: float = 1.0) -> Finding | None:
    return judge(job_of(records), hosts, after_s).verdict


def test_nothing_waits() -> None:
    rounds: list[Call] = [("x", k, 100 - k, 99.9 - k) for k in range(50)]
    assert verdict_of(records_of([rounds, rounds, rounds])) is None


def test_a_young_call_is_no_hang() -> None:
    records = records_of([[("x", 0, 0.5, None)], [("y", 0, 9, 8)]])
    assert verdict_of(records) is None
    found = verdict_of(records, after_s=0.2)
    assert found is not None and found.ranks == (1,)


def test_who_goes_on_with_something_else_may_come() -> None:
    busy: list[Call] = [("y", k, 10 - k / 10, 10 - k / 10 - 0.01) for k in range(99)]
    lanes = {"y": 1}
    assert verdict_of(records_of([[("x", 0, 9, None)], busy], groups=[[1]], lanes=lanes)) is None


def test_a_chain_ends_at_the_culprit() -> None:
    """0 waits for 1, which waits for 2, which waits for nobody."""
    records = records_of(
        [[("a", 0, 9, None)], [("b", 0, 8, None)], []], groups=[[0, 1], [1, 2]], lanes={"a": 1, "b": 2}
    )
    found = verdict_of(records)
    assert found is not None and (found.kind, found.ranks, found.lane) == ("not called", (2,), "b")
    assert "rank 0 wait" in found.details[0]


def test_a_circle_of_three() -> None:
    groups = [[0, 1], [1, 2], [0, 2]]
    lanes = {"a": 1, "b": 2, "c": 3}
    records = records_of([[("a", 0, 9, None)], [("b", 0, 8, None)], [("c", 0, 7, None)]], groups, lanes)
    found = verdict_of(records)
    assert found is not None and (found.kind, found.ranks) == ("cycle", (0, 1, 2))
    assert "rank 2 waits for rank 0" in found.what


def test_a_call_that_the_ring_has_lost() -> None:
    """Its lane still counts one more submission than completions."""
    records = records_of([[("x", 0, 900, 899), ("x", 1, 800, None)], [("x", 0, 900, 899)]])
    lost = dataclasses.replace(records[0], operations=records[0].operations[:1])
    found = verdict_of([lost, records[1]], after_s=0.0)
    assert found is not None and (found.ranks, found.sequence) == ((1,), 1)


def test_a_rank_without_a_record() -> None:
    records = records_of([[("x", 0, 9, None)], [("x", 0, 9, None)], []])
    found = verdict_of(records[:2])
    assert found is not None and found.ranks == (2,)
    assert "pass its flight record" in found.remedy
    assert "no record of it is here" in found.what and "has not called" not in found.what


def test_who_has_not_called_comes_before_who_left_no_record() -> None:
    """Ranks 0 and 1 are on another host: more is not known of them than of rank 3, which has called nothing."""
    waits: list[Call] = [("x", 0, 9, None)]
    records = records_of([waits, waits, waits, [("y", 0, 20, 19)]], groups=[[3]], lanes={"y": 1})
    found = verdict_of(records[2:])
    assert found is not None and (found.kind, found.ranks) == ("not called", (3,))
    assert found.what.startswith("rank 3 (process 1003 on here) has not called")
    found = verdict_of(records[:2])
    assert found is not None and found.ranks == (2, 3)
    assert found.what.startswith("ranks 0 and 1 wait since 9.0 s for ranks 2 and 3 in ")


def test_all_have_called() -> None:
    records = records_of([[("x", 0, 9, None)], [("x", 0, 8, None)]])
    found = verdict_of([records[0], dataclasses.replace(records[1], alive_ns=NOW - 6 * S)])
    assert found is not None and (found.kind, found.ranks) == ("unfinished", (1,))
    found = verdict_of([records[0], dataclasses.replace(records[1], host=2, host_name="there")])
    assert found is not None and "on 2 hosts" in found.what


def test_the_moment_of_the_fault_counts() -> None:
    """Rank 1 called after rank 0's operation had failed; before that it was rank 1 that had not called."""
    fault = Fault("timeout", 0, 0, NOW - 5 * S, "late")
    records = records_of([[("x", 0, 9, 4.9)], [("x", 0, 1, 0.9)]], faults=(fault,), state="ended")
    failed = [
        dataclasses.replace(r, operations=tuple(dataclasses.replace(op, status=3) for op in r.operations))
        for r in records
    ]
    found = verdict_of(failed)
    assert found is not None and (found.kind, found.ranks) == ("not called", (1,))


def test_a_launcher_that_kills_the_rest_is_not_the_cause() -> None:
    """Rank 0's timeout, for rank 1 had not called; then rank 1 was killed. Else it is rank 1's death."""
    records = records_of([[("x", 0, 9, None)], []], state="dead")
    late = dataclasses.replace(
        records[0], state="ended", faults=(Fault("timeout", 0, 0, NOW - 5 * S, "late"),)
    )
    killed = dataclasses.replace(records[1], alive_ns=NOW - 4 * S)
    found = verdict_of([late, killed])
    assert found is not None and (found.kind, found.ranks) == ("not called", (1,))
    found = verdict_of([late, dataclasses.replace(killed, alive_ns=NOW - 7 * S)])
    assert found is not None and (found.kind, found.ranks) == ("died", (1,))
    alone = dataclasses.replace(killed, state="dead")
    found = verdict_of([dataclasses.replace(records[0], state="live"), alone])
    assert found is not None and (found.kind, found.ranks) == ("died", (1,))


def test_ranks_that_are_gone_wait_for_nobody() -> None:
    """Killed half a minute ago, half a second after the others' last call: that is no hang, however late one looks."""
    calls: list[list[Call]] = [[("x", 0, 28.5, None)], [("x", 0, 28.5, None)], []]
    records = records_of(calls, state="dead")

    def at(seconds: int) -> list[Record]:
        return [dataclasses.replace(record, alive_ns=NOW - seconds * S) for record in records]

    found = verdict_of(at(28))
    assert found is not None and found.kind == "killed" and "28.0 s ago" in found.what
    (detail,) = found.details
    assert detail.startswith("rank 2 ") and "ranks 0 and 1 had" in detail
    hung = verdict_of(at(20))
    assert hung is not None and (hung.kind, hung.ranks) == ("not called", (2,))
    assert "since 8.5 s" in hung.what and "py-spy" not in hung.remedy


def test_a_death_on_another_host() -> None:
    """What the others were told of it is all there is here."""
    text = "rank 2 (process 1002) died; lane 'x' waited for it; remedy: see its log"
    died = Fault("peer failed", 0, 0, NOW - 5 * S, text)
    records = records_of([[("x", 0, 6, None)], [("x", 0, 6, None)], []], state="ended", faults=(died,))
    found = verdict_of(records[:2])
    assert found is not None and (found.kind, found.ranks) == ("died", (2,))
    assert (
        found.what
        == "rank 2 (process 1002) died, as ranks 0 and 1 heard from its host; no record of it is here"
    )


def test_a_lost_path_comes_before_what_waited_for_it() -> None:
    text = "rank 0 has lost rank 1 on another host: no path to rank 1 lives: eth0: silent; lane 'x' waited for it"
    lost = Fault("peer failed", 0, 0, NOW - 5 * S, text)
    records = records_of([[("x", 0, 9, 5)], []], state="ended", faults=(lost,))
    found = verdict_of(records[:1])
    assert found is not None and found.kind == "lost"
    assert "no path to rank 1 lives: eth0: silent" in found.what


def test_a_communicator_made_anew_is_another() -> None:
    """Same name and ranks, so the same keys: calls of the first are none of the second's."""
    records = records_of([[("x", 0, 90, 89), ("x", 1, 80, None)], [("x", 0, 90, 89), ("x", 1, 80, 79)]])
    anew = [
        dataclasses.replace(
            r, lanes={0: dataclasses.replace(r.lanes[0], submitted=n, completed=0, opened_ns=NOW - 50 * S)}
        )
        for r, n in zip(records, (1, 0), strict=True)
    ]
    first = dataclasses.replace(
        records[0].operations[1], number=9, sequence=0, submitted_ns=NOW - 40 * S, count=9
    )
    found = verdict_of([dataclasses.replace(anew[0], operations=(*records[0].operations, first)), anew[1]])
    assert found is not None and (found.kind, found.ranks, found.sequence) == ("not called", (1,), 0)
    closed = dataclasses.replace(records[1].lanes[0], submitted=5, closed_ns=NOW - 60 * S)
    found = verdict_of([records[0], dataclasses.replace(records[1], lanes={0: closed})])
    assert found is not None and (found.kind, found.ranks, found.sequence) == ("not called", (1,), 1)


def test_a_slow_rank_and_its_stage() -> None:
    """Two stages of two ranks each: those of the second are slow."""

    def rounds(own_s: float) -> list[Call]:
        return [("x", k, 50.0 - k + 0.9 - own_s, 50.0 - k - 0.05) for k in range(40)]

    groups = [[0, 1], [2, 3], [0, 2], [1, 3]]
    fast, slow = rounds(0.02), rounds(0.8)
    message: list[list[Call]] = [
        [("m0", 0, 99, 98)],
        [("m1", 0, 99, 98)],
        [("m0", 0, 99, 98)],
        [("m1", 0, 99, 98)],
    ]
    calls = [a + b for a, b in zip(message, [fast, fast, slow, slow], strict=True)]
    records = records_of(calls, groups, {"m0": (0, 2), "m1": (1, 3)})
    known = dimensions(job_of(records))
    assert name_of(known, {2, 3}) == name_of(known, {3}) == "pipeline stage 1 of 2", (
        "rows have called nothing"
    )
    found = verdict_of(records)
    assert found is not None and (found.kind, found.ranks) == ("slow", (2, 3))
    assert "pipeline stage 1 of 2" in found.what and "move layers" in found.remedy
    calls[2] = message[2] + fast
    found = verdict_of(records_of(calls, groups, {"m0": (0, 2), "m1": (1, 3)}))
    assert found is not None and found.ranks == (3,)
    assert "pipeline stage 1 of 2" in found.what and "move layers" not in found.remedy, (
        "its neighbour is fast"
    )
    assert verdict_of(records_of([fast, fast, fast, fast], groups)) is None


def test_a_mismatch_of_plans() -> None:
    records = records_of([[("x", 0, 9, None)], [("x", 0, 8, None)], [("x", 0, 8, None)]])
    other = dataclasses.replace(records[2].operations[0], plan_hash=5)
    found = verdict_of([*records[:2], dataclasses.replace(records[2], operations=(other,))])
    assert found is not None and (found.kind, found.ranks) == ("mismatch", (2,))
    assert "by plan 0000000000000005" in found.what
    found = verdict_of([records[1], dataclasses.replace(records[2], operations=(other,))])
    assert found is not None and found.ranks == (1, 2), "one against one"


def test_messages_to_oneself() -> None:
    """They say nothing of how ranks are laid out, with groups that split the job and without."""
    calls: list[list[Call]] = [[("own", 0, 9, 8), ("x", 0, 7, None)], [("own", 0, 9, 8)]]
    found = verdict_of(records_of(calls, lanes={"own": (0, 0)}))
    assert found is not None and (found.kind, found.ranks) == ("not called", (1,))
    calls = [[("own", 0, 9, 8), (f"row {rank // 2}", 0, 7, 6)] for rank in range(4)]
    job = job_of(records_of(calls, [[0, 1], [2, 3]], {"own": (0, 0), "row 0": 1, "row 1": 2}))
    assert [one.kind for one in dimensions(job)] == [EITHER]


def test_two_jobs_are_two() -> None:
    first = records_of([[], []])
    second = [
        dataclasses.replace(r, id=r.id + 50, groups=tuple(
            dataclasses.replace(g, members=tuple(m + 50 for m in g.members)) for g in r.groups
        ))
        for r in records_of([[], [], []])
    ]  # fmt: skip
    assert sorted(job.size for job in jobs_of([*first, *second])) == [2, 3]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


GROUPS = {
    "new": {
        "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "proc/1000/cgroup": "0::/pod/job\n",
        "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pod/cpu.stat": "nr_periods 200\nnr_throttled 80\nthrottled_usec 5\n",
        "sys/fs/cgroup/pod/job/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/job/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
    },
    "old": {
        "proc/mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n",
        "proc/1000/cgroup": "4:cpu,cpuacct:/seen/from/elsewhere\n3:memory:/x\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 200\nnr_throttled 80\nthrottled_time 5\n",
    },
}


@pytest.mark.parametrize("version", sorted(GROUPS))
def test_a_quota_of_either_kind(tmp_path: Path, version: str) -> None:
    write(tmp_path, GROUPS[version])
    write(tmp_path, {"proc/1001/cgroup": GROUPS[version]["proc/1000/cgroup"]})
    found = verdict_of(records_of([[], []]), Hosts(tmp_path))
    assert found is not None and (found.kind, found.ranks) == ("starved", (0, 1))
    assert "1.5 cores where they need 2" in found.what and "40%" in found.what
    assert verdict_of(records_of([[]]), Hosts(tmp_path)) is None, "one rank has enough"


def test_a_quota_that_was_not_felt(tmp_path: Path) -> None:
    files = GROUPS["new"] | {"sys/fs/cgroup/pod/cpu.stat": "nr_periods 200\nnr_throttled 8\n"}
    write(tmp_path, files | {"proc/1001/cgroup": files["proc/1000/cgroup"]})
    assert verdict_of(records_of([[], []]), Hosts(tmp_path)) is None


def test_fewer_cores_than_threads_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        {f"proc/{1000 + k}/status": "Name: x\nCpus_allowed_list:\t0,4-5\n" for k in range(4)}
        | {"proc/loadavg": "7.5 1 1 1/1 1\n"},
    )
    found = judge(job_of(records_of([[]] * 4)), Hosts(tmp_path), 1.0)
    assert found.healthy
    assert found.notes == ("here: 4 ranks need 4 threads and have 3 cores (load 7.5)",)
    assert judge(job_of(records_of([[]] * 3)), Hosts(tmp_path), 1.0).notes == ()


SMI = """#!/bin/sh
case "$1" in
--query-gpu=*) printf '%s\\n' '0, GPU-aa, 0x0000000000000001, 35' '1, GPU-bb, 0x0000000000000040, 93' ;;
--query-compute-apps=*) printf '%s\\n' {apps} ;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes an nvidia-smi of two GPUs, of which 1 slows down, that sees these processes (uuid, pid)."""

    def make(*apps: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(SMI.format(apps=" ".join(f"'{app}'" for app in apps) or "''"))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return make


def test_a_gpu_that_slows_down_is_a_ranks(smi: Callable[..., None]) -> None:
    """By the process that uses it, whatever number it has there."""
    records = records_of([[], []], device="cuda:0")
    smi("GPU-bb, 1000", "GPU-aa, 1001")
    found = judge(job_of(records), NOWHERE, 1.0)
    assert found.verdict is not None and (found.verdict.kind, found.verdict.ranks) == ("throttled", (0,))
    slows = "rank 0 (process 1000 on here) slows down: GPU 1 (93 degrees, hardware thermal slowdown)"
    assert slows in found.verdict.what
    assert found.notes == ()
    smi("GPU-aa, 1000", "GPU-bb, 1001")
    found = judge(job_of(records), NOWHERE, 1.0)
    assert found.verdict is not None and found.verdict.ranks == (1,)
    smi("GPU-bb, 1000", "GPU-bb, 1001")
    found = judge(job_of(records), NOWHERE, 1.0)
    assert found.verdict is not None and found.verdict.ranks == (0, 1)
    assert found.verdict.what.endswith("; so does that of rank 1")


def test_a_gpu_in_a_container_is_a_ranks(smi: Callable[..., None], tmp_path: Path) -> None:
    """nvidia-smi sees no processes there."""
    smi()
    records = records_of([[], []])
    records = [dataclasses.replace(record, device=f"cuda:{rank}") for rank, record in enumerate(records)]
    for visible, culprits in (("", (1,)), ("1,0", (0,)), ("GPU-bb,GPU-aa", (0,)), ("0,0", ())):
        for pid in (1000, 1001):
            write(tmp_path, {f"proc/{pid}/environ": f"HOME=/\0CUDA_VISIBLE_DEVICES={visible}\0"})
        found = judge(job_of(records), Hosts(tmp_path), 1.0)
        assert (found.verdict.ranks if found.verdict else ()) == culprits, visible
    assert found.notes == ("GPU 1 (93 degrees, hardware thermal slowdown) slows down",)


def test_a_gpu_that_ranks_chose_for_themselves_is_nobodys(smi: Callable[..., None], tmp_path: Path) -> None:
    """Each is on the first that it sees, and what it set since it began is not to be read; nor is a stranger's."""
    smi()
    for visible in ("", "1,0"):
        for pid in (1000, 1001):
            write(tmp_path, {f"proc/{pid}/environ": f"HOME=/\0CUDA_VISIBLE_DEVICES={visible}\0"})
        two, one = (job_of(records_of([[]] * ranks, device="cuda:0")) for ranks in (2, 1))
        found = judge(two, Hosts(tmp_path), 1.0)
        assert found.healthy and found.notes == ("GPU 1 (93 degrees, hardware thermal slowdown) slows down",)
        assert judge(one, Hosts(tmp_path), 1.0).healthy == (visible == ""), "it is there alone"
    for pid in (1000, 1001):
        write(tmp_path, {f"proc/{pid}/environ": "CUDA_VISIBLE_DEVICES=1\0"})
    verdict = judge(two, Hosts(tmp_path), 1.0).verdict
    assert verdict is not None and verdict.ranks == (0, 1), "there is but one that they can be on"
    assert judge(job_of(records_of([[]], device="cuda:1")), NOWHERE, 1.0).healthy, (
        "its environment is not read"
    )


def test_a_slow_gpu_comes_with_what_it_holds_up(smi: Callable[..., None]) -> None:
    smi("GPU-bb, 1001")
    records = records_of([[("x", 0, 9, None)], []], device="cuda:0")
    found = judge(job_of(records), NOWHERE, 1.0)
    assert [finding.kind for finding in found.findings] == ["not called", "throttled"]
    smi("GPU-aa, 1001")
    assert [finding.kind for finding in judge(job_of(records), NOWHERE, 1.0).findings] == ["not called"]


def test_what_is_no_record() -> None:
    for data in (b"", b"SLFIGHT1", bytes(BYTES)):
        with pytest.raises(NotARecordError):
            parse(data, "dead")
