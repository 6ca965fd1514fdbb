"""The PyTorch backend ``starling``.

>>> import torch.distributed as dist
>>> import starling.torch
>>> dist.init_process_group("starling")

Importing registers the backend; the compiled adapter is built for the torch that is there when the first group is
made (once, then cached). ``docs/PYTORCH.md`` is the user's page.
"""


def autoload() -> None:
    """What PyTorch's entry points call once this module is imported: importing has registered the backend.

    It stands above the imports because importing torch from here makes torch look for it.
    """


try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    text = "starling.torch needs PyTorch 2.11 or newer: pip install 'torch>=2.11'"
    raise ModuleNotFoundError(text, name="torch") from None

from starling.torch._adapter import build  # noqa: E402
from starling.torch._registration import Options, premul_sum, register  # noqa: E402
from starling.torch.device import statistics, synchronize, trace  # noqa: E402
from starling.torch.groups import check  # noqa: E402
from starling.torch.hooks import ShuffledBuckets, ddp_hook, shuffled_ddp_hook  # noqa: E402
from starling.torch.lanes import lane  # noqa: E402
from starling.torch.plans import add_plan, run_plan  # noqa: E402

__all__ = [
    "Options",
    "ShuffledBuckets",
    "add_plan",
    "autoload",
    "build",
    "check",
    "ddp_hook",
    "lane",
    "premul_sum",
    "register",
    "run_plan",
    "shuffled_ddp_hook",
    "statistics",
    "synchronize",
    "trace",
]

register()
