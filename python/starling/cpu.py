"""The CPU machine as a device of this process."""

from __future__ import annotations

import sys

from starling.context import live_contexts

__all__ = ["synchronize"]


def synchronize() -> None:
    """Device synchronization of all contexts of this process, PyTorch's among them.

    Returns when nothing that was resident at the call is resident any more, as ``torch.cuda.synchronize()``. It
    does not wait for parked operations: the daemons quit under it and are started again.
    """
    for context in live_contexts():
        if context.handle:
            context.synchronize()
    torch_device = sys.modules.get("starling.torch.device")
    if torch_device is not None:
        torch_device.synchronize()
