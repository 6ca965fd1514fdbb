"""The GPUs that this process sees, asked of the driver before a benchmark starts its ranks."""

from __future__ import annotations

import ctypes
import os

from .options import refuse


def visible() -> tuple[int, str]:
    """How many; and why there are none, or ""."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no NVIDIA driver is installed (libcuda.so.1)"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return 0, f"the NVIDIA driver shows no GPU (error {status})" if status else "no GPU is visible"
    return count.value, ""


def lacking(ranks: int, *, fewest: int = 1, may_share: bool = True) -> str:
    """What is missing for so many ranks, a GPU each, or RANKS_PER_GPU of them on one if they may; "" if nothing is.

    fewest: ranks that what is asked for can do with.
    """
    each = max(int(os.environ.get("RANKS_PER_GPU") or 1), 1) if may_share else 1
    wanted = -(-ranks // each)
    count, why = visible()
    if count == 0:
        return f"no GPU can be used here: {why}; look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    if count >= wanted:
        return ""
    remedy = "ask for fewer with -n"
    if fewest > count * each:
        remedy = "RANKS_PER_GPU=2 lets two ranks share one" if may_share else "run it where there are as many"
    return f"{ranks} ranks need {wanted} GPUs, here {'is' if count == 1 else 'are'} {count}; {remedy}"


def require(ranks: int, *, fewest: int = 1, may_share: bool = True) -> None:
    """Refuses if anything is lacking."""
    if why := lacking(ranks, fewest=fewest, may_share=may_share):
        refuse(why)
