"""A process group's backend, and what has failed in it."""

from typing import Any

import torch
import torch.distributed as dist


def backend_of(group: Any) -> Any:
    """The backend of a group, or of all ranks (None), for tensors of the CPU and of CUDA."""
    owner = dist.group.WORLD if group is None else group
    return owner._get_backend(torch.device("cpu"))


def check(group: Any = None) -> None:
    """Raises the first error of a group (None: of all ranks), if there was one.

    For programs that replay CUDA graphs: of a rank that died or did not come the streams of the others go on, no
    collective of the graph moves anything any more, and a replay cannot raise. Call it where results have to be right
    (behind the synchronization of a step, before a checkpoint); it looks at this rank's memory, from any thread, and
    waits for nothing.
    Eager operations raise their errors by themselves.

    Raises torch.distributed.DistBackendError, which names the rank, lane and operation, and RuntimeError for a group
    that does not exist.
    """
    if group is None and not dist.is_initialized():
        raise RuntimeError(
            "starling: there is no process group; call torch.distributed.init_process_group first"
        )
    backend_of(group)._check_error()
