"""Calls on numbers whose sum depends on the order of additions; the rank's side, importable by its processes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starling import Communicator
from starling.ir.element import DATA_TYPES, narrow_bfloat16


@dataclass(frozen=True)
class FloatCase:
    """A reducing collective by the name of its algorithm."""

    collective: str
    algorithm: str
    data_type: str
    reduce_op: str
    count: int  # elements of one part
    root: int = 0


def random_numbers(case: FloatCase, rank: int, ranks: int) -> npt.NDArray:
    """A rank's input: of many magnitudes, so that rounding shows."""
    source = np.random.default_rng([case.count, rank])
    length = case.count * (ranks if case.collective == "reduce_scatter" else 1)
    numbers = source.standard_normal(length) * 2.0 ** source.integers(-6, 6, length)
    if case.data_type == "bfloat16":
        return narrow_bfloat16(numbers.astype(np.float32))
    return numbers.astype(DATA_TYPES[case.data_type])


def run(comm: Communicator, cases: list[FloatCase]) -> list[bytes]:
    """This rank's outputs as bytes; b"" where it has none."""
    outputs = []
    for case in cases:
        input = random_numbers(case, comm.rank, comm.size)
        output = np.zeros(case.count, input.dtype)
        common: dict = {
            "op": case.reduce_op,
            "algorithm": case.algorithm,
            "scalar": 0.3,
            "dtype": case.data_type,
        }
        if case.collective == "reduce":
            common["root"] = case.root
        getattr(comm, case.collective)(input, output, **common).wait(60)
        outputs.append(output.tobytes() if case.collective != "reduce" or comm.rank == case.root else b"")
    return outputs
