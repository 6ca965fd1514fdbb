"""Goal: a Work behaves as torch.distributed promises: futures with values and errors, bounded waits, results,
sequence numbers, durations, the profiler. Method: two ranks, one of which is late or wrong on purpose."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool


def tell(what: str) -> None:
    """Through the store, which minds no collective."""
    dist.distributed_c10d._get_default_store().set(f"test of works: {what}", "")


def wait_until_told(what: str) -> None:
    dist.distributed_c10d._get_default_store().wait([f"test of works: {what}"], timedelta(seconds=200))


def check_future_value() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for early in (True, False):
        work = dist.all_reduce(torch.full((5,), float(rank)), async_op=True)
        if not early:
            work.wait()
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        torch.testing.assert_close(doubled.wait(), torch.full((5,), float(size * (size - 1))))


def check_chained_collectives() -> None:
    """A callback that waits for another collective blocks neither the library nor other callbacks."""

    def again(future: torch.futures.Future) -> torch.Tensor:
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return tensor

    # Both ranks run the callbacks one after the other, as the chained collectives share a lane.
    for _ in range(3):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        result = work.get_future().then(again).wait()
        torch.testing.assert_close(result, torch.full((4,), float(dist.get_world_size() ** 2)))


def check_completion() -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    assert work.is_completed()
    assert work.is_success()
    torch.testing.assert_close(work.result()[0], torch.full((3,), float(dist.get_world_size())))
    assert work._get_duration() > 0
    assert work.wait()  # again is harmless


def check_wait_is_bounded() -> None:
    """wait(timeout) gives up; the operation goes on and finishes when the late rank comes."""
    total = torch.ones(3)
    if dist.get_rank() == 0:
        work = dist.all_reduce(total, async_op=True)
        with pytest.raises(RuntimeError, match="Operation timed out"):
            work.wait(timedelta(milliseconds=300))
        tell("gave up")
        work.wait()
    else:
        wait_until_told("gave up")
        dist.all_reduce(total)
    assert total.tolist() == [2.0] * 3


def check_wait_releases_the_gil() -> None:
    """Rank 0 waits; rank 1 comes when another thread of rank 0 has run meanwhile."""
    if dist.get_rank() != 0:
        wait_until_told("ticked")
        dist.barrier()
        return
    waiting = threading.Event()

    def tick() -> None:
        waiting.wait()
        for _ in range(5):
            threading.Event().wait(0.02)
        tell("ticked")

    ticker = threading.Thread(target=tick)
    ticker.start()
    waiting.set()
    dist.barrier()
    ticker.join()


def check_operation_timeout() -> None:
    """An operation that a rank never joins fails within its timeout, in wait() and in the future."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        future = work.get_future()
        with pytest.raises(dist.DistBackendError, match="did not finish"):
            work.wait()
        assert work.is_completed() and not work.is_success()
        with pytest.raises(RuntimeError, match="did not finish"):
            future.wait()
        with pytest.raises(RuntimeError, match="did not finish"):
            work.get_future().value()
        assert "did not finish" in str(work.exception())
    dist.barrier()


def check_sequence_numbers() -> None:
    # ProcessGroup itself asks only its built-in backends.
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = group._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    assert group._get_sequence_number_for_group() == before + 3
    numbers: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(numbers, before)
    assert len(set(numbers)) == 1


def check_profiler() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.barrier()
    names = {event.name for event in profile.events()}
    assert {"starling:all_reduce", "starling:barrier"} <= names


def check_misuse() -> None:
    with pytest.raises(RuntimeError, match="one type"):
        dist.all_gather_into_tensor(torch.zeros(2 * dist.get_world_size()), torch.zeros(2, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="world_size"):
        dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2))
    with pytest.raises(RuntimeError, match="does not compute"):
        dist.all_reduce(torch.zeros(3).to(torch.float8_e4m3fn))
    with pytest.raises((RuntimeError, ValueError), match="nonnegative"):
        dist.group.WORLD.send([torch.zeros(1)], 1 - dist.get_rank(), -3)
    dist.barrier()


@pytest.mark.parametrize(
    "check",
    [
        check_future_value, check_chained_collectives, check_completion, check_wait_is_bounded,
        check_wait_releases_the_gil, check_operation_timeout, check_sequence_numbers, check_profiler, check_misuse,
    ],
)  # fmt: skip
def test_work(two_ranks: RankPool, check) -> None:
    two_ranks.run(check)
