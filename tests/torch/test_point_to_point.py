"""Goal: sends and receives match by source, destination and tag, in any order. Method: three or more ranks exchange
tensors that name their sender and tag, crossed, out of order, batched and from any source."""

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool


def check_ring() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bool, torch.complex64, torch.int64):
        for count in (0, 1, 1000, 100_000):
            mine = torch.full((count,), rank % 2, dtype=dtype)
            received = torch.empty(count, dtype=dtype)
            work = dist.isend(mine, (rank + 1) % size)
            dist.recv(received, (rank - 1) % size)
            work.wait()
            assert torch.equal(received, torch.full((count,), (rank - 1) % size % 2, dtype=dtype))


def check_tags_out_of_order() -> None:
    rank = dist.get_rank()
    tags = range(5)
    if rank == 0:
        works = [dist.isend(torch.full((10,), float(tag)), 1, tag=tag) for tag in tags]
    elif rank == 1:
        received = {tag: torch.empty(10) for tag in reversed(tags)}
        works = [dist.irecv(tensor, 0, tag=tag) for tag, tensor in received.items()]
    else:
        works = []
    for work in works:
        work.wait()
    if rank == 1:
        assert all(torch.equal(received[tag], torch.full((10,), float(tag))) for tag in tags)


def check_any_source() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        sources = set()
        for _ in range(size - 1):
            tensor = torch.empty(4)
            source = dist.recv(tensor, tag=7)
            assert torch.equal(tensor, torch.full((4,), float(source)))
            sources.add(source)
        assert sources == set(range(1, size))
    else:
        dist.send(torch.full((4,), float(rank)), 0, tag=7)


def check_batch() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.empty(50) for _ in range(3)]
    operations = []
    for index in range(3):
        operations.append(dist.P2POp(dist.irecv, received[index], left))
        operations.append(dist.P2POp(dist.isend, torch.full((50,), float(100 * index + rank)), right))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for index in range(3):
        assert torch.equal(received[index], torch.full((50,), float(100 * index + left)))


def check_strided() -> None:
    rank = dist.get_rank()
    if rank == 0:
        dist.send(torch.arange(12.0).view(3, 4).t(), 1)
    elif rank == 1:
        received = torch.zeros(3, 4).t()
        dist.recv(received, 0)
        assert torch.equal(received, torch.arange(12.0).view(3, 4).t())


def check_with_collectives_between() -> None:
    """A receive that waits holds up no collective."""
    rank = dist.get_rank()
    received = torch.empty(3)
    if rank == 1:
        late = dist.irecv(received, 0)
    total = torch.ones(10)
    dist.all_reduce(total)
    if rank == 0:
        dist.send(torch.ones(3), 1)
    if rank == 1:
        late.wait()
        assert torch.equal(received, torch.ones(3))


@pytest.mark.parametrize(
    "check",
    [
        check_ring,
        check_tags_out_of_order,
        check_any_source,
        check_batch,
        check_strided,
        check_with_collectives_between,
    ],
)
def test_point_to_point(ranks: RankPool, check) -> None:
    ranks.run(check)
