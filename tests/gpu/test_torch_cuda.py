"""Goal: the PyTorch backend is right on CUDA tensors, keeps streams in order without blocking hosts, and releases
streams when a rank dies.

Method: ``torch_checks.py`` in processes of its own, two and four, one a GPU, and one alone; each run has a time limit,
so that a hang is a failure.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import gpus

pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).with_name("torch_checks.py")


@pytest.fixture(params=(2, 4))
def ranks(request: pytest.FixtureRequest) -> int:
    gpus.skip_unless(request.param)
    return int(request.param)


def run(ranks: int, *names: str, **settings: str) -> None:
    command = [sys.executable, str(SCRIPT), str(ranks), *names]
    environment = {**os.environ, **settings}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as checks:
        try:
            output, _ = checks.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            # Its ranks too, which would keep the GPUs from who comes next.
            os.killpg(checks.pid, signal.SIGKILL)
            output, _ = checks.communicate()
            pytest.fail("not ended within 100 s:\n" + output[-12000:])
    assert checks.returncode == 0, output[-12000:]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "names",
    [
        ("collectives", "unequal_parts", "strided", "messages", "barriers", "coalesced"),
        ("messages_waited_for_or_not",),
        ("streams_are_waited_for", "side_streams", "tensors_are_kept", "futures", "futures_asked_for_late"),
        ("futures_need_no_daemon", "waited_messages_need_no_daemon", "no_context_on_another_gpu"),
        (
            "disorder",
            "disorder_with_synchronization",
            "groups_in_any_order",
            "groups_in_any_order_with_synchronization",
        ),
        ("ddp", "ddp_with_lanes_and_synchronization", "ddp_in_orders_of_ranks_own"),
        ("tensor_parallel",),
        ("pipelining",),
        ("timed_out", "aborted"),
        ("killed",),
    ],
    ids=lambda names: names[0],
)
def test_checks(names: tuple[str, ...], ranks: int) -> None:
    run(ranks, *names)


# Without those that synchronize between operations of different orders: with held streams they are not promised to end.
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "names",
    [
        ("synchronization_waits_for_held_streams", "lanes_of_held_streams_in_any_order"),
        ("collectives", "unequal_parts", "strided", "messages", "barriers", "coalesced"),
        (
            "messages_waited_for_or_not",
            "streams_are_waited_for",
            "side_streams",
            "tensors_are_kept",
            "futures",
        ),
        ("disorder", "groups_in_any_order", "ddp", "pipelining", "no_context_on_another_gpu"),
        ("killed",),
    ],
    ids=lambda names: names[0],
)
def test_held_streams(names: tuple[str, ...], ranks: int) -> None:
    run(ranks, *names, STARLING_TORCH_HOLD_STREAMS="1")


@pytest.mark.timeout(120)
def test_fsdp2(ranks: int) -> None:
    run(ranks, "fsdp2")


@pytest.mark.timeout(120)
def test_one_rank_alone() -> None:
    """The first thing that is tried on one GPU: all that needs no other rank."""
    gpus.skip_unless(1)
    run(
        1,
        *("collectives", "unequal_parts", "strided", "coalesced"),
        *("streams_are_waited_for", "side_streams", "tensors_are_kept", "futures"),
        *("disorder_with_synchronization", "groups_in_any_order_with_synchronization"),
        *("ddp", "ddp_with_lanes_and_synchronization", "fsdp2", "tensor_parallel", "pipelining"),
    )
