"""DDP communication hooks that give every gradient bucket a lane of its own."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from starling.torch.device import synchronize
from starling.torch.lanes import lane


def ddp_hook(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in lane ``ddp/<index>``: buckets may become ready in any order on each rank.

    ``model.register_comm_hook(None, starling.torch.ddp_hook)``; the state is the process group, None the default.
    Later buckets have the higher priority: they hold the first layers, which the next forward pass needs first.
    """
    return _average(group, bucket.index(), bucket.buffer()).get_future().then(_first)


@dataclass
class _Bucket:
    index: int
    gradients: torch.Tensor
    result: torch.futures.Future[torch.Tensor]


@dataclass
class ShuffledBuckets:
    """State of ``shuffled_ddp_hook``: launches the buckets of a step in a random order of this rank's own.

    Where ``held_back`` buckets are ready one is drawn and launched, and runs beside the backward pass; 0: buckets are
    held back until the last is ready, and none does. ``seed`` gives the order. After every
    ``synchronize_every``-th launch (0: never) comes a device synchronization. With a library whose collectives do not
    yield such a program deadlocks.
    """

    seed: int
    synchronize_every: int = 0
    group: dist.ProcessGroup | None = None
    synchronize: Callable[[], None] = synchronize
    held_back: int = 0
    launched: list[list[int]] = field(default_factory=list)  # for each step, the order of the buckets
    _held: list[_Bucket] = field(default_factory=list)
    _under_way: list[tuple[Any, _Bucket]] = field(default_factory=list)
    _launches: list[int] = field(default_factory=list)  # of this step
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def take(self, bucket: _Bucket, is_last: bool) -> None:
        """Holds a bucket back, and launches what need not be held any more; all, if it is the step's last."""
        self._held.append(bucket)
        while self._held and (is_last or 0 < self.held_back <= len(self._held)):
            self._launch_one()
        if is_last:
            self.launched.append(self._launches)
            self._launches = []
            self._stand()

    def _launch_one(self) -> None:
        bucket = self._held.pop(self._random.randrange(len(self._held)))
        work = _average(self.group, bucket.index, bucket.gradients)
        self._launches.append(bucket.index)
        if bucket.gradients.is_cuda and not self.synchronize_every:
            self._under_way.append((work, bucket))
        else:
            work.get_future().then(_passes_on(bucket.result))
        if self.synchronize_every and len(self._launches) % self.synchronize_every == 0:
            self.synchronize()

    def _stand(self) -> None:
        """All are launched, so the backward pass's stream may stand until they are complete, and no thread has to.

        It has nothing more to compute before. A stream of its own would stand from this call on, a step ahead of the
        GPU, and beside a second stream that stands each kernel takes longer (docs/GPU_PROBE.md). Before the last launch
        a device synchronization would wait for that stream, and so for peers that wait for this rank's next launch.
        """
        under_way, self._under_way = self._under_way, []
        for work, bucket in under_way:
            try:
                work.wait()
                bucket.result.set_result(bucket.gradients)
            except Exception as error:
                bucket.result.set_exception(error)


def shuffled_ddp_hook(state: ShuffledBuckets, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """``ddp_hook`` that launches in a random order: ``register_comm_hook(ShuffledBuckets(seed=rank), ...)``."""
    gradients = bucket.buffer()
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future(
        devices=[gradients.device] if gradients.is_cuda else None
    )
    state.take(_Bucket(bucket.index(), gradients, result), bucket.is_last())
    return result


def _average(group: dist.ProcessGroup | None, index: int, gradients: torch.Tensor) -> Any:
    group = group if group is not None else dist.group.WORLD
    gradients.div_(dist.get_world_size(group))
    with lane(f"ddp/{index}", priority=index):
        return dist.all_reduce(gradients, group=group, async_op=True)


def _first(future: torch.futures.Future[Any]) -> torch.Tensor:
    tensor: torch.Tensor = future.value()[0]
    return tensor


def _passes_on(
    result: torch.futures.Future[torch.Tensor],
) -> Callable[[torch.futures.Future[Any]], None]:
    def pass_on(future: torch.futures.Future[Any]) -> None:
        try:
            result.set_result(_first(future))
        except Exception as error:
            result.set_exception(error)

    return pass_on
