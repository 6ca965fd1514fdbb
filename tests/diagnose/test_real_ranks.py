"""Goal: a job that hangs, crashed or crawls has its culprit named, during it and after; a healthy one is called so.

Method: processes with one mistake each (ranks.py) are brought to the point by messages, and looked at from here until
the verdict is there; then the mistake is taken back, where it can be, and the job must be healthy.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diagnose import ranks
from diagnose.ranks import started
from starling.cli.root import app
from starling.diagnose import diagnose, sources
from starling.diagnose.record import parse


@pytest.fixture(autouse=True)
def no_records_left(tmp_path: Path) -> Iterator[None]:
    """Those of the test's ranks would stay for a day."""
    yield
    ranks.remove_records(tmp_path)


def test_a_rank_that_has_not_called(tmp_path: Path) -> None:
    with started(ranks.does_not_call, 3, tmp_path) as job:
        job.hear()
        verdict = job.until("not called", text="ranks 0 and 2 wait").verdict
        assert verdict is not None
        assert (verdict.ranks, verdict.lane, verdict.sequence) == ((1,), "x", 1)
        for part in (
            f"rank 1 (process {job.processes[1].pid}",
            "has not called all_reduce of 4 float32, sum, in place in lane 'x' at position 1",
            "its last call was all_reduce of 4 float32, sum, in place in lane 'x' at position 0, finished",
        ):
            assert part in verdict.what
        assert str(job.processes[1].pid) in verdict.remedy
        job.tell(1)
        assert job.hear() == ["", "", ""]
        healthy = job.until(None)
        assert [rank.calls for rank in healthy.ranks] == [2, 2, 2]


def test_after_the_timeout_from_files(tmp_path: Path) -> None:
    """Also of a rank that knows nothing of the fault: its neighbours write its record."""
    folder = tmp_path / "flight"
    with started(ranks.does_not_call, 3, tmp_path, timeout=3.0, STARLING_FLIGHT_DIR=str(folder)) as job:
        job.hear()
        assert job.hear(0, 2) == ["OperationTimeoutError"] * 2
        pids = [process.pid for process in job.processes]
    assert len(list(folder.glob("*.flight"))) == 3
    (found,) = diagnose([folder])
    assert found.verdict is not None and found.verdict.kind == "not called"
    assert (found.verdict.ranks, found.verdict.lane, found.verdict.sequence) == ((1,), "x", 1)
    assert [rank.pid for rank in found.ranks] == pids
    # The same without the folder, from what they left here.
    (found,) = diagnose(job=job.job)
    assert found.verdict is not None and found.verdict.ranks == (1,)


def test_files_of_two_hosts(tmp_path: Path) -> None:
    """Rank 1's only neighbour writes its record, too. Of one host's files alone, the other's ranks have none."""
    folder = tmp_path / "flight"
    setting = {"STARLING_FLIGHT_DIR": str(folder)}
    with started(ranks.does_not_call, 3, tmp_path, timeout=3.0, hosts="abb", **setting) as job:
        job.hear()
        assert job.hear(0, 2) == ["OperationTimeoutError"] * 2
    files = {parse(path.read_bytes(), "dead").pid: path for path in folder.glob("*.flight")}
    assert set(files) == {process.pid for process in job.processes}
    (found,) = diagnose([folder])
    assert found.verdict is not None and found.verdict.kind == "not called"
    assert (found.verdict.ranks, found.verdict.lane, found.verdict.sequence) == ((1,), "x", 1)
    (found,) = diagnose([files[job.processes[0].pid]])
    assert found.verdict is not None and 1 in found.verdict.ranks
    assert [rank.state for rank in found.ranks[1:]] == ["no record", "no record"]


def test_files_of_a_host_that_was_lost(tmp_path: Path) -> None:
    """A rank that stands still answers on no path. What the other one copies shows its own call under way."""
    folder = tmp_path / "flight"
    settings = {"STARLING_FLIGHT_DIR": str(folder), "STARLING_TCP_GIVE_UP_S": "2"}
    with started(ranks.calls_on_command, 2, tmp_path, hosts="ab", **settings) as job:
        job.hear()
        os.kill(job.processes[1].pid, signal.SIGSTOP)
        job.tell(0)
        assert job.hear(0) == ["PeerFailedError"]
    (path,) = folder.glob("*.flight")
    copy = parse(path.read_bytes(), "dead")
    assert copy.state == "copy" and not copy.operations[-1].completed_ns
    # Its call has waited for longer than what is called a hang.
    (found,) = diagnose([folder], after_s=ranks.AFTER_S)
    assert found.verdict is not None and (found.verdict.kind, found.verdict.ranks) == ("lost", (1,))
    assert "no path" in found.verdict.what and "lo 127.0.0.1" in found.verdict.what


def test_the_culprit_is_found_on_its_own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0, whose record is not there, has told this host what it waits for. Once all have called, nobody waits."""
    everywhere = sources.of_this_host
    with started(ranks.does_not_call, 2, tmp_path, hosts="ab") as job:
        job.hear()
        here = job.processes[1].pid
        monkeypatch.setattr(sources, "of_this_host", lambda: [one for one in everywhere() if one.pid == here])
        verdict = job.until("not called").verdict
        assert verdict is not None
        assert (verdict.ranks, verdict.lane, verdict.sequence) == ((1,), "x", 1)
        assert (
            f"rank 1 (process {here}" in verdict.what
            and "has not called all_reduce of 4 float32, sum in lane 'x' at position 1, for which rank 0 on another "
            "host waits; its last call was all_reduce"
            in verdict.what
        )
        assert str(here) in verdict.remedy
        job.tell(1)
        assert job.hear() == ["", ""]
        assert job.until(None).healthy, "rank 0 has said that it waits for nothing"


def test_the_first_call_of_a_lane_on_its_own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank here has not even opened the lane."""
    everywhere = sources.of_this_host
    with started(ranks.opens_no_lane, 2, tmp_path, hosts="ab") as job:
        job.hear()
        here = job.processes[1].pid
        monkeypatch.setattr(sources, "of_this_host", lambda: [one for one in everywhere() if one.pid == here])
        verdict = job.until("not called").verdict
        assert verdict is not None
        assert (verdict.ranks, verdict.lane, verdict.sequence) == ((1,), "x", 0)


def test_calls_that_do_not_match(tmp_path: Path) -> None:
    """The lane breaks when two have called: the third may come too late to be counted."""
    with started(ranks.calls_something_else, 3, tmp_path) as job:
        job.hear()
        job.tell()
        assert job.hear() == ["MismatchError"] * 3
        verdict = job.until("mismatch").verdict
        assert verdict is not None
        assert (verdict.lane, verdict.sequence) == ("x", 1) and 1 in verdict.ranks
        assert "rank 1 called all_reduce of 5 float32, sum" in verdict.what
        assert "called all_reduce of 4 float32, sum" in verdict.what


def test_waits_in_a_circle(tmp_path: Path) -> None:
    with started(ranks.waits_crosswise, 2, tmp_path) as job:
        verdict = job.until("cycle").verdict
        assert verdict is not None and verdict.ranks == (0, 1)
        assert "rank 0 waits for rank 1 in all_reduce of 4 float32, sum, in place of lane 'a'" in verdict.what
        assert "rank 1 waits for rank 0 in all_reduce of 4 float32, sum, in place of lane 'b'" in verdict.what


def test_a_circle_after_its_timeout(tmp_path: Path) -> None:
    """One rank's timeout lets the other go on: what counts is the moment of the fault."""
    with started(ranks.waits_crosswise, 2, tmp_path, timeout=3.0) as job:
        assert "OperationTimeoutError" in job.hear() + job.hear()
        verdict = job.until("cycle").verdict
        assert verdict is not None and verdict.ranks == (0, 1)


def test_a_slow_rank(tmp_path: Path) -> None:
    with started(ranks.computes_slowly, 3, tmp_path) as job:
        verdict = job.until("slow", ranks=(1,)).verdict
        assert verdict is not None
        assert "rank 1 computes slowly" in verdict.what
        job.tell(1)
        job.hear()


def test_a_slow_stage(tmp_path: Path) -> None:
    with started(ranks.has_a_slow_stage, 4, tmp_path) as job:
        verdict = job.until("slow", ranks=(2, 3)).verdict
        assert verdict is not None
        assert "pipeline stage 1 of 2" in verdict.what
        job.tell(0)
        job.hear()


@pytest.mark.parametrize("row_is", ["tensor", "data"])
def test_a_slow_place_in_tensor_or_data_groups(tmp_path: Path, row_is: str) -> None:
    """Same groups, same messages, same slow ranks: only when the rows sum up differs."""
    with started(functools.partial(ranks.trains, row_is=row_is), 4, tmp_path) as job:
        found = job.until("slow", ranks=(1, 3), text=f"ranks 1 and 3 ({row_is} rank 1 of 2) compute slowly")
        assert found.verdict is not None
        assert any(
            line.startswith(f"groups like ranks 0 and 1 are {row_is} parallel")
            for line in found.verdict.details
        )
        assert f"pipeline stage 1 of 2, {row_is} rank 0 of 2" in found.ranks[2].state
        job.tell(0)
        job.hear()


def test_a_stopped_rank(tmp_path: Path) -> None:
    with started(ranks.calls_on_command, 3, tmp_path) as job:
        job.hear()
        pid = job.processes[1].pid
        os.kill(pid, signal.SIGSTOP)
        job.tell()
        found = job.until("stopped")
        assert found.verdict is not None and found.verdict.ranks == (1,)
        assert "SIGSTOP" in found.verdict.what and found.verdict.remedy == f"kill -CONT {pid}"
        os.kill(pid, signal.SIGCONT)
        assert job.hear() == ["", "", ""]
        job.until(None)


def test_a_killed_rank_during_and_after(tmp_path: Path) -> None:
    with started(ranks.calls_on_command, 3, tmp_path) as job:
        job.hear()
        pid = job.processes[1].pid
        job.processes[1].kill()
        job.tell(0, 2)
        found = job.until("died")
        assert found.verdict is not None and found.verdict.ranks == (1,)
        assert f"rank 1 (process {pid}" in found.verdict.what
        assert (
            "its last call was all_reduce of 4 float32, sum, in place in lane 'x' at position 0"
            in found.verdict.what
        )
        assert job.hear(0, 2) == ["PeerFailedError"] * 2
        assert job.until("died").verdict.ranks == (1,)  # type: ignore[union-attr]
    # Now all of them are gone, and nobody said good-bye.
    assert job.until("died").verdict.ranks == (1,)  # type: ignore[union-attr]
    assert not job.until("died").live


def test_a_hang_that_was_killed_as_a_whole(tmp_path: Path) -> None:
    with started(ranks.does_not_call, 3, tmp_path) as job:
        job.hear()
        job.until("not called")
        for process in job.processes:
            os.kill(process.pid, signal.SIGSTOP)  # so that they end at one moment
    found = job.until("not called")
    assert found.verdict is not None and found.verdict.ranks == (1,) and not found.live


def test_a_receive_that_nobody_serves(tmp_path: Path) -> None:
    with started(ranks.waits_for_anybody, 2, tmp_path) as job:
        job.hear(0)
        verdict = job.until("no sender").verdict
        assert verdict is not None and verdict.ranks == (0,)


def test_a_rank_that_does_not_join(tmp_path: Path) -> None:
    with started(ranks.calls_on_command, 2, tmp_path, absent=1) as job:
        deadline = time.monotonic() + ranks.BOUND_S
        while not (found := diagnose(job=job.job, after_s=ranks.AFTER_S)) or found[0].verdict is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found[0].verdict.kind == "not joined" and found[0].verdict.ranks == (1,)
        assert "rank 1 of 2 to join 'world'" in found[0].verdict.what


@contextlib.contextmanager
def cpu_group(name: str) -> Iterator[tuple[Path, str, str]]:
    """A control group of our own: its folder, and what sets and lifts a limit of a tenth of a core in it."""
    for top, quota in ((Path("/sys/fs/cgroup"), "cpu.max"), (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us")):
        folder = top / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / quota).exists():
                yield (folder, quota, "10000 100000" if quota == "cpu.max" else "10000")
                return
        finally:
            deadline = time.monotonic() + ranks.BOUND_S
            while folder.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # those who were in it are not gone yet
                    folder.rmdir()
                time.sleep(0.01)
    pytest.skip("no control group with a CPU quota can be made here")


def test_a_cpu_quota(tmp_path: Path) -> None:
    with (
        cpu_group(f"starling-test-{os.getpid()}") as (folder, quota, tenth),
        started(ranks.is_busy, 2, tmp_path) as job,
    ):
        job.hear()
        for process in job.processes:
            (folder / "cgroup.procs").write_text(str(process.pid))
        (folder / quota).write_text(tenth)
        found = job.until("starved", text="0.1 cores where they need 2")
        assert found.verdict is not None and found.verdict.ranks == (0, 1)
        assert folder.name in found.verdict.what
        (folder / quota).write_text("max" if quota == "cpu.max" else "-1")
        job.tell(0)
        job.hear()


def test_the_command(tmp_path: Path) -> None:
    """Its first line and its exit code, of a healthy job and of a hang; wrong usage."""
    with started(ranks.does_not_call, 2, tmp_path) as job:
        job.hear()
        job.until("not called")
        runner = CliRunner()
        arguments = ["diagnose", "--job", job.job, "--after", str(ranks.AFTER_S)]
        sick = runner.invoke(app, arguments)
        first = sick.stdout.splitlines()[0]
        assert sick.exit_code == 1
        assert first.startswith("rank 1 (process ") and "; remedy: " in first
        told = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
        assert not told["healthy"] and told["jobs"][0]["findings"][0]["kind"] == "not called"
        job.tell(1)
        job.hear()
        job.until(None)
        command = [sys.executable, "-m", "starling.cli", *arguments]
        healthy = subprocess.run(command, capture_output=True, text=True, timeout=ranks.BOUND_S)
        assert healthy.returncode == 0 and healthy.stdout.startswith("healthy: "), healthy
        assert runner.invoke(app, ["diagnose", str(tmp_path / "nowhere")]).exit_code == 2
        assert runner.invoke(app, ["diagnose", __file__]).exit_code == 2
        assert runner.invoke(app, ["diagnose", "--after", "soon"]).exit_code == 2
