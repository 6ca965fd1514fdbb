"""Goal: operations of different lanes need no common order, and the DDP hooks train as the default does. Method: four
ranks issue named collectives each in its own random order, with device synchronizations between them (the program
that hangs other libraries), and train a model with each hook against plain DDP over gloo."""

import random

import pytest
import small_training
import torch
import torch.distributed as dist
from rank_pool import RankPool, reference_group
from starling.plans import program
from torch.nn.parallel import DistributedDataParallel

import starling.cpu
import starling.torch
from starling import ir


def check_disorder(synchronize_every: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    own_order = random.Random(rank)
    sizes = [64, 36864, 512, 256, 16384, 36864, 131072, 262144]
    for iteration in range(10):
        order = list(range(len(sizes)))
        own_order.shuffle(order)
        tensors = [torch.full((count,), float(rank + lane + iteration)) for lane, count in enumerate(sizes)]
        works = []
        for issued, lane in enumerate(order, start=1):
            with starling.torch.lane(f"collective {lane}", priority=lane):
                works.append(dist.all_reduce(tensors[lane], async_op=True))
            if synchronize_every and issued % synchronize_every == 0:
                starling.cpu.synchronize()
        for work in works:
            work.wait()
        for lane, tensor in enumerate(tensors):
            expected = float(sum(range(size)) + size * (lane + iteration))
            assert torch.equal(tensor, torch.full_like(tensor, expected))


@pytest.mark.parametrize("synchronize_every", [0, 1, 2, 4])
def test_any_order_across_lanes(ranks: RankPool, synchronize_every: int) -> None:
    ranks.run(check_disorder, synchronize_every)


def check_scopes() -> None:
    """Scopes nest, end with an exception, and matter to every kind of collective; the default lane keeps its order."""
    rank = dist.get_rank()
    even = rank % 2 == 0

    def gather() -> torch.Tensor:
        output = torch.zeros(dist.get_world_size())
        with starling.torch.lane("outer"), starling.torch.lane("inner"):
            dist.all_gather_into_tensor(output, torch.tensor([float(rank)]))
        return output

    def reduce() -> torch.Tensor:
        total = torch.ones(1)
        with starling.torch.lane("other"):
            work = dist.all_reduce(total, async_op=True)
        works.append(work)
        return total

    works: list = []
    total = reduce() if even else None
    output = gather()
    total = total if total is not None else reduce()
    works[0].wait()
    assert output.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert total.item() == 4
    with pytest.raises(ZeroDivisionError), starling.torch.lane("left"):
        1 / 0  # noqa: B018
    dist.barrier()


def test_scopes(ranks: RankPool) -> None:
    ranks.run(check_scopes)


def check_hook(hook: str | None) -> None:
    held_back = 2 if hook == "held back" else 0
    state = starling.torch.ShuffledBuckets(seed=dist.get_rank(), synchronize_every=1, held_back=held_back)
    readied: list[int] = []  # the last step's buckets, and how many had been launched by then

    def shuffled(
        state: starling.torch.ShuffledBuckets, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        result = starling.torch.shuffled_ddp_hook(state, bucket)
        readied.append(len(state._held))
        if bucket.is_last():
            kept = [min(count, held_back - 1 if held_back else count) for count in range(1, len(readied))]
            assert readied == [*kept, 0]
            readied.clear()
        return result

    def register(parallel: DistributedDataParallel) -> None:
        if hook == "lanes":
            parallel.register_comm_hook(None, starling.torch.ddp_hook)
        if hook in ("shuffled", "held back"):
            parallel.register_comm_hook(state, shuffled)

    small_training.assert_same(
        small_training.losses(dist.group.WORLD, register), small_training.losses(reference_group())
    )
    if hook in ("shuffled", "held back"):
        assert len(state.launched) == small_training.STEPS
        assert len(state.launched[-1]) > 2, "too few buckets: nothing was shuffled"


@pytest.mark.parametrize("hook", [None, "lanes", "shuffled", "held back"])
def test_ddp_trains_as_over_gloo(ranks: RankPool, hook: str | None) -> None:
    ranks.run(check_hook, hook)


def check_statistics() -> None:
    counters = starling.torch.statistics()
    before = counters["completions"]
    dist.all_reduce(torch.ones(10))
    assert starling.torch.statistics()["completions"] > before
    assert {"parks", "resumes", "quits_drained", "launches", "lane_bytes"} <= counters.keys()
    with starling.torch.lane("traced"):
        dist.all_reduce(torch.ones(10))
    records = starling.torch.trace()
    assert records == sorted(records, key=lambda record: record.time_ns)
    assert any("traced" in record.lane for record in records)


def test_statistics_and_trace(ranks: RankPool) -> None:
    ranks.run(check_statistics)


def check_negotiation() -> None:
    """Operations that wait until all ranks have issued them give the same results, in any order across lanes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(pg_options=starling.torch.Options(negotiate=True))
    order = list(range(6))
    random.Random(rank).shuffle(order)
    tensors = [torch.full((1000 * (lane + 1),), float(rank + lane)) for lane in range(6)]
    works = []
    for lane in order:
        with starling.torch.lane(f"collective {lane}"):
            works.append(dist.all_reduce(tensors[lane], group=group, async_op=True))
    for work in works:
        work.wait()
    for lane, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full_like(tensor, float(sum(range(size)) + size * lane)))
    for root in range(size):  # the default lane keeps its order
        news = torch.tensor([float(rank)])
        dist.broadcast(news, src=root, group=group)
        assert news.item() == root
    dist.destroy_process_group(group)


def test_negotiation(ranks: RankPool) -> None:
    ranks.run(check_negotiation)


def check_plans() -> None:
    size = dist.get_world_size()
    starling.torch.add_plan(program("all_reduce", "halving_doubling", size))
    starling.torch.add_plan(program("all_gather", "ring", size), sizes=(1, 1 << 20))
    for count in (1, 777, 50_000):
        tensor = torch.arange(count, dtype=torch.float64) + dist.get_rank()
        with (
            starling.torch.lane("own", algorithm="halving_doubling"),
            pytest.raises(RuntimeError, match="in place"),
        ):
            dist.all_reduce(tensor)  # PyTorch reduces in place, the plan does not
    starling.torch.add_plan(program("all_reduce", "halving_doubling", size, in_place=True))
    for count in (1, 777, 50_000):
        tensor = torch.arange(count, dtype=torch.float64) + dist.get_rank()
        with starling.torch.lane("own", algorithm="halving_doubling"):
            dist.all_reduce(tensor)
        assert torch.equal(tensor, size * torch.arange(count, dtype=torch.float64) + size * (size - 1) // 2)
        gathered = torch.empty(size * count, dtype=torch.float64)
        dist.all_gather_into_tensor(gathered, tensor)
        assert torch.equal(gathered, tensor.repeat(size))
    with pytest.raises(RuntimeError, match="is refused"):
        starling.torch.add_plan(
            ir.to_text(program("all_reduce", "ring", size).compile()).replace(" final", "", 1)
        )


def test_plans_of_one_s_own(ranks: RankPool) -> None:
    ranks.run(check_plans)
