"""Goal: large collectives between hosts, which go from buffer to buffer where their plans allow it, are whole or an
error, whatever fails while they are under way; and their buffers are their callers' then.

Method: as in test_messages.py. Which steps go so, and how messages find their places, is in tests/comm
(named_steps_test.cc, named_messages_test.cc).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hosts import failovers, large_collectives
from hosts.network import Network, why_not
from hosts.ranks import Job
from hosts.test_messages import GIVE_UP

REASON = why_not()


@pytest.fixture
def rails() -> Iterator[Network]:
    if REASON:
        pytest.skip(REASON)
    with Network() as network:
        yield network


@pytest.fixture
def slow_rails() -> Iterator[Network]:
    if REASON:
        pytest.skip(REASON)
    with Network(3) as network:
        if not all(network.set_rate(rail, "400mbit") for rail in (0, 1)):
            pytest.skip("the kernel has no tbf, so messages are faster than faults")
        yield network


@pytest.mark.parametrize("striping", "01")
@pytest.mark.parametrize("fault", ("own port", "peer's port", "silent"))
def test_failing_rail(rails: Network, fault: str, striping: str) -> None:
    settings = {"STARLING_TCP_STRIPING": striping}
    job = Job(rails, [[0], [1]], large_collectives.through_failures, settings=settings, blocks=2)
    failovers.through_failing_rails(rails, job, fault)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("abort", "AbortedError"), ("timeout", "OperationTimeoutError"), ("killed", "PeerFailedError")],
)
def test_amid_an_all_to_all(slow_rails: Network, fault: str, kind: str) -> None:
    """Among three hosts: each link has its own part of what is taken back."""
    arguments = {"fault": fault, "culprit": 1}
    job = Job(slow_rails, [[0], [1], [2]], large_collectives.amid_an_all_to_all, arguments, settings=GIVE_UP)
    for seen, text, took in job.results(150, ranks=[0, 2] if fault == "killed" else None):
        assert seen == kind, text
        assert took < 40, text
