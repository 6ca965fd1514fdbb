"""Goal: the monitor names the rail that is slow, and not the other, on a real network.

Method: two hosts as network namespaces, all-reduces striped over two rails, one of which is slowed by tc; rank 0
watches its own paths: for good, until one of them has lost far more time to the network than the other; and for a
tenth of a second at a time, of one rail and the other by chance. Beside them `starling diagnose` looks at a rail that
is slow for good, while the job runs and after a rank was killed. What is counted of disturbances: on made-up ones.
"""

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator

import pytest

from hosts.disturbances import Moment, Wire, judge, verdicts
from hosts.network import Network, why_not
from hosts.ranks import Job
from monitor.programs import name_the_slow_rail, slow_paths_after_a_crash, slow_paths_by_diagnosis
from starling.monitor import Anomaly

ATTEMPTS = 6


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Where this process may, it and those that it starts come before what else wants the cores: of ranks that hardly
    run, nothing can be said."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def test_the_slow_rail_is_named() -> None:
    slow, other = 0, 1
    if why_not():
        pytest.skip(why_not())
    with Network() as network:
        job = Job(network, [[0], [1]], name_the_slow_rail, settings={"STARLING_TCP_STRIPING": "1"})
        try:
            for rank in (0, 1):
                job.wait_for(f"running.{rank}")
            if not network.set_slow(slow, True):
                pytest.skip("no tc(8) here, or no sch_tbf in the kernel")
            job.say("slowed")
            before, after = job.results()[0]
        finally:
            job.end()
    lost_ms = {number: (path.slow_ns - before[number].slow_ns) / 1e6 for number, path in after.items()}
    assert lost_ms[slow] > 1000 and lost_ms[slow] > 3 * lost_ms[other], lost_ms


def test_diagnosis_names_the_slow_rail() -> None:
    """`starling diagnose` on one of the hosts while the job runs; a loaded machine slows the other rail now and then,
    and for that long it is named too."""
    if why_not():
        pytest.skip(why_not())
    with Network() as network:
        slow = f"rail0 {network.address(0, 0)} -> rail0 {network.address(1, 0)}"
        job = Job(
            network,
            [[0], [1]],
            slow_paths_by_diagnosis,
            {"slow": slow},
            settings={"STARLING_TCP_STRIPING": "1"},
        )
        try:
            for rank in (0, 1):
                job.wait_for(f"running.{rank}")
            if not network.set_slow(0, True):
                pytest.skip("no tc(8) here, or no sch_tbf in the kernel")
            job.say("slowed")
            found = job.results()[0]
        finally:
            job.end()
    assert found and found[-1] == (slow,), found


def test_diagnosis_after_a_crash_names_the_slow_rail() -> None:
    """A rank is killed amid traffic over a rail that is slow: on its host its record tells, on the other the
    survivor's, which has left since."""
    if why_not():
        pytest.skip(why_not())
    with Network() as network:
        ports = [f"rail0 {network.address(host, 0)}" for host in (0, 1)]
        job = Job(
            network,
            [[0], [1]],
            slow_paths_after_a_crash,
            {"slow": " -> ".join(ports)},
            settings={"STARLING_TCP_STRIPING": "1", "STARLING_TCP_GIVE_UP_S": "2"},
            communicator=False,
        )
        try:
            for rank in (0, 1):
                job.wait_for(f"running.{rank}")
            if not network.set_slow(0, True):
                pytest.skip("no tc(8) here, or no sch_tbf in the kernel")
            job.say("slowed")
            of_killed, of_survivor = job.results()
        finally:
            job.end()
    slow = {
        rank: [one for one in found if one["kind"] == "slow path"]
        for rank, found in enumerate((of_killed, of_survivor))
    }
    assert [one["paths"] for one in slow[0]] == [[" -> ".join(ports)]], of_killed
    assert "from rank 0 to rank 1" in slow[0][0]["what"] and "was slow" in slow[0][0]["what"]
    # The way back may have been busy for less than half of the time.
    assert [one["paths"] for one in slow[1]] in ([], [[" -> ".join(ports[::-1])]]), of_survivor


def test_short_disturbances_are_placed() -> None:
    """Of a loaded machine's own standstills, which are on neither rail or on both, some are seen too."""
    if why_not():
        pytest.skip(why_not())
    with before_others(), Network() as network:
        try:
            wire = Wire(network, 0)
        except subprocess.CalledProcessError:
            pytest.skip("no tc(8) here, or no sch_tbf in the kernel")
        found = []  # all of them count: a busy machine may hide most of ten
        for attempt in range(ATTEMPTS):
            found.append(verdicts(network, wire, 10, 100_000_000, random.Random(attempt))["a rail is slow"])
            right = sum(verdict.right for verdict in found)
            wrong = sum(verdict.seen for verdict in found) - right
            if right >= 5 and right >= 3 * wrong:
                break
        else:
            raise AssertionError(found)
        wire.end()


def test_a_rail_with_nothing_to_carry_is_counted_apart() -> None:
    ms = 1_000_000
    moments = [
        Moment(rail, at * ms, (at + 1) * ms) for rail, at in ((0, 100), (1, 200), (1, 300), (None, 400))
    ]
    lost = Anomaly("network", 100 * ms, 101 * ms, ms, 0, 0.0, 0.0)
    under_way = [
        (0, 99 * ms, 101 * ms),
        (1, 100 * ms, 101 * ms),
        (1, 200 * ms, 200 * ms + ms // 5),  # with the next one 0.3 ms and more, without what both have
        (1, 200 * ms + ms // 10, 200 * ms + ms // 3),
        (0, 300 * ms, 301 * ms),
        (1, 300 * ms, 300 * ms + ms // 5),  # too short, though posted again
        (1, 300 * ms, 300 * ms + ms // 5),
    ]
    slow, nothing = (
        judge([m for m in moments if (m.rail is None) == none], [(0, lost)], under_way, ms)
        for none in (False, True)
    )
    assert (slow.moments, slow.seen, slow.right) == (3, 1, 1)
    assert (slow.busy, slow.busy_seen, slow.busy_right) == (2, 1, 1)
    assert (nothing.moments, nothing.seen, nothing.busy) == (1, 0, 0)
