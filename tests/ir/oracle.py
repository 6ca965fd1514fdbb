"""What a collective means, in one expression each, without plans: the mathematics that plans must agree with.

Values are small integers, so that every order of reduction is exact in every type.
"""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starling.ir import element
from starling.ir.interpreter import Counts
from starling.ir.plan import REDUCING, Plan


@dataclass
class Case:
    """One call of a collective on all ranks."""

    plan: Plan
    counts: object
    data_type: str
    reduce_op: str
    scalar: float
    inputs: list[npt.NDArray | None]


def make_case(plan: Plan, counts: object, data_type: str, reduce_op: str, seed: int) -> Case:
    source = random.Random(seed)
    low = 0 if data_type.startswith("u") or data_type == "bool" else -3
    high = 1 if data_type == "bool" else 3
    inputs: list[npt.NDArray | None] = []
    for rank in range(plan.rank_count):
        length = sum(Counts(plan, counts).of(rank, "input"))
        values = np.array([source.randint(low, high) for _ in range(length)], np.float64)
        inputs.append(_stored(data_type, values) if plan.exists("input", rank) else None)
    return Case(plan, counts, data_type, reduce_op, 2.0, inputs)


def _stored(data_type: str, values: npt.NDArray) -> npt.NDArray:
    if data_type == "bfloat16":
        return element.narrow_bfloat16(values.astype(np.float32))
    return values.astype(element.DATA_TYPES[data_type])


def _loaded(data_type: str, stored: npt.NDArray) -> npt.NDArray:
    return element.load(data_type, stored)


def expected(case: Case) -> list[npt.NDArray | None]:
    plan = case.plan
    parts = [
        _split(stored, Counts(plan, case.counts).of(rank, "input")) if stored is not None else None
        for rank, stored in enumerate(case.inputs)
    ]
    result: list[npt.NDArray | None] = []
    for rank in range(plan.rank_count):
        if not plan.exists("output", rank):
            result.append(None)
            continue
        result.append(np.concatenate(_output_parts(case, parts, rank)))
    return result


def _split(stored: npt.NDArray, lengths: list[int]) -> list[npt.NDArray]:
    return np.split(stored, np.cumsum(lengths)[:-1])


def _output_parts(case: Case, parts: list, rank: int) -> list[npt.NDArray]:
    plan = case.plan
    if plan.collective in REDUCING:
        mine = rank if plan.collective == "reduce_scatter" else 0
        return [_reduced(case, [part[mine] for part in parts])]
    if plan.collective in ("all_gather", "gather"):
        return [part[0] for part in parts]
    if plan.collective == "all_to_all":
        return [part[rank] for part in parts]
    if plan.collective == "scatter":
        return [parts[plan.root][rank]]
    return [parts[plan.root if plan.collective == "broadcast" else 0][0]]


def _reduced(case: Case, contributions: list[npt.NDArray]) -> npt.NDArray:
    data_type, op = case.data_type, case.reduce_op
    values = np.stack([_loaded(data_type, c) for c in contributions])
    if op in ("band", "bor", "bxor"):
        return {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[op].reduce(
            values, axis=0
        )
    if op in ("min", "max"):
        return _stored_back(data_type, values.min(axis=0) if op == "min" else values.max(axis=0))
    if data_type == "bool":
        return (values.any(axis=0) if op == "sum" else values.all(axis=0)).astype(np.uint8)
    exact = values.astype(object)
    if op == "prod":
        return _stored_back(data_type, np.prod(exact, axis=0))
    total = exact.sum(axis=0) * (2 if op == "premul_sum" else 1)
    if op == "avg":
        total = _divided(data_type, total, len(contributions))
    return _stored_back(data_type, total)


def _divided(data_type: str, total: npt.NDArray, ranks: int) -> npt.NDArray:
    if data_type not in element.FLOATS:
        return np.array([abs(int(t)) // ranks * (1 if t >= 0 else -1) for t in total], object)
    width = np.float64 if data_type == "float64" else np.float32
    return np.array([width(t) / width(ranks) for t in total], object)


def _stored_back(data_type: str, values: npt.NDArray) -> npt.NDArray:
    if data_type in element.FLOATS:
        width = np.float64 if data_type == "float64" else np.float32
        return element.store(data_type, values.astype(width))
    bits = element.DATA_TYPES[data_type].itemsize * 8
    wrapped = np.array([int(v) % (1 << bits) for v in values], np.uint64)
    return wrapped.astype(f"uint{bits}").view(element.DATA_TYPES[data_type])


def assert_right(case: Case, outputs: list[npt.NDArray | None]) -> None:
    for rank, (is_, wanted) in enumerate(zip(outputs, expected(case), strict=True)):
        if wanted is None:
            assert is_ is None
            continue
        assert is_ is not None
        assert is_.tobytes() == wanted.tobytes(), f"rank {rank}: {is_} is not {wanted}"
