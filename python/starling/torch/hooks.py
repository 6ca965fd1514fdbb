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
class _HeldBucket:
    index: int
    gradients: torch.Tensor
    result: torch.futures.Future[torch.Tensor]


@dataclass
class ShuffledBuckets:
    """State of ``shuffled_ddp_hook``: launches the buckets of a step in a random order of this rank's own.

    Buckets are held back until the last is ready; then they are launched in an order drawn from ``seed``, with a
    device synchronization after every ``synchronize_every``-th launch (0: never). With a library whose collectives
    do not yield such a program deadlocks.
    """

    seed: int
    synchronize_every: int = 0
    group: dist.ProcessGroup | None = None
    synchronize: Callable[[], None] = synchronize
    launched: list[list[int]] = field(default_factory=list)  # for each step, the order of the buckets
    _held: list[_HeldBucket] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def launch(self) -> None:
        """Launches what is held back."""
        held, self._held = self._held, []
        self._random.shuffle(held)
        self.launched.append([bucket.index for bucket in held])
        for count, bucket in enumerate(held, start=1):
            work = _average(self.group, bucket.index, bucket.gradients)
            work.get_future().then(_passes_on(bucket.result))
            if self.synchronize_every and count % self.synchronize_every == 0:
                self.synchronize()


def shuffled_ddp_hook(state: ShuffledBuckets, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """``ddp_hook`` that launches in a random order: ``register_comm_hook(ShuffledBuckets(seed=rank), ...)``."""
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    state._held.append(_HeldBucket(bucket.index(), bucket.buffer(), result))
    if bucket.is_last():
        state.launch()
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
