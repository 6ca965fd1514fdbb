"""Goal: built-in plans compute their collective, for every type, reduction, count, tile and schedule.

Method: hypothesis draws plan, call and schedule; the interpreter's outputs are compared, bit by bit, with the
mathematics in oracle.py. Its seeds replay (hypothesis prints the failing example).
"""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ir.oracle import assert_right, make_case
from starling import ir
from starling.ir.element import takes
from starling.ir.plan import REDUCING, ROOTED

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send_recv",
)
BUILT_INS = [(collective, name) for collective in COLLECTIVES for name in ir.algorithms(collective)]
VARYING = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
EQUAL_PARTS = ("two_step", "three_step")  # pass parts of others on, of whose lengths they know nothing
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def plans(draw: st.DrawFn, built_ins: list[tuple[str, str]] = BUILT_INS) -> ir.Plan:
    collective, algorithm = draw(st.sampled_from(built_ins))
    ranks = draw(st.integers(1, 2 if collective == "send_recv" else 6))
    root = draw(st.integers(0, ranks - 1)) if collective in ROOTED else 0
    blocks = draw(st.integers(1, 3))
    return ir.builtin(collective, algorithm, ranks, root=root, blocks=blocks, in_place=draw(st.booleans()))


def run(plan: ir.Plan, counts: object, data_type: str, reduce_op: str, tile_bytes: int, seed: int) -> None:
    case = make_case(plan, counts, data_type, reduce_op, seed)
    outputs = ir.run(
        plan,
        case.inputs,
        counts=case.counts,
        data_type=data_type,
        reduce_op=reduce_op,
        scalar=case.scalar,
        slots=ir.verify(plan),
        tile_bytes=tile_bytes,
        schedule=random.Random(seed),
    )
    assert_right(case, outputs)


@pytest.mark.parametrize("reduce_op", ir.REDUCE_OPS)
@settings(SETTINGS, max_examples=50)
@given(
    plans([b for b in BUILT_INS if b[0] in REDUCING]),
    st.integers(0, 90),
    st.sampled_from(sorted(ir.DATA_TYPES)),
    st.sampled_from([16, 32, 48, 1 << 20]),
    st.integers(0, 2**32),
)
def test_any_reduction_is_right(
    reduce_op: str, plan: ir.Plan, count: int, data_type: str, tile_bytes: int, seed: int
) -> None:
    assume(takes(data_type, reduce_op))
    run(plan, count, data_type, reduce_op, tile_bytes, seed)


@SETTINGS
@given(
    plans([b for b in BUILT_INS if b[0] not in REDUCING]),
    st.integers(0, 90),
    st.sampled_from(sorted(ir.DATA_TYPES)),
    st.sampled_from([16, 32, 48, 1 << 20]),
    st.integers(0, 2**32),
)
def test_any_movement_is_right(plan: ir.Plan, count: int, data_type: str, tile_bytes: int, seed: int) -> None:
    run(plan, count, data_type, "sum", tile_bytes, seed)


@SETTINGS
@given(
    plans([b for b in BUILT_INS if b[0] in VARYING and b[1] not in EQUAL_PARTS]),
    st.data(),
    st.integers(0, 2**32),
)
def test_parts_of_any_length_are_right(plan: ir.Plan, data: st.DataObject, seed: int) -> None:
    ranks = plan.rank_count
    length = st.sampled_from([0, 0, 1, 3, 4, 17, 40])
    lengths = st.lists(length, min_size=ranks, max_size=ranks)
    if plan.collective == "all_to_all":
        table = data.draw(st.lists(lengths, min_size=ranks, max_size=ranks))
        if plan.in_place:  # what comes in takes the place of what goes out
            table = [[table[min(r, c)][max(r, c)] for c in range(ranks)] for r in range(ranks)]
        run(plan, table, "int32", "sum", 16, seed)
    else:
        run(plan, data.draw(lengths), "int32", "sum", 16, seed)


@pytest.mark.parametrize("algorithm", ["ring", "two_shot"])
def test_fewer_slots_than_the_verifier_says_deadlock(algorithm: str) -> None:
    plan = ir.builtin("all_reduce", algorithm, 4)
    assert ir.verify(plan) == 2
    case = make_case(plan, 64, "int32", "sum", 1)
    for seed in range(20):
        with pytest.raises(ir.DeadlockError, match="waits for a slot to rank"):
            ir.run(plan, case.inputs, counts=64, data_type="int32", slots=1, schedule=random.Random(seed))


@SETTINGS
@given(plans([b for b in BUILT_INS if b[0] == "all_reduce"]), st.integers(0, 2**32))
def test_floats_have_the_same_bits_on_all_ranks(plan: ir.Plan, seed: int) -> None:
    source = np.random.default_rng(seed)
    for data_type in ("float32", "float16"):
        inputs = [
            (source.standard_normal(33) * 10.0 ** source.integers(-3, 3, 33)).astype(data_type)
            for _ in range(plan.rank_count)
        ]
        outputs = ir.run(plan, inputs, counts=33, data_type=data_type, tile_bytes=32)
        assert len({output.tobytes() for output in outputs if output is not None}) == 1


def test_a_tile_must_be_a_multiple_of_sixteen_bytes() -> None:
    plan = ir.builtin("all_reduce", "ring", 1)
    with pytest.raises(ValueError, match="multiple of 16"):
        ir.run(plan, [np.zeros(1, np.int32)], counts=1, data_type="int32", tile_bytes=8)
    with pytest.raises(ValueError, match="no meaning"):
        ir.run(plan, [np.zeros(1, np.float32)], counts=1, data_type="float32", reduce_op="band")
    with pytest.raises(ValueError, match="needs an input"):
        ir.run(plan, [None], counts=1, data_type="int32")


def test_a_message_has_the_length_that_its_receiver_expects() -> None:
    plan = ir.builtin("broadcast", "chain", 2)
    plan.chunks_per_group = 2  # the second chunk of a part is the shorter one
    receiver = plan.ranks[1].blocks[0].instructions
    receiver[0] = replace(receiver[0], size=ir.Slice("output", 1))
    with pytest.raises(
        ValueError, match="rank 1 block 0 instruction 0 receives 4 bytes where rank 0 sends 16"
    ):
        ir.run(plan, [np.zeros(5, np.int32), None], counts=5, data_type="int32")
