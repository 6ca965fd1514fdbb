"""Goal: sends and receives that no block moves (sm_free) between hosts: sizes, order, errors, links that fail.

Method: on CPUs, where the rank's proxy makes the copies that a copy engine makes on a GPU; the programs are those of
one host (tests/comm/test_sm_free.py). Hosts are processes that take themselves for such, over loopback; where rails
fail, network namespaces.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from comm import test_sm_free as near
from hosts import programs
from hosts.network import Network, why_not
from hosts.ranks import Job

HOSTS = [[0], [1]]
POLLS = {"STARLING_LINK_POLLS": "1"}  # as for ranks on GPUs


def run(function: Callable[..., Any], hosts: list[list[int]] = HOSTS, **more: Any) -> list[Any]:
    return Job(None, hosts, function, **{"communicator_options": {"sm_free": True}, **more}).results(90)


@pytest.mark.parametrize("settings", ({}, POLLS), ids=("rung", "polls"))
@pytest.mark.parametrize("hosts", (HOSTS, [[0, 1], [2]]), ids=str)
def test_sizes(hosts: list[list[int]], settings: dict[str, str]) -> None:
    """And no block of a daemon has executed anything."""
    assert run(near.sizes, hosts, settings=settings) == [0] * sum(map(len, hosts))


@pytest.mark.parametrize("settings", ({}, POLLS), ids=("rung", "polls"))
def test_crossed_sends_finish(settings: dict[str, str]) -> None:
    run(functools.partial(near.crossed, messages=400), settings=settings)


def test_any_source() -> None:
    assert run(near.from_any, [[0], [1, 2]])[0] == [1, 2]


def test_by_size() -> None:
    by_size = run(near.mixed, communicator_options={"sm_free": "auto"})
    never = run(near.mixed, communicator_options={"sm_free": False})
    assert all(0 < few < many for few, many in zip(by_size, never, strict=True))


@pytest.mark.parametrize("counts", [(4, 5), (3 << 20, 1)], ids=str)
def test_mismatch(counts: tuple[int, int]) -> None:
    for text in run(functools.partial(programs.mismatched_messages, counts=counts)):
        assert "rank 0 calls" in text
        assert "rank 1 calls" in text


def test_timeout() -> None:
    assert "rank 0 has not called it" in run(near.late)[1]


def test_abort() -> None:
    for text in run(near.aborted):
        assert "aborted by rank 0: enough" in text


def test_rails_that_fail() -> None:
    if why_not():
        pytest.skip(why_not())
    with Network() as network:
        job = Job(network, HOSTS, programs.messages_through_failures, communicator_options={"sm_free": True})
        try:
            job.wait_for("running")
            for rail in (0, 1, 0):
                network.set_up(0, rail, False)
                time.sleep(0.3)
                network.set_up(0, rail, True)
                time.sleep(1.5)
            network.set_silent(0, True)
            time.sleep(1.0)
            network.set_silent(0, False)
            job.say("stop")
            assert job.results(90)[0] > 10
        finally:
            job.end()
