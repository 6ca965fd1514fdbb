"""Goal: every collective gives what gloo gives. Method: the same inputs through both on four ranks, compared exactly
(small whole numbers, so that the order of additions does not matter); where gloo refuses, against the definition."""

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool, reference_group

from starling.torch import premul_sum

MOVABLE = [
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
REDUCIBLE = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1031,), (64, 257)]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]


def make(rank: int, shape: tuple[int, ...], dtype: torch.dtype, low: int = 0, high: int = 3) -> torch.Tensor:
    """What `rank` puts in; every rank can compute it."""
    generator = torch.Generator().manual_seed(1000 + rank)
    values = torch.randint(low, high, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(values.double(), -values.double()).to(dtype)
    return values.to(dtype)


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def check_all_reduce() -> None:
    rank, gloo = dist.get_rank(), reference_group()
    for dtype in REDUCIBLE:
        for shape in SHAPES:
            for op in OPS:
                ours, theirs = make(rank, shape, dtype), make(rank, shape, dtype)
                dist.all_reduce(ours, op=op)
                dist.all_reduce(theirs, op=op, group=gloo)
                same(ours, theirs)


def check_all_reduce_bits() -> None:
    rank, gloo = dist.get_rank(), reference_group()
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        ours, theirs = make(rank, (77,), torch.int32, 0, 99), make(rank, (77,), torch.int32, 0, 99)
        dist.all_reduce(ours, op=op)
        dist.all_reduce(theirs, op=op, group=gloo)
        same(ours, theirs)
        with pytest.raises(RuntimeError, match="non-integral"):
            dist.all_reduce(torch.ones(3), op=op)


def everybody(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [make(rank, shape, dtype) for rank in range(dist.get_world_size())]


def check_all_reduce_special() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.bfloat16, torch.float32, torch.complex64):
        ours = make(rank, (33, 3), dtype)
        dist.all_reduce(ours)
        same(ours, sum(everybody((33, 3), dtype)))
    for dtype in (torch.float32, torch.complex128):
        ours = make(rank, (33,), dtype)
        dist.all_reduce(ours, op=dist.ReduceOp.AVG)
        same(ours, sum(everybody((33,), dtype)) / size)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags)
    same(flags, torch.tensor([True, True, False]))
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, op=dist.ReduceOp.PRODUCT)
    same(flags, torch.tensor([False, True, False]))
    with pytest.raises((ValueError, RuntimeError), match=r"complex|support"):
        dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX)
    with pytest.raises(TypeError, match="Boolean"):
        dist.all_reduce(flags, op=dist.ReduceOp.AVG)


def check_premul_sum() -> None:
    ours = make(dist.get_rank(), (100,), torch.float32)
    dist.all_reduce(ours, op=premul_sum(0.5))
    same(ours, sum(everybody((100,), torch.float32)) * 0.5)


def check_non_contiguous() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    transposed = make(rank, (5, 7), torch.float32).t()
    dist.all_reduce(transposed)
    same(transposed, sum(everybody((5, 7), torch.float32)).t())
    strided = torch.zeros(6, 4)[:, ::2]
    strided.copy_(make(rank, (6, 2), torch.float32))
    dist.broadcast(strided, src=1)
    same(strided.contiguous(), make(1, (6, 2), torch.float32))
    outputs = [torch.zeros(7, 5).t() for _ in range(size)]
    dist.all_gather(outputs, make(rank, (7, 5), torch.float32).t())
    for source in range(size):
        same(outputs[source].contiguous(), make(source, (7, 5), torch.float32).t().contiguous())


def check_broadcast() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in MOVABLE:
        for root, shape in enumerate(SHAPES):
            ours = make(rank, shape, dtype)
            dist.broadcast(ours, src=root % size)
            same(ours, make(root % size, shape, dtype))


def check_reduce() -> None:
    rank, gloo = dist.get_rank(), reference_group()
    for root in range(dist.get_world_size()):
        for shape in SHAPES:
            ours, theirs = make(rank, shape, torch.float64), make(rank, shape, torch.float64)
            dist.reduce(ours, dst=root)
            dist.reduce(theirs, dst=root, group=gloo)
            if rank == root:
                same(ours, theirs)
            else:
                same(ours, make(rank, shape, torch.float64))  # untouched


def check_all_gather() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in MOVABLE:
        for shape in SHAPES:
            mine = make(rank, shape, dtype)
            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for source in range(size):
                same(outputs[source], make(source, shape, dtype))
            flat = torch.zeros((size, *shape), dtype=dtype)
            dist.all_gather_into_tensor(flat.view(-1) if not shape else flat.view(-1, *shape[1:]), mine)
            same(flat, torch.stack(everybody(shape, dtype)))


def check_all_gather_unequal() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    outputs = [torch.zeros(3 * source) for source in range(size)]
    dist.all_gather(outputs, make(rank, (3 * rank,), torch.float32))
    for source in range(size):
        same(outputs[source], make(source, (3 * source,), torch.float32))


def check_gather_scatter() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        for shape in SHAPES:
            outputs = [torch.zeros(shape) for _ in range(size)] if rank == root else None
            dist.gather(make(rank, shape, torch.float32), outputs, dst=root)
            for source, output in enumerate(outputs or []):
                same(output, make(source, shape, torch.float32))
            inputs = (
                [make(10 * root + to, shape, torch.float32) for to in range(size)] if rank == root else None
            )
            received = torch.zeros(shape)
            dist.scatter(received, inputs, src=root)
            same(received, make(10 * root + rank, shape, torch.float32))


def check_reduce_scatter() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int64, torch.float16, torch.complex64):
        for rows in (0, 1, 5, 300):
            mine = make(rank, (size * rows, 3), dtype)
            expected = sum(everybody((size * rows, 3), dtype)).chunk(size)[rank] if rows else mine
            output = torch.zeros(rows, 3, dtype=dtype)
            dist.reduce_scatter_tensor(output, mine)
            same(output, expected)
            output.zero_()
            dist.reduce_scatter(
                output, [part.clone() for part in mine.chunk(size)] if rows else [mine] * size
            )
            same(output, expected)
    unequal = [make(rank, (to + 1,), torch.float32) for to in range(size)]
    output = torch.zeros(rank + 1)
    dist.reduce_scatter(output, unequal)
    same(output, sum(everybody((rank + 1,), torch.float32)))


def check_all_to_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16):
        mine = make(rank, (size * 4, 3), dtype)
        output = torch.zeros_like(mine)
        dist.all_to_all_single(output, mine)
        same(
            output,
            torch.cat([make(source, (size * 4, 3), dtype).chunk(size)[rank] for source in range(size)]),
        )
    # Rank i sends i + j rows to rank j.
    sends = [rank + to for to in range(size)]
    mine = make(rank, (sum(sends), 2), torch.float32)
    output = torch.zeros(sum(sends), 2)
    dist.all_to_all_single(output, mine, output_split_sizes=sends, input_split_sizes=sends)
    expected = []
    for source in range(size):
        rows = [source + to for to in range(size)]
        expected.append(make(source, (sum(rows), 2), torch.float32).split(rows)[rank])
    same(output, torch.cat(expected))
    outputs = [torch.zeros(source + rank, 2) for source in range(size)]
    dist.all_to_all(outputs, list(mine.split(sends)))
    same(torch.cat(outputs), torch.cat(expected))


def check_coalesced() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    shapes = [(3,), (0,), (1000,), (5, 5)]
    tensors = [make(rank, shape, torch.float32) for shape in shapes]
    work = dist.all_reduce_coalesced(tensors, async_op=True)
    work.wait()
    for tensor, shape in zip(tensors, shapes, strict=True):
        same(tensor, sum(everybody(shape, torch.float32)))
    with dist._coalescing_manager(async_ops=True) as pending:
        outputs = [torch.zeros(size * 4) for _ in range(3)]
        for index, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((4,), float(10 * index + rank)))
    pending.wait()
    for index, output in enumerate(outputs):
        same(output, torch.tensor([10.0 * index + source for source in range(size) for _ in range(4)]))
    with dist._coalescing_manager(async_ops=True) as pending:
        outputs = [torch.zeros(4) for _ in range(3)]
        for index, output in enumerate(outputs):
            dist.reduce_scatter_tensor(output, torch.full((size * 4,), float(index + rank)))
    pending.wait()
    for index, output in enumerate(outputs):
        same(output, torch.full((4,), float(sum(index + source for source in range(size)))))
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    work = dist.group.WORLD.allgather_coalesced(
        lists, [torch.full((2,), float(rank)), torch.full((3,), -float(rank))]
    )
    work.wait()
    for source in range(size):
        same(lists[source][0], torch.full((2,), float(source)))
        same(lists[source][1], torch.full((3,), -float(source)))


def check_objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "text": "x" * (100 * rank), "tensor": torch.arange(rank)}
    everything: list[object] = [None] * size
    dist.all_gather_object(everything, mine)
    assert [one["rank"] for one in everything] == list(range(size))  # type: ignore[index]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(mine, gathered, dst=1)
    if rank == 1:
        assert [len(one["text"]) for one in gathered or []] == [100 * source for source in range(size)]
    news = [mine, rank] if rank == 2 else [None, None]
    dist.broadcast_object_list(news, src=2)
    assert news[1] == 2
    share: list[object] = [None]
    dist.scatter_object_list(share, [f"for {to}" for to in range(size)] if rank == 3 else None, src=3)
    assert share == [f"for {rank}"]
    if rank == 0:
        dist.send_object_list([1, "two"], dst=1)
    elif rank == 1:
        received: list[object] = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == [1, "two"]


def check_sparse() -> None:
    """Ranks have different numbers of entries, one none; several under way at once."""
    rank, gloo = dist.get_rank(), reference_group()
    for shape, sparse_dims in (((10,), 1), ((6, 5), 2), ((6, 5, 3), 1)):
        for dtype in (torch.float32, torch.int64):
            dense = make(rank, shape, dtype)
            if rank == 2:
                dense.zero_()
            ours, theirs = dense.to_sparse(sparse_dims), dense.to_sparse(sparse_dims)
            more = [dense.to_sparse(sparse_dims) for _ in range(3)]
            works = [dist.all_reduce(one, async_op=True) for one in more]
            dist.all_reduce(ours)
            dist.all_reduce(theirs, group=gloo)
            same(ours.to_dense(), theirs.to_dense())
            for work, one in zip(works, more, strict=True):
                work.wait()
                same(one.to_dense(), theirs.to_dense())
                assert work.get_future().wait()[0].is_sparse
    with pytest.raises(RuntimeError, match="unsupported reduction"):
        dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.MAX)


def check_barrier() -> None:
    for _ in range(20):
        dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()


@pytest.mark.parametrize(
    "check",
    [
        check_all_reduce, check_all_reduce_bits, check_all_reduce_special, check_premul_sum, check_non_contiguous,
        check_broadcast, check_reduce, check_all_gather, check_all_gather_unequal, check_gather_scatter,
        check_reduce_scatter, check_all_to_all, check_coalesced, check_objects, check_sparse, check_barrier,
    ],
)  # fmt: skip
def test_collective(ranks: RankPool, check) -> None:
    ranks.run(check)
