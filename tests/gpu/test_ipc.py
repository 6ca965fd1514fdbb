"""Goal: processes on GPUs read each other's registered buffers where they lie: also buffers at addresses that were
freed and given out again, at any offset; and memory that other processes cannot open is an error on every rank.

Method: processes, one a GPU, with STARLING_PULL=1; the large operations of each are compared.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from gpu import gpus
from starling import Communicator
from starling.errors import StarlingError

pytestmark = pytest.mark.gpu
LARGE = 1 << 20  # elements: well above what goes as packets


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if gpus.count() < 2:
        pytest.skip("needs two GPUs")


def run(function: Callable[..., Any], **arguments: Any) -> list[Any]:
    results = gpus.MACHINES["processes"].run(
        2,
        functools.partial(function, **arguments),
        timeout=100,
        operation_timeout=20,
        environment={"STARLING_PULL": "1"},
    )
    return list(results)


def reused(comm: Communicator, rounds: int) -> int:
    """Allocations that come and go; returns at how many addresses they lay."""
    import torch

    assert comm.large_messages.read
    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    addresses = set()
    for turn in range(rounds):
        pattern = torch.arange(LARGE + 4096 * (turn % 3), device=device) % 1000
        tensor = pattern.float() + comm.rank + turn
        sums = torch.empty_like(tensor)
        torch.cuda.synchronize()
        comm.all_reduce(tensor, sums).wait(20)
        assert bool((sums == 2 * pattern + 1 + 2 * turn).all()), f"round {turn}"
        addresses.add(tensor.data_ptr())
        del tensor, sums, pattern
        torch.cuda.empty_cache()
    return len(addresses)


@pytest.mark.timeout(120)
def test_addresses_that_are_used_again() -> None:
    rounds = 50
    assert all(count < rounds for count in run(reused, rounds=rounds))


def offsets(comm: Communicator) -> None:
    """Parts of one allocation, as tensors of a caching allocator are, which begin anywhere."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    whole = torch.zeros(8 * LARGE, device=device)
    for begin in (1, 5, 4096, 3 * LARGE + 7):
        part = whole[begin : begin + LARGE]
        part.fill_(comm.rank + begin)
        parts = torch.empty(2 * LARGE, device=device)
        torch.cuda.synchronize()
        comm.all_gather(part, parts).wait(20)
        assert bool((parts[:LARGE] == begin).all()), f"offset {begin}, part of rank 0"
        assert bool((parts[LARGE:] == begin + 1).all()), f"offset {begin}, part of rank 1"


@pytest.mark.timeout(120)
def test_parts_of_an_allocation() -> None:
    run(offsets)


def expandable(comm: Communicator, of: int) -> str:
    """What rank `of`'s memory, which others cannot open, makes of an operation."""
    import torch

    if comm.rank == of:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    tensor = torch.ones(LARGE, device=device)
    torch.cuda.synchronize()
    try:
        comm.all_reduce(tensor).wait(20)
    except StarlingError as error:
        return str(error)
    return "no error"


@pytest.mark.timeout(120)
def test_memory_that_cannot_be_opened_is_an_error_on_every_rank() -> None:
    for text in run(expandable, of=1):
        assert "STARLING_PULL=0" in text
        assert "expandable_segments" in text
