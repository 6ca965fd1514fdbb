"""Goal: the library computes exactly what its plans say, bit by bit, where the order of additions matters.

Method: random numbers of many magnitudes through every reducing algorithm by name; the same plan runs in the
Python interpreter, which defines what a plan means.
"""

import functools

import pytest

from conformance import floats
from conformance.cases import REDUCING
from conformance.floats import FloatCase
from conformance.machines import MACHINES
from starling import ir

TYPES = ("float16", "bfloat16", "float32", "float64")


def cases_for(ranks: int) -> list[FloatCase]:
    found = []
    for collective in REDUCING:
        for number, algorithm in enumerate(ir.algorithms(collective)):
            for position, data_type in enumerate(TYPES):
                op = ("sum", "avg", "premul_sum", "prod")[(number + position) % 4]
                count = (1000, 37)[position % 2]
                found.append(FloatCase(collective, algorithm, data_type, op, count, ranks - 1))
    return found


@pytest.mark.parametrize("blocks", (1, 3))
@pytest.mark.parametrize("ranks", (2, 3, 5, 8))
def test_bits(ranks: int, blocks: int) -> None:
    cases = cases_for(ranks)
    outputs = MACHINES["threads"].run(
        ranks, functools.partial(floats.run, cases=cases), context={"blocks": blocks}
    )
    for number, case in enumerate(cases):
        if case.collective == "all_reduce":
            assert len({of_rank[number] for of_rank in outputs}) == 1, f"ranks differ: {case}"
        root = case.root if case.collective == "reduce" else 0
        # A pull names the input as it is, so premul_sum goes without.
        pulls = case.reduce_op != "premul_sum"
        algorithm = case.algorithm if pulls else case.algorithm.removesuffix("_pull").removesuffix("_put")
        plan = ir.builtin(case.collective, algorithm, ranks, root=root, blocks=blocks)
        defined = ir.run(
            plan,
            [floats.random_numbers(case, rank, ranks) for rank in range(ranks)],
            counts=case.count,
            data_type=case.data_type,
            reduce_op=case.reduce_op,
            scalar=0.3,
        )
        for rank, wanted in enumerate(defined):
            if wanted is not None:
                assert outputs[rank][number] == wanted.tobytes(), f"rank {rank} of {ranks}: {case}"
