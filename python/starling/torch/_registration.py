"""Makes ``init_process_group("starling")`` find the backend."""

import atexit
import contextlib
import copy
import os
from typing import Any

import torch
import torch.distributed as dist

from starling.comm import SM_FREE, Communicator
from starling.errors import InvalidArgumentError, StarlingError
from starling.torch import _adapter

BACKEND_NAME = "starling"
# Devices whose tensors the backend takes.
DEVICES = ["cpu", "cuda"] if torch.version.cuda else ["cpu"]


def Options(  # noqa: N802 - reads as a class, as torch's own options do
    *,
    negotiate: bool | None = None,
    sm_free: bool | str | None = None,
    hold_streams: bool | None = None,
) -> Any:
    """Options for ``pg_options`` of ``init_process_group`` and ``new_group``.

    negotiate: an operation is submitted only when all ranks have issued it (OCCL section 4); must be the same on
        all ranks. None: the setting ``STARLING_TORCH_NEGOTIATE``, off by default.
    sm_free: whether copy engines move messages between GPUs, at no cost in multiprocessors: True, False, or "auto" for
        those for which it is faster; the least willing rank decides. None: the setting ``STARLING_SM_FREE``.
    hold_streams: an asynchronous operation of CUDA holds a stream of the group until it is complete, as NCCL's do, so
        that a device synchronization waits for it. Each rank for itself. None: the setting
        ``STARLING_TORCH_HOLD_STREAMS``, off by default.
    """
    if sm_free not in SM_FREE:
        raise InvalidArgumentError(f"sm_free is {sm_free!r}; pass True, False, 'auto' or None")
    return _adapter.load().Options(
        negotiate=_chosen(negotiate, "STARLING_TORCH_NEGOTIATE"),
        sm_free=SM_FREE.index(sm_free),
        hold_streams=_chosen(hold_streams, "STARLING_TORCH_HOLD_STREAMS"),
    )


def _chosen(value: bool | None, setting: str) -> bool:
    return os.environ.get(setting, "0") == "1" if value is None else value


def premul_sum(factor: float) -> Any:
    """The reduction "multiply by ``factor``, then sum", for all_reduce, reduce and reduce_scatter."""
    return _adapter.load().premul_sum(factor)


def register() -> None:
    """Registers the backend with torch.distributed; again is harmless."""
    if not dist.is_available() or BACKEND_NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=DEVICES)
    atexit.register(_leave)


def autoload() -> None:
    """Entry point ``[torch.backends]``: called by ``import torch``, so that no import of ours is needed."""
    register()


def _create(group: Any, backend_options: Any) -> Any:
    """A backend for one group; collective over its ranks."""
    try:
        adapter = _adapter.load()
    except Exception as error:  # the other ranks would wait for this one
        with contextlib.suppress(StarlingError):
            Communicator.decline(
                str(error),
                rank=group.group_rank,
                size=group.group_size,
                name=group.group_id,
                store=group.store,
            )
        raise
    if backend_options is None:
        options = Options()
    elif isinstance(backend_options, adapter.Options):
        options = copy.deepcopy(backend_options)  # one object may be passed for several groups
    else:
        raise TypeError(
            f"backend starling takes pg_options of type starling.torch.Options, not {type(backend_options).__name__}"
        )
    options._describe_group(group.group_id, list(group.global_ranks_in_group), group.timeout)
    return adapter.create_backend(group.store, group.group_rank, group.group_size, options)


def _leave() -> None:
    if _adapter.loaded():
        _adapter.load().close()
