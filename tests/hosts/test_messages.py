"""Goal: large messages between hosts, which go from buffer to buffer without slots, are whole or an error: whatever
their sizes and order, and whatever fails while they are under way.

Method: as in test_hosts.py; where a fault has to meet a message, the rails are slowed down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hosts import failovers, messages, programs
from hosts.messages import NAMED_BYTES
from hosts.network import Network, why_not
from hosts.ranks import Job

SEED = 20261123
REASON = why_not()
POLLS = {"STARLING_LINK_POLLS": "1"}  # as for ranks on GPUs: by slots
GIVE_UP = {"STARLING_TCP_GIVE_UP_S": "2"}


def run(function: Callable[..., Any], arguments: dict[str, Any], settings: dict[str, str]) -> list[Any]:
    return Job(None, [[0], [1]], function, arguments, settings=settings).results(150)


@pytest.fixture(scope="module")
def rails() -> Iterator[Network]:
    if REASON:
        pytest.skip(REASON)
    with Network() as network:
        yield network


@pytest.fixture
def slow_rails(rails: Network) -> Iterator[Network]:
    if not all(rails.set_rate(rail, "600mbit") for rail in (0, 1)):
        pytest.skip("the kernel has no tbf, so messages are faster than faults")
    yield rails
    for rail in (0, 1):
        rails.set_slow(rail, False)


@pytest.mark.parametrize(
    "settings", ({}, {"STARLING_TCP_STRIPING": "1"}, POLLS), ids=("rung", "striped", "polls")
)
@pytest.mark.parametrize("early", (False, True), ids=("together", "early"))
def test_sizes(settings: dict[str, str], early: bool) -> None:
    run(messages.of_sizes, {"early": early}, settings)


@pytest.mark.parametrize("settings", ({}, {"STARLING_TCP_STRIPING": "1"}), ids=("rung", "striped"))
def test_crossed(settings: dict[str, str]) -> None:
    run(messages.crossed, {"seed": SEED}, settings)


def test_one_send_is_over_first() -> None:
    """It fits in the receiver's slots."""
    assert run(messages.one_send_is_over_first, {}, {})[0] < 20


@pytest.mark.parametrize(
    "counts",
    [
        (NAMED_BYTES - 1, NAMED_BYTES),
        (NAMED_BYTES, NAMED_BYTES - 1),
        (24 << 20, 8 << 20),
        (8 << 20, 24 << 20),
        (8, 8 << 20),
    ],
    ids=str,
)
def test_mismatch(counts: tuple[int, int]) -> None:
    for text in run(functools.partial(programs.mismatched_messages, counts=counts), {}, {}):
        assert "rank 0 calls" in text and f"of {counts[0]} uint8" in text, text
        assert "rank 1 calls" in text and f"of {counts[1]} uint8" in text, text


@pytest.mark.parametrize("striping", "01")
@pytest.mark.parametrize("fault", ("own port", "peer's port", "silent"))
def test_failing_rail(rails: Network, fault: str, striping: str) -> None:
    job = Job(rails, [[0], [1]], messages.through_failures, settings={"STARLING_TCP_STRIPING": striping})
    failovers.through_failing_rails(rails, job, fault)


@pytest.mark.parametrize("culprit", (0, 1), ids=("sender", "receiver"))
@pytest.mark.parametrize(
    ("fault", "kind"),
    [("abort", "AbortedError"), ("timeout", "OperationTimeoutError"), ("killed", "PeerFailedError")],
)
def test_amid_a_message(slow_rails: Network, fault: str, kind: str, culprit: int) -> None:
    arguments = {"fault": fault, "culprit": culprit}
    job = Job(slow_rails, [[0], [1]], messages.amid_a_message, arguments, settings=GIVE_UP)
    told = job.results(150, ranks=[1 - culprit] if fault == "killed" else None)
    for seen, text, took in told:
        assert seen == kind, text
        assert took < 40, text


def test_a_buffer_of_two_lanes(slow_rails: Network) -> None:
    """What a lane's operation had wanted, and got otherwise, is nothing to the lane when it breaks."""
    Job(slow_rails, [[0], [1]], messages.a_buffer_of_two_lanes).results(150)
