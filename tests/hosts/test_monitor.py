"""Goal: the monitor names the rail that is slow, and not the other, on a real network.

Method: two hosts as network namespaces, all-reduces striped over two rails, one of which is slowed by tc; rank 0
watches its own paths and stops when one of them has lost far more time to the network than the other.
"""

import pytest

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
