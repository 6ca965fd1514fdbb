"""Whether a plan means its collective: proved, and interpreted against the mathematics."""

import random

from ir.oracle import assert_right, make_case
from starling import ir


def assert_means(plan: ir.Plan, collective: str, in_place: bool) -> None:
    assert (plan.collective, plan.in_place) == (collective, in_place)
    slots = ir.verify(plan)
    for seed, count in enumerate((1, 7, 64, 100)):
        case = make_case(plan, count, "int32", "sum", seed)
        outputs = ir.run(
            plan,
            case.inputs,
            counts=count,
            data_type="int32",
            slots=slots,
            tile_bytes=16,
            schedule=random.Random(seed),
        )
        assert_right(case, outputs)
