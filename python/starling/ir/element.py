"""Element types and reductions, with the arithmetic of src/device/element.h.

Half-precision types accumulate in float32 over all operands of an instruction and are rounded once. bfloat16 is
kept as uint16, numpy having no such type.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# How elements lie in memory.
DATA_TYPES: dict[str, np.dtype] = {
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bool": np.dtype(np.uint8),
}
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
REDUCE_OPS = ("sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor")

_APPLY: dict[str, Callable[[Array, Array], Array]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "min": lambda a, b: np.where(b < a, b, a),
    "max": lambda a, b: np.where(a < b, b, a),
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
}


def widen_bfloat16(bits: Array) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounds to nearest even; a NaN stays a NaN."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    nan = (bits >> np.uint64(16)) | np.uint64(0x40)
    return np.where((bits & np.uint64(0x7FFFFFFF)) > 0x7F800000, nan, rounded).astype(np.uint16)


def takes(data_type: str, reduce_op: str) -> bool:
    """Whether the reduction means something for the type."""
    if data_type in FLOATS:
        return reduce_op not in ("band", "bor", "bxor")
    return data_type != "bool" or reduce_op not in ("avg", "premul_sum")


def load(data_type: str, stored: Array) -> Array:
    if data_type == "bfloat16":
        return widen_bfloat16(stored)
    if data_type == "float16":
        return stored.astype(np.float32)
    return (stored != 0).astype(np.uint8) if data_type == "bool" else stored.copy()


def store(data_type: str, values: Array) -> Array:
    if data_type == "bfloat16":
        return narrow_bfloat16(values.astype(np.float32))
    return values.astype(DATA_TYPES[data_type])


def scale(data_type: str, values: Array, factor: float) -> Array:
    """Rounded as if it had been sent: a rank that adds its own input gets what its peers receive of it."""
    if data_type in ("float16", "bfloat16"):
        return load(data_type, store(data_type, values * np.float32(factor)))
    if data_type == "float32":
        return values * np.float32(factor)
    if data_type == "float64":
        return values * np.float64(factor)
    return np.trunc(values.astype(np.float64) * factor).astype(values.dtype)


def divide(data_type: str, values: Array, divisor: int) -> Array:
    """Integers truncate towards zero, as NCCL's avg does."""
    if data_type in FLOATS:
        quotient: Array = values / values.dtype.type(divisor)
        return quotient
    magnitude = np.abs(values.astype(object)) // divisor
    signed: Array = np.where(values < 0, -1, 1) * magnitude
    return signed.astype(values.dtype)


def reduce(data_type: str, reduce_op: str, left: Array, right: Array) -> Array:
    """One application, in accumulators."""
    name = "sum" if reduce_op in ("avg", "premul_sum") else reduce_op
    if data_type == "bool":
        name = {"sum": "max", "prod": "min"}.get(name, name)
    with np.errstate(all="ignore"):
        return _APPLY[name](left, right).astype(left.dtype)
