"""Goal: the monitor names the rail that is slow, and not the other, on a real network.

Method: two hosts as network namespaces, all-reduces striped over two rails, one of which is slowed by tc; rank 0
watches its own paths: for good, until one of them has lost far more time to the network than the other; and for a
tenth of a second at a time, of one rail and the other by chance.
"""

import random
import subprocess

import pytest

from hosts.disturbances import Wire, verdicts
from hosts.network import Network, why_not
from hosts.ranks import Job
from monitor.programs import name_the_slow_rail


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


def test_short_disturbances_are_placed() -> None:
    """Of a loaded machine's own standstills, which are on neither rail or on both, some are seen too."""
    if why_not():
        pytest.skip(why_not())
    with Network() as network:
        try:
            wire = Wire(network, 0)
        except subprocess.CalledProcessError:
            pytest.skip("no tc(8) here, or no sch_tbf in the kernel")
        found = verdicts(network, wire, 10, 100_000_000, random.Random(1))["a rail is slow"]
        wire.end()
    assert found.right >= 5 and found.right >= 3 * (found.seen - found.right), found
