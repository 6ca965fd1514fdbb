"""Goal: groups come, go and fail as torch.distributed promises. Method: subgroups, splits, mismatched and missing
ranks, abort and a second life after destroy, on four ranks; each failure must name its cause within a bound."""

import copy
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool
from torch._C._distributed_c10d import ErrorType

import starling.torch


def check_subgroups() -> None:
    rank = dist.get_rank()
    low, high, mixed = dist.new_group([0, 1]), dist.new_group([2, 3]), dist.new_group([3, 0, 2])
    for group, members in ((low, [0, 1]), (high, [2, 3]), (mixed, [0, 2, 3])):
        if rank not in members:
            continue
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=group)
        assert total.item() == sum(members)
        news = torch.tensor([float(rank)])
        dist.broadcast(news, src=members[-1], group=group)
        assert news.item() == members[-1]
        gathered: list[object] = [None] * len(members)
        dist.all_gather_object(gathered, rank, group=group)
        assert gathered == members
    dist.barrier()
    for group, members in ((low, [0, 1]), (high, [2, 3]), (mixed, [0, 2, 3])):
        if rank in members:
            dist.destroy_process_group(group)
    dist.barrier()


def check_split() -> None:
    world = dist.group.WORLD
    rank = dist.get_rank()
    assert world._get_backend(torch.device("cpu")).supports_splitting
    child = world.split_group([1, 3], timedelta(seconds=100), None, "pair", "two of four")
    if rank in (1, 3):
        assert child.size() == 2
        total = torch.tensor([float(rank)])
        child.allreduce([total]).wait()
        assert total.item() == 4
        child.shutdown()
    else:
        assert child is None
    dist.barrier()


def check_holding() -> None:
    """The option is the group's, goes along in a split, and leaves CPU tensors as they are."""
    options = starling.torch.Options(hold_streams=True)
    group = dist.new_group(pg_options=options)
    own = group._get_backend(torch.device("cpu"))
    assert own.options.hold_streams and not starling.torch.Options().hold_streams
    works = []
    for lane in (None, "named"):
        tensor = torch.ones(100)
        with starling.torch.lane(lane):
            works.append((tensor, dist.all_reduce(tensor, group=group, async_op=True)))
    for tensor, work in works:
        work.wait()
        assert torch.equal(tensor, torch.full((100,), float(dist.get_world_size())))
    child = group.split_group([1, 3], timedelta(seconds=100), None, "holding", "two of four")
    if child is not None:
        assert child._get_backend(torch.device("cpu")).options.hold_streams
        child.shutdown()
    dist.barrier()
    dist.destroy_process_group(group)


def test_options_of_held_streams(ranks: RankPool, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks.run(check_holding)
    for text, held in (("1", True), ("0", False)):
        monkeypatch.setenv("STARLING_TORCH_HOLD_STREAMS", text)
        assert starling.torch.Options().hold_streams is held
        assert starling.torch.Options(hold_streams=not held).hold_streams is not held
        assert copy.deepcopy(starling.torch.Options()).hold_streams is held


def check_many_groups() -> None:
    """Groups that share the context interleave their collectives freely."""
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group() for _ in range(5)]
    order = sorted(range(5), key=lambda index: (index * 7 + rank * 3) % 5)  # each rank its own
    tensors = [torch.full((1000,), float(rank + index)) for index in range(5)]
    works = [dist.all_reduce(tensors[index], group=groups[index], async_op=True) for index in order]
    for work in works:
        work.wait()
    for index in range(5):
        assert torch.equal(tensors[index], torch.full((1000,), float(sum(range(size)) + size * index)))
    for group in groups:
        dist.destroy_process_group(group)


def check_monitored_barrier() -> None:
    world = dist.group.WORLD
    assert world._get_backend(torch.device("cpu")).name() == "starling"
    world.monitored_barrier(timeout=timedelta(seconds=100))
    rank = dist.get_rank()
    # Ranks 1 and 3 are not at this one. Rank 0 finds rank 2 there whenever it comes: it asks for rank 1 first, and
    # looks once more for every rank when its time is up.
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms"):
            world.monitored_barrier(timeout=timedelta(seconds=3), wait_all_ranks=True)
    elif rank == 2:
        with pytest.raises(RuntimeError, match=r"Rank 2 successfully reached monitoredBarrier.*Ranks 1, 3"):
            world.monitored_barrier(timeout=timedelta(seconds=100), wait_all_ranks=True)
    dist.barrier()


def check_mismatch() -> None:
    """Ranks that call different things in one place of a lane are told so; the other groups live on."""
    group = dist.new_group()
    rank = dist.get_rank()
    with pytest.raises(RuntimeError):
        if rank == 2:
            dist.all_reduce(torch.ones(5), group=group)
        else:
            dist.all_reduce(torch.ones(4), group=group)
        dist.all_reduce(torch.ones(4), group=group)  # who had finished already learns of it here
    dist.barrier()


def check_names_in_errors() -> None:
    """Errors call ranks what the program calls them, also in a group where they have other numbers."""
    group = dist.new_group([1, 3])
    rank = dist.get_rank()
    if rank in (1, 3):
        with pytest.raises(dist.DistBackendError) as caught:
            dist.broadcast(torch.ones(4 + rank), src=3, group=group)
            dist.broadcast(torch.ones(4), src=3, group=group)  # who had finished already learns of it here
        text = str(caught.value)
        for other in (1, 3):
            assert f"rank {other} calls broadcast of {4 + other} float32, root rank 3" in text
        assert "rank 0" not in text
    dist.barrier()


def check_abort() -> None:
    """The others are told of the abort, and not that their time was up."""
    group = dist.new_group()
    dist.barrier(group=group)
    starling.torch.check(group)
    assert group._get_backend(torch.device("cpu")).get_error() == ErrorType.SUCCESS
    if dist.get_rank() == 0:
        for rank in range(1, dist.get_world_size()):
            dist.recv(torch.zeros(1), rank)  # its all_reduce is under way
        dist.distributed_c10d._abort_process_group(group)
    else:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        dist.send(torch.ones(1), 0)
        with pytest.raises(RuntimeError, match="abort"):
            work.wait()
        for _ in range(2):  # what has failed stays so
            with pytest.raises(dist.DistBackendError, match="abort"):
                starling.torch.check(group)
        assert group._get_backend(torch.device("cpu")).get_error() == ErrorType.COMM_ERROR
        starling.torch.check()  # of another group nothing has
        dist.destroy_process_group(group)
    dist.barrier()


def check_after_shutdown() -> None:
    group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group)
    group.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        group.allreduce([torch.ones(1)])
    with pytest.raises(RuntimeError, match="shut down"):
        starling.torch.check(group)
    dist.destroy_process_group(group)
    dist.barrier()


def check_set_timeout() -> None:
    """Only rank 0 calls; the others wait for it elsewhere."""
    group = dist.new_group()
    group.set_timeout(timedelta(seconds=1))
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match="did not finish within 1 s"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def check_groups_without_starling() -> None:
    """Where nothing can be asked, a text says why."""
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(RuntimeError, match="another backend"):
        starling.torch.check(gloo)
    part = dist.new_group([0])
    if dist.get_rank() == 0:
        starling.torch.check(part)
    else:
        with pytest.raises(RuntimeError, match="not in the group"):
            starling.torch.check(part)
    dist.barrier()


@pytest.mark.parametrize(
    "check",
    [
        check_subgroups, check_split, check_many_groups, check_monitored_barrier, check_mismatch,
        check_names_in_errors, check_abort, check_after_shutdown, check_set_timeout,
        check_groups_without_starling,
    ],
)  # fmt: skip
def test_group(ranks: RankPool, check) -> None:
    ranks.run(check)


def live_again(store_path: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    for life in range(3):
        store = dist.PrefixStore(f"life{life}", dist.FileStore(store_path, size))
        dist.init_process_group("starling", store=store, rank=rank, world_size=size)
        total = torch.tensor([1.0])
        dist.all_reduce(total)
        assert total.item() == size
        dist.destroy_process_group()


def test_second_life(tmp_path) -> None:
    """destroy_process_group() and init_process_group() again, in the same processes."""
    pool = RankPool(2)
    pool.run(live_again, str(tmp_path / "store"))
    pool.close()
