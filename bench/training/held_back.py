"""DDP's buckets held back and shuffled in one order of all ranks, which every library can run.

Annotations are no strings here: DDP looks at those of its hooks.
"""

import random
from typing import Any

import torch
import torch.distributed as dist


class HeldBack:
    """What holding buckets back costs by itself: as starling.torch.ShuffledBuckets, in one order of all ranks."""

    def __init__(self, group: Any, seed: int, held_back: int) -> None:
        self.group, self.held_back = group, held_back
        self.held: list[tuple[torch.Tensor, Any]] = []
        self.random = random.Random(seed)

    def launch_one(self) -> None:
        gradients, result = self.held.pop(self.random.randrange(len(self.held)))
        gradients.div_(dist.get_world_size(self.group))
        work: Any = dist.all_reduce(gradients, group=self.group, async_op=True)
        work.get_future().then(lambda done: result.set_result(done.value()[0]))


def launch_held_back(state: HeldBack, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    gradients = bucket.buffer()
    result: Any = torch.futures.Future(devices=[gradients.device] if gradients.is_cuda else None)
    state.held.append((gradients, result))
    while state.held and (bucket.is_last() or 0 < state.held_back <= len(state.held)):
        state.launch_one()
    return result
