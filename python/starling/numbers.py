"""The C API's numbers of collectives and reductions."""

from __future__ import annotations

__all__ = ["COLLECTIVES", "REDUCTIONS"]

REDUCTIONS = {
    name: number
    for number, name in enumerate(("sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor"))
}
COLLECTIVES = {
    name: number
    for number, name in enumerate(
        (
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "broadcast",
            "reduce",
            "all_to_all",
            "gather",
            "scatter",
            "send",
            "recv",
            "barrier",
        )
    )
}
