"""Goal: processes on GPUs read each other's registered buffers where they lie: also buffers at addresses that were
freed and given out again, at any offset, and memory that is mapped piece by piece; and memory that other processes
cannot open bounces, by default too.

Method: two and four processes, one a GPU, with STARLING_PULL=1 or without; the large operations of each are compared.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu import gpus, mapped
from starling import Communicator

pytestmark = pytest.mark.gpu
LARGE = 1 << 20  # elements: well above what goes as packets
LARGEST = 8 << 20  # 32 MB: read by default


@pytest.fixture(params=(2, 4))
def ranks(request: pytest.FixtureRequest) -> int:
    gpus.skip_unless(request.param)
    return int(request.param)


def run(
    function: Callable[..., Any],
    ranks: int,
    *,
    pull: str = "1",
    settings: dict[str, str] | None = None,
    **arguments: Any,
) -> list[Any]:
    results = gpus.MACHINES["processes"].run(
        ranks,
        functools.partial(function, **arguments),
        timeout=100,
        operation_timeout=20,
        environment={"STARLING_JOB": f"ipc-{os.getpid()}", "STARLING_PULL": pull, **(settings or {})},
    )
    return list(results)


def total(comm: Communicator, turn: int) -> int:
    """Of what ranks have of which each has its rank and the turn."""
    return comm.size * turn + comm.size * (comm.size - 1) // 2


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
        assert bool((sums == comm.size * pattern + total(comm, turn)).all()), f"round {turn}"
        addresses.add(tensor.data_ptr())
        del tensor, sums, pattern
        torch.cuda.empty_cache()
    return len(addresses)


@pytest.mark.timeout(120)
def test_addresses_that_are_used_again(ranks: int) -> None:
    rounds = 50
    assert all(count < rounds for count in run(reused, ranks, rounds=rounds))


def offsets(comm: Communicator) -> None:
    """Parts of one allocation, as tensors of a caching allocator are, which begin anywhere."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    whole = torch.zeros(8 * LARGE, device=device)
    for begin in (1, 5, 4096, 3 * LARGE + 7):
        part = whole[begin : begin + LARGE]
        part.fill_(comm.rank + begin)
        parts = torch.empty(comm.size * LARGE, device=device)
        torch.cuda.synchronize()
        comm.all_gather(part, parts).wait(20)
        for rank, theirs in enumerate(parts.chunk(comm.size)):
            assert bool((theirs == begin + rank).all()), f"offset {begin}, part of rank {rank}"


@pytest.mark.timeout(120)
def test_parts_of_an_allocation(ranks: int) -> None:
    run(offsets, ranks)


def all_of(comm: Communicator, tensors: Callable[..., Any], rounds: int, count: int) -> None:
    """Each collective that reads, on tensors that ``tensors(count, value)`` makes, checked whole."""
    import torch

    size = comm.size
    for turn in range(rounds):
        own = float(comm.rank + turn)
        sums, gathered, part, exchanged = (tensors(n, 0.0) for n in (count, size * count, count, count))
        single, whole, in_place, spread = (tensors(n, own) for n in (count, size * count, count, count))
        torch.cuda.synchronize()
        comm.all_reduce(single, sums).wait(20)
        comm.all_gather(single, gathered).wait(20)
        comm.reduce_scatter(whole, part).wait(20)
        comm.all_to_all(single, exchanged).wait(20)
        comm.all_reduce(in_place).wait(20)
        comm.broadcast(spread, root=0).wait(20)
        for what, tensor, expected in (
            ("sum", sums, total(comm, turn)),
            ("sum in place", in_place, total(comm, turn)),
            ("reduced part", part, total(comm, turn)),
            ("broadcast", spread, turn),
            *(
                (f"gathered of {rank}", theirs, rank + turn)
                for rank, theirs in enumerate(gathered.chunk(size))
            ),
            *(
                (f"exchanged of {rank}", theirs, rank + turn)
                for rank, theirs in enumerate(exchanged.chunk(size))
            ),
        ):
            assert bool((tensor == float(expected)).all()), f"round {turn}: {what}"


def expect_bounced(comm: Communicator, expected: bool) -> None:
    """By default a group that joins behind a rank's first bounce does not read."""
    if os.environ["STARLING_PULL"] == "1":
        return
    with Communicator(comm.context, rank=comm.rank, size=comm.size, name="later", timeout=30) as later:
        assert bool(later.large_messages.read) != expected


def expandable(comm: Communicator, of: list[int], rounds: int, count: int) -> None:
    """Ranks ``of`` have segments that grow piece by piece."""
    import torch

    if comm.rank in of:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    all_of(comm, lambda n, value: torch.full((n,), value, device=device), rounds, count)
    expect_bounced(comm, False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pull", ["auto", "1"])
@pytest.mark.parametrize("of", [[1], [0, 1]])
def test_expandable_segments_are_read(pull: str, of: list[int], ranks: int) -> None:
    run(expandable, ranks, pull=pull, of=of, rounds=5, count=LARGEST)


def pieces(comm: Communicator, handle_types: int, rounds: int, count: int) -> None:
    """Each tensor in a segment of its own, of many pieces, and not at its beginning."""
    device = int(comm.context.device.split(":")[1])
    kept = []

    def tensors(n: int, value: float) -> Any:
        segment = mapped.Segment(device, (4 * n >> 21) + 2, handle_types)
        kept.append(segment)
        return segment.tensor(5, n).fill_(value)

    all_of(comm, tensors, rounds, count)
    expect_bounced(comm, handle_types == mapped.NOT_AT_ALL)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pull", ["auto", "1"])
@pytest.mark.parametrize("handle_types", [mapped.BY_DESCRIPTOR, mapped.NOT_AT_ALL])
def test_memory_in_pieces(pull: str, handle_types: int, ranks: int) -> None:
    """What can be exported is mapped by peers, piece behind piece; what cannot bounces."""
    run(pieces, ranks, pull=pull, handle_types=handle_types, rounds=2, count=LARGEST)


def replaced(comm: Communicator, rounds: int) -> None:
    """Pieces amid a buffer are replaced between operations, as a segment that shrinks and grows again does."""
    import torch

    device = int(comm.context.device.split(":")[1])
    torch.cuda.set_device(device)
    segment = mapped.Segment(device, 12, grains=2)
    count = segment.bytes // 4 - 1000
    sums = torch.empty(count, device=device)
    for turn in range(rounds):
        segment.replace((5 * turn + comm.rank) % 12)
        begin = 100 * (turn % 3)
        tensor = segment.tensor(begin, count)
        tensor.fill_(comm.rank + turn)
        torch.cuda.synchronize()
        comm.all_reduce(tensor, sums).wait(20)
        assert bool((sums == total(comm, turn)).all()), f"round {turn}"
    expect_bounced(comm, False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pull", ["auto", "1"])
def test_pieces_that_are_replaced(pull: str, ranks: int) -> None:
    run(replaced, ranks, pull=pull, rounds=30)


def copied(comm: Communicator, count: int) -> None:
    """Copy engines write into a peer's pieces."""
    import torch

    device = int(comm.context.device.split(":")[1])
    torch.cuda.set_device(device)
    segment = mapped.Segment(device, (4 * count >> 21) + 2)
    for turn in range(5):
        received = segment.tensor(3 * turn, count)
        received.fill_(-1)
        sent = torch.full((count,), float(comm.rank + turn), device=device)
        torch.cuda.synchronize()
        before, behind = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        arrives = comm.recv(received, before)
        comm.send(sent, behind).wait(20)
        arrives.wait(20)
        assert bool((received == before + turn).all()), f"round {turn}"


@pytest.mark.timeout(120)
def test_copy_engines_write_into_pieces(ranks: int) -> None:
    run(copied, ranks, settings={"STARLING_SM_FREE": "1"}, pull="auto", count=LARGEST)


def pooled(comm: Communicator, rounds: int, count: int) -> None:
    """Memory of cudaMallocAsync, beside memory that others can open."""
    import ctypes

    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    runtime = ctypes.CDLL("libcudart.so.13")
    kept = []

    class Piece:
        """An array that torch takes as it is."""

        def __init__(self, n: int) -> None:
            self.address = ctypes.c_void_p()
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            status = runtime.cudaMallocAsync(ctypes.byref(self.address), ctypes.c_size_t(4 * n), stream)
            assert status == 0, f"cudaMallocAsync: {status}"
            self.__cuda_array_interface__ = {
                "shape": (n,),
                "typestr": "<f4",
                "data": (self.address.value, False),
                "version": 3,
            }

    def tensors(n: int, value: float) -> Any:
        if len(kept) % 3 == 0:
            kept.append(None)
            return torch.full((n,), value, device=device)
        kept.append(Piece(n))
        return torch.as_tensor(kept[-1], device=device).fill_(value)

    all_of(comm, tensors, rounds, count)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pull", ["auto", "1"])
def test_memory_of_cudaMallocAsync_bounces(pull: str, ranks: int) -> None:  # noqa: N802
    run(pooled, ranks, pull=pull, rounds=3, count=LARGEST)


def by_default(comm: Communicator) -> bool:
    return bool(comm.large_messages.read)


@pytest.mark.timeout(120)
def test_who_reads_by_default(ranks: int) -> None:
    assert all(run(by_default, ranks, pull="auto"))
    assert not any(run(by_default, ranks, pull="0"))


TORCH = """
import os, sys, torch, torch.distributed as dist
import starling.torch
rank, size = int(sys.argv[1]), int(sys.argv[3])
device = torch.device("cuda", rank % torch.cuda.device_count())
torch.cuda.set_device(device)
store = dist.FileStore(sys.argv[2], size)
dist.init_process_group("starling", store=store, rank=rank, world_size=size, device_id=device)
for turn in range(5):
    tensor = torch.full((8 << 20,), float(rank + turn), device=device)
    dist.all_reduce(tensor)
    parts = torch.empty(size * (8 << 20), device=device)
    dist.all_gather_into_tensor(parts, tensor)
    torch.cuda.synchronize()
    total = size * turn + size * (size - 1) // 2
    assert bool((tensor == total).all()) and bool((parts == total).all())
torch.manual_seed(rank)
model = torch.nn.Sequential(*(torch.nn.Linear(3000, 3000, device=device) for _ in range(4)))
parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
for turn in range(4):
    optimizer.zero_grad(set_to_none=True)
    parallel(torch.randn(8, 3000, device=device)).square().mean().backward()
    optimizer.step()
    torch.cuda.empty_cache()  # segments shrink
for parameter in model.parameters():
    theirs = [torch.empty_like(parameter) for _ in range(size)]
    dist.all_gather(theirs, parameter.detach())
    assert all(torch.equal(theirs[0], other) for other in theirs) and bool(theirs[0].isfinite().all())
dist.destroy_process_group()
print("right")
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize("settings", ["expandable_segments:True", "backend:cudaMallocAsync", ""])
def test_torch_with_any_allocator(settings: str, ranks: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings}
    environment.pop("STARLING_PULL", None)
    if not settings:
        del environment["PYTORCH_CUDA_ALLOC_CONF"], environment["PYTORCH_ALLOC_CONF"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TORCH, str(rank), str(tmp_path / "store"), str(ranks)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=70)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, said
    assert all("right" in text for text in said), said
    assert not any("bounce" in text or "cannot open" in text for text in said), said
