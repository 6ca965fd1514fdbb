"""What a case must give, by numpy alone: inputs that every rank can make for all ranks, and expected outputs.

Values are small whole numbers, so that every order of reduction is exact in every type.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from conformance.cases import Case
from starling.ir.element import DATA_TYPES, FLOATS, load, narrow_bfloat16, store

Array = npt.NDArray
SCALAR = 2.0  # of premul_sum


def values(case: Case, rank: int, length: int) -> Array:
    """Elements that a rank contributes, as they lie in memory."""
    source = np.random.default_rng([case.seed, rank])
    data_type, op = case.data_type, case.reduce_op
    if op in ("band", "bor", "bxor") and data_type != "bool":
        info = np.iinfo(DATA_TYPES[data_type])
        return source.integers(info.min, info.max, length, DATA_TYPES[data_type], endpoint=True)
    unsigned = data_type.startswith("u") or data_type == "bool"
    if op == "prod":  # powers of two up to 2^8: exact in bfloat16
        drawn = source.choice([1, 2] if unsigned else [-2, -1, 1, 2], length)
    else:
        drawn = source.integers(0 if unsigned else -3, 1 if data_type == "bool" else 3, length, endpoint=True)
    if data_type == "bool":
        drawn = drawn % 2
    if data_type == "bfloat16":
        return narrow_bfloat16(drawn.astype(np.float32))
    return drawn.astype(DATA_TYPES[data_type])


def reduced(case: Case, contributions: list[Array]) -> Array:
    """The reduction of these, as it lies in memory."""
    data_type, op = case.data_type, case.reduce_op
    loaded = [load(data_type, part) for part in contributions]
    if op in ("band", "bor", "bxor"):
        return {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[op].reduce(loaded)
    if op in ("min", "max"):
        return store(data_type, {"min": np.minimum, "max": np.maximum}[op].reduce(loaded))
    if data_type == "bool":
        return {"sum": np.maximum, "prod": np.minimum}[op].reduce(loaded)
    if data_type in FLOATS:
        total = {"prod": np.multiply}.get(op, np.add).reduce([part.astype(np.float64) for part in loaded])
        wide = np.float64 if data_type == "float64" else np.float32
        if op == "avg":
            return store(data_type, total.astype(wide) / wide(case.ranks))
        return store(data_type, (total * (SCALAR if op == "premul_sum" else 1)).astype(wide))
    with np.errstate(over="ignore"):
        whole = {"prod": np.multiply}.get(op, np.add).reduce(loaded, dtype=loaded[0].dtype)
    if op == "avg":  # towards zero
        return (np.sign(whole.astype(np.int64)) * (np.abs(whole.astype(np.int64)) // case.ranks)).astype(
            whole.dtype
        )
    return whole * whole.dtype.type(2) if op == "premul_sum" else whole


@dataclass(frozen=True)
class Layout:
    """Where the parts of all ranks lie in one buffer, in elements."""

    counts: list[int]
    offsets: list[int]

    @property
    def length(self) -> int:
        return max((o + c for o, c in zip(self.offsets, self.counts, strict=True)), default=0)

    def part(self, array: Array, rank: int) -> Array:
        return array[self.offsets[rank] : self.offsets[rank] + self.counts[rank]]


def even(ranks: int, count: int) -> Layout:
    return Layout([count] * ranks, [count * r for r in range(ranks)])


def uneven(counts: list[int], seed: int) -> Layout:
    """Gaps of 0 to 3 elements, and the parts in another order than the ranks."""
    source = np.random.default_rng([seed, 99])
    offsets = [0] * len(counts)
    end = 0
    for rank in source.permutation(len(counts)):
        end += int(source.integers(0, 4))
        offsets[rank] = end
        end += counts[rank]
    return Layout(counts, offsets)


class Expected:
    """The buffers of one rank: how they begin, and how they must end."""

    def __init__(self, case: Case, rank: int) -> None:
        self.case, self.rank = case, rank
        self.is_root = rank == case.root

    @cached_property
    def table(self) -> list[list[int]]:
        """Elements that go from rank to rank (all_to_all); row 0 serves the collectives with one list."""
        ranks, count = self.case.ranks, self.case.count
        if not self.case.varying:
            return [[count] * ranks] * ranks
        source = np.random.default_rng([self.case.seed, 7])
        return [[int(n) for n in row] for row in source.integers(0, count, (ranks, ranks), endpoint=True)]

    def layout(self, counts: list[int]) -> Layout:
        return uneven(counts, self.case.seed) if self.case.varying else even(self.case.ranks, self.case.count)

    @cached_property
    def parts(self) -> Layout:
        """Of the buffer that holds a part of every rank, all collectives but all_to_all."""
        return self.layout(self.table[0])

    def sends(self, rank: int) -> Layout:
        return self.layout(self.table[rank])

    def receives(self, rank: int) -> Layout:
        return self.layout([row[rank] for row in self.table])

    def contribution(self, rank: int) -> Array:
        """What a rank's input holds where there is one, gaps included."""
        case = self.case
        if case.collective in ("reduce_scatter", "scatter"):
            return values(case, rank, self.parts.length)
        if case.collective == "all_to_all":
            return values(case, rank, self.sends(rank).length)
        if case.collective in ("all_gather", "gather"):
            return values(case, rank, self.parts.counts[rank])
        return values(case, rank, case.count)

    def result(self) -> Array | None:
        """What the output must hold, without gaps; None where this rank has none."""
        case, rank = self.case, self.rank
        everyone = range(case.ranks)
        if case.collective in ("reduce", "gather") and not self.is_root:
            return None
        if case.collective in ("all_reduce", "reduce"):
            return reduced(case, [self.contribution(r) for r in everyone])
        if case.collective == "reduce_scatter":
            return reduced(case, [self.parts.part(self.contribution(r), rank) for r in everyone])
        if case.collective in ("all_gather", "gather"):
            return np.concatenate([self.contribution(r) for r in everyone])
        if case.collective == "broadcast":
            return self.contribution(case.root)
        if case.collective == "scatter":
            return self.parts.part(self.contribution(case.root), rank)
        if case.collective == "all_to_all":
            return np.concatenate([self.sends(r).part(self.contribution(r), rank) for r in everyone])
        return self.contribution((rank - 1) % case.ranks)  # send_recv: around the ring
