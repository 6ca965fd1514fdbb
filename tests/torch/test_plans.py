"""Goal: a collective of one's own runs by name on tensors: waited for and not, in lanes of any order, in place, as the
reduction of a DDP hook; what does not fit, or differs between ranks, is told.

Method: four ranks, programs with postconditions of their own, results against the mathematics; a model that trains
with the plan in its hook against plain DDP over gloo.
"""

import random

import pytest
import small_training
import torch
import torch.distributed as dist
from rank_pool import RankPool, reference_group

import starling.torch
from programs.own import collected, everything, neighbours


def check_results() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group()
    for made in (neighbours(size), collected(size), everything(size)):
        starling.torch.add_plan(made, group=group)
    for count in (1, 777, 50_000):
        base = torch.arange(count, dtype=torch.float64)
        data, out = base + rank, torch.empty(count, dtype=torch.float64)
        assert starling.torch.run_plan("neighbours", data, out, group=group) is None
        assert torch.equal(out, 2 * base + rank + (rank + 1) % size)
        both = torch.empty(2 * count, dtype=torch.float64)
        with starling.torch.lane("collect"):
            starling.torch.run_plan("collected", data, both, group=group)
        total = size * base + size * (size - 1) // 2
        assert torch.equal(both, torch.cat([base + (rank - 1) % size, total]))
        starling.torch.run_plan("everything", data, group=group, op=dist.ReduceOp.SUM)
        assert torch.equal(data, total)
    strided = torch.arange(20, dtype=torch.int32).reshape(10, 2)[:, 0] + 0
    largest = torch.empty(10, 2, dtype=torch.int32)[:, 1]
    starling.torch.run_plan("neighbours", strided + rank, largest, group=group, op=dist.ReduceOp.MAX)
    assert torch.equal(largest, strided + max(rank, (rank + 1) % size))
    dist.destroy_process_group(group)


def test_results(ranks: RankPool) -> None:
    ranks.run(check_results)


def check_all_to_next() -> None:
    """The library's own needs no plan; many at once, in lanes of any order."""
    rank = dist.get_rank()
    group = dist.new_group()
    order = random.Random(rank).sample(range(6), 6)
    inputs = [torch.full((500 * lane + 1,), float(10 * lane + rank)) for lane in range(6)]
    outputs = [torch.full_like(tensor, -1.0) for tensor in inputs]
    works = []
    for lane in order:
        name = "all_to_next" if lane % 2 else "all_to_next_direct"
        with starling.torch.lane(f"next {lane}"):
            works.append(
                starling.torch.run_plan(name, inputs[lane], outputs[lane], group=group, async_op=True)
            )
    for work in works:
        assert work is not None
        work.wait()
    for lane, tensor in enumerate(outputs):
        wanted = float(10 * lane + rank - 1) if rank else -1.0
        assert torch.equal(tensor, torch.full_like(tensor, wanted))
    both = torch.arange(8).reshape(2, 4) + 100 * rank
    starling.torch.run_plan("all_to_next:2", both, group=group)  # in place
    assert torch.equal(both, torch.arange(8).reshape(2, 4) + 100 * max(rank - 1, 0))
    with pytest.raises(RuntimeError, match="takes 2 nodes or more, equally large, which 4 ranks cannot be"):
        starling.torch.run_plan("all_to_next:3", both, group=group)
    with pytest.raises(RuntimeError, match="equally long, but 8 elements in 1 groups go in, and 9 in 1"):
        starling.torch.run_plan("all_to_next", both, torch.empty(9, dtype=both.dtype), group=group)
    dist.destroy_process_group(group)


def test_all_to_next_needs_no_plan(ranks: RankPool) -> None:
    ranks.run(check_all_to_next)


def check_disorder(negotiate: bool) -> None:
    """Each rank issues the lanes in an order of its own, and waits for nothing before all are issued."""
    rank, size = dist.get_rank(), dist.get_world_size()
    options = starling.torch.Options(negotiate=True) if negotiate else None
    group = dist.new_group(pg_options=options)
    starling.torch.add_plan(neighbours(size), group=group)
    order = list(range(6))
    random.Random(rank).shuffle(order)
    inputs = [torch.full((1000 * (lane + 1),), float(rank + lane)) for lane in range(6)]
    outputs = [torch.empty_like(tensor) for tensor in inputs]
    works = []
    for lane in order:
        with starling.torch.lane(f"plan {lane}", priority=lane):
            works.append(
                starling.torch.run_plan("neighbours", inputs[lane], outputs[lane], group=group, async_op=True)
            )
    for work in works:
        assert work is not None
        work.wait()
    for lane, tensor in enumerate(outputs):
        assert torch.equal(tensor, torch.full_like(tensor, float(rank + (rank + 1) % size + 2 * lane)))
    dist.destroy_process_group(group)


@pytest.mark.parametrize("negotiate", [False, True])
def test_lanes_in_any_order(ranks: RankPool, negotiate: bool) -> None:
    ranks.run(check_disorder, negotiate)


def planned_hook(group: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket with the plan, in a lane of the bucket's own."""
    tensor = bucket.buffer().div_(dist.get_world_size())
    with starling.torch.lane(f"bucket {bucket.index()}"):
        work = starling.torch.run_plan("everything", tensor, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def check_training() -> None:
    group = dist.new_group()
    starling.torch.add_plan(everything(dist.get_world_size()), group=group)
    ours = small_training.losses(group, lambda parallel: parallel.register_comm_hook(group, planned_hook))
    small_training.assert_same(ours, small_training.losses(reference_group()))
    dist.destroy_process_group(group)


def test_ddp_trains_with_a_plan_in_its_hook(ranks: RankPool) -> None:
    ranks.run(check_training)


def check_misuse() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group()
    starling.torch.add_plan(collected(size), group=group)
    data = torch.ones(64)
    with pytest.raises(RuntimeError, match="no plan named 'unheard' was added to this group"):
        starling.torch.run_plan("unheard", data, data, group=group)
    with pytest.raises(RuntimeError, match="65 elements does not fall into the plan's 2 equal groups"):
        starling.torch.run_plan("collected", data, torch.empty(65), group=group)
    with pytest.raises(RuntimeError, match="equally long, but 64 elements in 1 groups go in, and 64 in 2"):
        starling.torch.run_plan("collected", data, torch.empty(64), group=group)
    with pytest.raises(RuntimeError):
        starling.torch.run_plan("collected", data, torch.empty(128, dtype=torch.float64), group=group)
    # Ranks that disagree are told, all of them; other lanes go on.
    count = 64 if rank else 32
    with starling.torch.lane("mismatched"), pytest.raises(dist.DistBackendError, match="custom"):
        starling.torch.run_plan("collected", torch.ones(count), torch.empty(2 * count), group=group)
    out = torch.empty(128)
    starling.torch.run_plan("collected", data, out, group=group)
    assert torch.equal(out, torch.cat([torch.ones(64), torch.full((64,), float(size))]))
    dist.destroy_process_group(group)


def test_misuse_and_mismatch_are_told(ranks: RankPool) -> None:
    ranks.run(check_misuse)
