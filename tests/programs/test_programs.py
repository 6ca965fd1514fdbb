"""Goal: the library's algorithms, written in the language, are right: every program of plans/, for several numbers of
ranks and instances, in place and out of place, in at most 30 lines.

Method: compiled and proved; interpreted in Python under random schedules with as few slots as the verifier says and
with tiles that cut chunks; compared with the mathematics (ir/oracle.py).
"""

import ast
import random
from pathlib import Path

import numpy as np
import pytest
from starling.plans import ALGORITHMS

from ir.oracle import assert_right, make_case
from programs.cases import ALWAYS_APART, NAMES, NODED, make, sizes_of
from starling import ir
from starling.ir.plan import REDUCING


@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_interpreted(collective: str, name: str) -> None:
    for ranks in sizes_of(name):
        for in_place in (False, True):
            if in_place and collective in ALWAYS_APART:
                continue
            for instances in (1, 3):
                plan = make(collective, name, ranks, instances, in_place).compile()
                slots = ir.verify(plan)
                assert slots <= 2
                for count, tile_bytes in ((0, 16), (1, 16), (37, 16), (100, 48), (64, 1 << 20)):
                    interpret(plan, count, tile_bytes, slots)


def interpret(plan: ir.Plan, count: int, tile_bytes: int, slots: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    op = random.Random(seed).choice(["sum", "avg", "premul_sum"]) if plan.collective in REDUCING else "sum"
    where = f"seed {seed}, {plan.name}, {plan.rank_count} ranks, count {count}, tile {tile_bytes}, {op}"
    if plan.collective == "custom":
        check_all_to_next(plan, count, tile_bytes, slots, seed)
        return
    case = make_case(plan, count, "int32", op, seed)
    outputs = ir.run(
        plan,
        case.inputs,
        counts=count,
        data_type="int32",
        reduce_op=op,
        scalar=case.scalar,
        slots=slots,
        tile_bytes=tile_bytes,
        schedule=random.Random(seed),
    )
    try:
        assert_right(case, outputs)
    except AssertionError as error:
        raise AssertionError(where) from error


def check_all_to_next(plan: ir.Plan, count: int, tile_bytes: int, slots: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    inputs = [
        source.integers(-9, 9, count * plan.input_groups).astype(np.int32) for _ in range(plan.rank_count)
    ]
    schedule = random.Random(seed)
    outputs = ir.run(
        plan, inputs, counts=count, data_type="int32", slots=slots, tile_bytes=tile_bytes, schedule=schedule
    )
    for rank in range(1, plan.rank_count):
        np.testing.assert_array_equal(outputs[rank], inputs[rank - 1], err_msg=f"seed {seed}, rank {rank}")


@pytest.mark.parametrize(("collective", "name"), [key for key in NAMES if key[1] in NODED])
def test_nodes_are_equally_large(collective: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"^5 ranks on 2 nodes; the nodes must be equally large$"):
        make(collective, name, 5)
    for nodes in (0, -2):
        with pytest.raises(ValueError, match=f"^4 ranks on {nodes} nodes; the nodes must be equally large$"):
            ALGORITHMS[collective][name](4, nodes=nodes)


@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_the_same_program_gives_the_same_bytes(collective: str, name: str) -> None:
    ranks = sizes_of(name)[-1]
    first, second = (ir.to_text(make(collective, name, ranks, 2).compile()) for _ in range(2))
    assert first == second


def test_v_variants_take_what_is_right_for_unequal_parts() -> None:
    plan = make("all_gather", "ring", 3).compile()
    case = make_case(plan, [5, 0, 9], "int32", "sum", 1)
    assert_right(case, ir.run(plan, case.inputs, counts=[5, 0, 9], data_type="int32", tile_bytes=16))


def test_compiled_as_well_as_written_by_hand() -> None:
    """The ring has the instructions of the generator in C++; reductions of all pairs wait for all of them at once."""
    by_hand = ir.builtin("all_reduce", "ring", 4)
    compiled = make("all_reduce", "ring", 4).compile()
    words = [[[i.opcode.name for i in b.instructions] for b in r.blocks] for r in by_hand.ranks]
    assert words == [[[i.opcode.name for i in b.instructions] for b in r.blocks] for r in compiled.ranks]
    for name in ("one_shot", "two_shot"):
        for in_place in (False, True):
            hand = ir.builtin("all_reduce", name, 5, in_place=in_place)
            plan = make("all_reduce", name, 5, 1, in_place).compile()
            for theirs, ours in zip(hand.ranks, plan.ranks, strict=True):
                assert len(ours.blocks[0].instructions) <= len(theirs.blocks[0].instructions)
                assert ours.scratch_chunks == 0


def test_every_program_is_short(repository_root) -> None:
    """With the helpers it calls, wherever under plans/ they stand; blank lines and docstrings aside."""
    functions = functions_of(repository_root / "plans")
    for makers in ALGORITHMS.values():
        for maker in makers.values():
            name = f"{maker.__module__}.{maker.__name__}"
            needed = with_helpers(name, functions)
            lines = sum(functions[part][0] for part in needed)
            assert 3 <= lines <= 30, f"{name} has {lines} lines, in {', '.join(sorted(needed))}"


def functions_of(folder: Path) -> dict[str, tuple[int, set[str]]]:
    """By full name: lines of code, and the functions that it names."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text()
        module = f"starling.plans.{path.stem}"
        body = ast.parse(text).body
        known = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        known |= {node.name: f"{module}.{node.name}" for node in functions}
        for node in functions:
            code = set(range(node.lineno, (node.end_lineno or 0) + 1))
            if ast.get_docstring(node) is not None:
                code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
            written = [line for number, line in enumerate(text.splitlines(), 1) if number in code]
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            found[known[node.name]] = (
                sum(bool(line.strip()) for line in written),
                {known[name] for name in names & known.keys()},
            )
    return found


def with_helpers(name: str, functions: dict[str, tuple[int, set[str]]]) -> set[str]:
    needed, todo = {name}, [name]
    while todo:
        new = (functions[todo.pop()][1] & functions.keys()) - needed
        needed |= new
        todo += new
    return needed


@pytest.mark.parametrize("protocol", ["packets", "pull"])
def test_protocols(protocol: str) -> None:
    """What messages mean does not depend on how they travel; a plan that cannot travel so is refused by name."""
    for collective, name in NAMES:
        made = make(collective, name, 4)
        made.protocol = protocol
        plan = made.compile()
        assert plan.protocol == protocol
        interpret(plan, 37, 16, ir.verify(plan))
