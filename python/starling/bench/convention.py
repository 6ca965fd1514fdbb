"""nccl-tests' conventions: what the sizes, counts and bandwidths of a collective mean."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_BYTES = {
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
# nccl-tests' and NCCL's short names are understood too.
TYPE_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "fp16": "float16"}
REDUCTIONS = ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"]
SPLIT = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
COLLECTIVES = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
]


@dataclass(frozen=True)
class Point:
    """One line of the table. `size_bytes` is the larger of a rank's input and output; `count` is of one rank's part
    (as in starling.h), except that the printed count follows nccl-tests (see `printed_count`)."""

    collective: str
    ranks: int
    type_name: str
    reduction: str
    root: int
    size_bytes: int
    count: int

    @property
    def printed_reduction(self) -> str:
        return self.reduction if self.collective in REDUCING else "none"

    @property
    def printed_root(self) -> int:
        return self.root if self.collective in ROOTED else -1

    @property
    def bus_factor(self) -> float:
        """busbw / algbw, as in nccl-tests' PERFORMANCE.md: independent of the number of ranks at best."""
        n = self.ranks
        if self.collective == "all_reduce":
            return 2 * (n - 1) / n
        return (n - 1) / n if self.collective in SPLIT else 1.0

    def algorithm_bandwidth(self, seconds: float) -> float:
        """GB/s (10^9)."""
        return self.size_bytes / seconds / 1e9


def point(collective: str, ranks: int, type_name: str, reduction: str, root: int, size_bytes: int) -> Point:
    """The point nearest to `size_bytes` that every rank has at least one element of."""
    width = TYPE_BYTES[type_name]
    if collective == "barrier":
        return Point(collective, ranks, type_name, reduction, root, 0, 0)
    parts = ranks if collective in SPLIT else 1
    count = max(size_bytes // (width * parts), 1)
    return Point(collective, ranks, type_name, reduction, root, count * width * parts, count)


def parse_bytes(text: str) -> int:
    """8, 512K, 64M, 1G (powers of 1024)."""
    digits = text.strip().upper().removesuffix("B")
    unit = {"K": 10, "M": 20, "G": 30}.get(digits[-1:], 0)
    value = float(digits[:-1] if unit else digits)
    if value < 0 or value != value:
        raise ValueError(text)
    return int(value * (1 << unit))


def sizes(first: int, last: int, factor: float, step: int) -> list[int]:
    """From `first` on, times `factor` or plus `step`; `last` is always there."""
    if first < 1 or last < first:
        raise ValueError("the first size must be at least 1 and not above the last")
    if step == 0 and factor <= 1:
        raise ValueError("the step factor must be above 1")
    found = []
    size = float(first)
    while size < last:
        found.append(int(size))
        size = size + step if step else size * factor
    return [*found, last]
