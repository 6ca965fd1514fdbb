"""A process group's backend, and what has failed in it."""

from typing import Any

import torch
import torch.distributed as dist

NO_GROUP = "starling: there is no process group; call torch.distributed.init_process_group first"
NOT_A_MEMBER = "starling: this rank is not in the group; ask on its members alone"
ANOTHER = "starling: the group has another backend; make it with init_process_group('starling')"


def backend_of(group: Any) -> Any:
    """Starling's backend of a group, or of all ranks (None). Raises RuntimeError where there is none."""
    owner = dist.group.WORLD if group is None else group
    if owner is None:
        raise RuntimeError(NO_GROUP)
    if owner is dist.GroupMember.NON_GROUP_MEMBER or isinstance(owner, int):
        raise RuntimeError(NOT_A_MEMBER)
    for device in ("cpu", "cuda"):  # "cpu:gloo,cuda:starling" has it for one of them
        try:
            backend = owner._get_backend(torch.device(device))
        except RuntimeError:  # the group has none for such tensors
            continue
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        if hasattr(backend, "_check_error"):
            return backend
    raise RuntimeError(ANOTHER)


def check(group: Any = None) -> None:
    """Raises an error of a group (None: of all ranks), if there was one.

    For programs that replay CUDA graphs: of a rank that died or did not come the streams of the others go on, no
    collective of the graph moves anything any more, and a replay cannot raise. Call it where results have to be right
    (behind the synchronization of a step, before a checkpoint); it looks at this rank's memory, from any thread, and
    waits for no other rank. What has failed stays so, also when the graph is gone.
    Ranks learn of an error at different times: before a checkpoint, let an eager barrier follow. Eager operations raise
    their errors by themselves.

    Raises torch.distributed.DistBackendError, which names the rank, lane and operation, and RuntimeError for a group
    that does not exist (any more), or has another backend.
    """
    backend_of(group)._check_error()
