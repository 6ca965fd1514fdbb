"""Goal: groups of ranks on GPUs span hosts: every collective, PyTorch's backend, paths that break, a peer that dies.

Method: processes of one machine that take themselves for hosts (``STARLING_HOST_ID``), joined by two paths over
loopback. A path breaks when its sockets are shut down, from outside the library, as when a middlebox forgets it. What
needs no GPU of it, tests/hosts runs on CPUs.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu import gpus
from gpu import test_sm_free as sm_free
from hosts import broken_paths, programs
from hosts.ranks import Job

pytestmark = pytest.mark.gpu
SEED = 20261122
GIVE_UP_S = 2.0
HERE = Path(__file__).parent
ENVIRONMENT = {"CUDA_MODULE_LOADING": "EAGER", "STARLING_TIMEOUT_S": "30"}


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if gpus.places() < 2:
        pytest.skip("needs two GPUs")


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("hosts", "blocks", "shares"),
    [([[0], [1]], 8, 6), ([[0], [1]], 1, 40), ([[0, 1], [2, 3]], 4, 60)],
    ids=str,
)
def test_collectives(hosts: list[list[int]], blocks: int, shares: int) -> None:
    """Ranks of one host reach each other's memory as ever; two ranks of different hosts may share a GPU."""
    arguments = {"seed": SEED, "share": len(hosts[0]), "shares": shares}
    job = Job(
        None, hosts, programs.conformance, arguments, blocks=blocks, gpus=gpus.count(), settings=ENVIRONMENT
    )
    for problems in job.results(140):
        assert problems == []


def run_on_two_hosts(script: str, names: tuple[str, ...]) -> None:
    command = [sys.executable, str(HERE / script), "2", *names]
    environment = dict(os.environ, HOSTS="2", STARLING_TCP_INTERFACES="lo,lo")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "names",
    [
        ("collectives", "unequal_parts", "strided", "messages", "barriers", "coalesced"),
        ("messages_waited_for_or_not", "waited_messages_need_no_daemon"),
        ("streams_are_waited_for", "side_streams", "tensors_are_kept", "futures"),
        ("disorder", "disorder_with_synchronization", "groups_in_any_order"),
        ("ddp", "ddp_with_lanes_and_synchronization"),
    ],
    ids=lambda names: names[0],
)
def test_torch(names: tuple[str, ...]) -> None:
    run_on_two_hosts("torch_checks.py", names)


@pytest.mark.timeout(120)
def test_graphs_are_refused_by_name() -> None:
    with pytest.raises(AssertionError, match="a graph captures an operation between hosts"):
        run_on_two_hosts("graph_checks.py", ("one",))


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "function",
    [
        sm_free.right_bytes,
        functools.partial(sm_free.in_a_row, messages=700),
        functools.partial(sm_free.disorder, rounds=8, tags=8),
        functools.partial(sm_free.behind_copies, kind="of one stream"),
        functools.partial(sm_free.pageable, sends=False),
        functools.partial(sm_free.pageable, sends=True),
    ],
    ids=("right_bytes", "in_a_row", "disorder", "behind_copies", "pageable_receives", "pageable_sends"),
)
def test_messages_by_copy_engines(function: Callable[..., Any]) -> None:
    """No kernel of ours is launched for them."""
    options = {"sm_free": True}
    job = Job(
        None,
        [[0], [1]],
        function,
        blocks=8,
        gpus=gpus.count(),
        settings=ENVIRONMENT,
        communicator_options=options,
    )
    took = job.results(80)
    if function is sm_free.right_bytes:
        assert took == [0, 0]
    elif took[0] is not None:
        assert max(took) < 5


@pytest.mark.timeout(90)
@pytest.mark.parametrize("striping", "01")
def test_broken_paths(striping: str) -> None:
    settings = ENVIRONMENT | {"STARLING_TCP_STRIPING": striping}
    job = Job(
        None,
        [[0], [1]],
        broken_paths.through_broken_paths,
        {"seconds": 4.0},
        blocks=8,
        gpus=gpus.count(),
        settings=settings,
    )
    (done, breaks, longest), _ = job.results(80)
    print(f"striping {striping}: {done} all-reduces, {breaks} paths broken, the longest took {longest:.3f} s")
    assert done > 50
    assert breaks > 5


@pytest.mark.timeout(90)
def test_a_peer_that_dies() -> None:
    settings = ENVIRONMENT | {"STARLING_TCP_GIVE_UP_S": str(GIVE_UP_S)}
    job = Job(None, [[0], [1]], broken_paths.lose_the_peer, blocks=8, gpus=gpus.count(), settings=settings)
    results: list[Any] = job.results(60, ranks=[0])
    kind, text, took = results[0]
    print(f"after {took:.2f} s: {text[:200]}")
    assert kind == "PeerFailedError", text
    assert "no path to rank 1" in text, text
    assert took < GIVE_UP_S + 3
