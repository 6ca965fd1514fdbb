"""Goal: what a C program makes for its number of ranks when it runs (src/plan) is what the programs of plans/ say.

Method: every program has a generator; both plans are proved, and interpreted on random floats under random schedules:
their results have the same bits, where the generator reduces in the program's order, else the same values.
"""

import random

import numpy as np
import pytest
from starling.plans import ALGORITHMS, program

from ir.oracle import assert_right, make_case
from programs.cases import ALWAYS_APART, NAMES, NODED, make
from starling import ir
from starling.tune.candidates import COLLECTIVES

GENERATORS = {
    ("all_to_all", "direct"): "pairwise",
    ("all_to_next", "spread"): "all_to_next",
    ("all_to_next", "direct"): "all_to_next_direct",
}
# The program's ring ends its sums where they are wanted; the generator's begins its chunks where they are. Of rails the
# generator adds what came along the column first.
OTHER_ORDER = {("all_reduce", "ring"), ("all_reduce", "rails"), ("reduce_scatter", "rails")}


def kind_of(collective: str) -> str:
    return "custom" if collective == "all_to_next" else collective


def both(collective: str, name: str, ranks: int, in_place: bool) -> tuple[ir.Plan, ir.Plan]:
    generator = GENERATORS.get((collective, name), name)
    generated = ir.builtin(kind_of(collective), generator, ranks, in_place=in_place)
    return generated, make(collective, name, ranks, 1, in_place).compile(blocks=1)


def outputs_of(plan: ir.Plan, inputs: list[np.ndarray], count: int, seed: int) -> list[bytes | None]:
    outputs = ir.run(
        plan,
        inputs,
        counts=count,
        data_type="float32",
        slots=ir.verify(plan),
        tile_bytes=48,
        schedule=random.Random(seed),
    )
    return [None if output is None else np.asarray(output).tobytes() for output in outputs]


@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_the_program_and_the_generator_give_the_same_bits(collective: str, name: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    for ranks in (2, 4, 6, 8, 12) if name in NODED else (1, 2, 3, 5, 6, 8, 11):
        for in_place in (False,) if collective in ALWAYS_APART else (False, True):
            generated, compiled = both(collective, name, ranks, in_place)
            source = np.random.default_rng(seed)
            elements = 37 * generated.input_groups
            inputs = [
                (source.standard_normal(elements) * 10.0 ** source.integers(-3, 3, elements)).astype(
                    np.float32
                )
                if generated.exists("input", rank)
                else None
                for rank in range(ranks)
            ]
            where = f"seed {seed}, {ranks} ranks, in place {in_place}"
            if (collective, name) in OTHER_ORDER:
                case = make_case(compiled, 37, "int32", "sum", seed)
                for plan in (generated, compiled):
                    assert_right(case, ir.run(plan, case.inputs, counts=37, data_type="int32"))
            else:
                assert outputs_of(generated, inputs, 37, seed) == outputs_of(compiled, inputs, 37, seed), (
                    where
                )


def test_every_program_has_a_generator() -> None:
    for collective, name in NAMES:
        assert GENERATORS.get((collective, name), name) in ir.algorithms(kind_of(collective))


def test_every_algorithm_is_a_program() -> None:
    """In another protocol it is the same one; a barrier is an all_reduce of nobody's data."""
    for collective in COLLECTIVES:
        for name in ir.algorithms(collective):
            plain = name.removesuffix("_packets").removesuffix("_pull").removesuffix("_put")
            assert {"pairwise": "direct"}.get(plain, plain) in ALGORITHMS[collective], (collective, name)
    assert {name.removesuffix("_packets").removesuffix("_pull") for name in ir.algorithms("custom")} == {
        name for (collective, _), name in GENERATORS.items() if collective == "all_to_next"
    }
    assert {name.removesuffix("_packets") for name in ir.algorithms("barrier")} <= set(
        ALGORITHMS["all_reduce"]
    )


def test_a_message_is_a_program() -> None:
    for protocol, name in (("slots", "direct"), ("packets", "direct_packets"), ("pull", "direct_pull")):
        made = program("send_recv", "direct", 2, instances=3)
        made.protocol = protocol
        compiled, generated = made.compile(blocks=3), ir.builtin("send_recv", name, 2, blocks=3)
        compiled.name = generated.name
        assert ir.to_text(compiled) == ir.to_text(generated)


def links_of(plan: ir.Plan) -> dict[tuple[int, int], int]:
    """Chunks from one rank to another."""
    sent: dict[tuple[int, int], int] = {}
    for rank, part in enumerate(plan.ranks):
        for i in (i for block in part.blocks for i in block.instructions):
            for send in i.sends:
                sent[rank, send.peer] = sent.get((rank, send.peer), 0) + i.size.chunks
    return sent


@pytest.mark.parametrize(
    ("ranks", "nodes"), [(2, 2), (4, 2), (6, 2), (6, 3), (5, 5), (8, 4), (9, 3), (12, 3)]
)
def test_all_to_next_is_its_program(ranks: int, nodes: int) -> None:
    """The same buffers, postcondition and bits, and the same chunks over every link; its blocks are instances there."""
    for blocks in (1, 2, 3):
        pairs = {
            f"all_to_next:{nodes}": program("all_to_next", "spread", ranks, nodes=nodes, instances=blocks),
            "all_to_next_direct": program("all_to_next", "direct", ranks, instances=blocks),
        }
        for name, made in pairs.items():
            generated, compiled = ir.builtin("custom", name, ranks, blocks=blocks), made.compile()
            assert generated.postcondition == compiled.postcondition is not None
            assert generated.chunks_per_group == compiled.chunks_per_group
            assert links_of(generated) == links_of(compiled)
            for count in (0, 1, 37, 200):
                source = np.random.default_rng(count)
                inputs = [source.standard_normal(count).astype(np.float32) for _ in range(ranks)]
                mine, theirs = (outputs_of(plan, inputs, count, count) for plan in (generated, compiled))
                assert mine[1:] == theirs[1:] == [array.tobytes() for array in inputs[:-1]]


def test_nodes_are_named_behind_a_colon() -> None:
    for nodes in (2, 3, 4, 6, 12):
        generated = ir.builtin("all_reduce", f"hierarchical:{nodes}", 12)
        crossing = {
            (rank, send.peer)
            for rank, part in enumerate(generated.ranks)
            for i in part.blocks[0].instructions
            for send in i.sends
            if rank // (12 // nodes) != send.peer // (12 // nodes)
        }
        assert crossing == {(rank, (rank + 12 // nodes) % 12) for rank in range(12)}
    with pytest.raises(ValueError, match=r"hierarchical:5.*equally large.*divides the ranks"):
        ir.builtin("all_reduce", "hierarchical:5", 12)


def test_messages_between_nodes_are_few() -> None:
    """What the steps are for: of 12 ranks on 3 nodes each sends so many messages beyond its node."""
    for name, most in (("pairwise", 8), ("two_step:3", 2), ("three_step:3", 1)):
        plan = ir.builtin("all_to_all", name, 12)
        for rank, part in enumerate(plan.ranks):
            crossing = [
                send for i in part.blocks[0].instructions for send in i.sends if send.peer // 4 != rank // 4
            ]
            assert len(crossing) <= most, (name, rank)
