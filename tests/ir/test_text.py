"""Goal: Python and C++ read and write one text form, and their tables of instructions are one table.

Method: round trips of built-in plans; the table against the C++ module's and against the text of the header.
"""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from starling import ir
from starling._core import plan as native
from starling.ir.plan import COLLECTIVES

BUILT_INS = [
    (collective, algorithm) for collective in COLLECTIVES[:-1] for algorithm in ir.algorithms(collective)
]


@pytest.mark.parametrize(("collective", "algorithm"), BUILT_INS)
@pytest.mark.parametrize("in_place", [False, True])
def test_round_trip(collective: str, algorithm: str, in_place: bool) -> None:
    for ranks in (1, 2, 5):
        if collective == "send_recv" and ranks > 2:
            continue
        text = native.generate(collective, algorithm, ranks, 0, 2, in_place)
        assert ir.to_text(ir.parse(text)) == text
        assert ir.verify(ir.parse(text)) <= 2


def test_the_table_is_that_of_the_module() -> None:
    assert [asdict(opcode) for opcode in ir.OPCODES.values()] == native.opcode_table()


def test_the_table_is_that_of_the_header(repository_root: Path) -> None:
    header = (repository_root / "src/wire/opcodes.h").read_text()
    rows = re.findall(r"X\((\w+),\s*(\d+),\s*" + r"(true|false),\s*" * 4 + r"(true|false)\)", header)
    assert [row[0] for row in rows] == list(ir.OPCODES)
    for row in rows:
        assert [flag == "true" for flag in row[2:]] == list(asdict(ir.OPCODES[row[0]]).values())[1:]


TEXT = """starling-plan 1
name by-hand
collective all_reduce
ranks 1
root 0
in_place 0
chunks_per_group 2
groups 1 1
rank 0 scratch 2
  block 0
    0 copy input[0:2] -> scratch[0:2] size input[0:2]
    1 nop size output[0] after 1.0
  block 1
    0 nop size output[0]
    1 copy scratch[0:2] -> output[0:2] size output[0:2] final after 0.0 0.1
"""


def test_all_parts_of_the_grammar() -> None:
    plan = ir.parse(TEXT)
    assert ir.to_text(plan) == TEXT
    assert ir.verify(plan) == 1
    last = plan.ranks[0].blocks[1].instructions[1]
    assert last.final
    assert last.after == (ir.Dependency(0, 0), ir.Dependency(0, 1))
    assert last.size == ir.Slice("output", 0, 2)


PUT = """starling-plan 1
name put
collective all_reduce
ranks 2
root 0
in_place 1
protocol pull
chunks_per_group 1
groups 1 1
rank 0 scratch 0
  block 0
    0 recv_reduce_copy_send input[0] <1.0 -> output[0] >1.0 size output[0] final put
rank 1 scratch 0
  block 0
    0 send input[0] -> >0.0 size input[0]
    1 recv <0.0 -> output[0] size output[0] put
"""


def test_messages_that_are_put() -> None:
    plan = ir.parse(PUT)
    assert ir.to_text(plan) == PUT
    assert ir.verify(plan) == 1
    assert [i.put for rank in plan.ranks for i in rank.blocks[0].instructions] == [True, False, True]
    with pytest.raises(ir.PlanTextError, match="'final', 'put' or 'after' should stand here, not 'final'"):
        ir.parse(PUT.replace("final put", "put final"))
    with pytest.raises(Exception, match=r"wants put \(rule put\)"):
        native.verify(PUT.replace("final put", "final"))


def test_a_byte_order_mark_before_the_text() -> None:
    assert ir.to_text(ir.parse("\ufeff" + TEXT)) == TEXT
    assert native.verify("\ufeff" + TEXT) == (1, False)
    with pytest.raises(ir.PlanTextError, match="line 1"):
        ir.parse("\ufeff\ufeff" + TEXT)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("starling-plan 1", "starling-plan 3", "line 1: version 3"),
        ("ranks 1", "ranks x", "line 4: a whole number"),
        ("all_reduce", "all_produce", "line 3: no collective"),
        ("copy", "cpy", "line 11: the name of an instruction"),
        ("scratch[0:2] size", "scratch[0:3] size", "line 11: size and operands"),
        ("after 1.0", "after 1", "line 12: two numbers"),
        ("  block 1", "  block 2", "line 13: blocks should follow"),
        ("input[0:2] ->", "input[2:2] ->", "holds no chunk"),
        ("input[0:2] ->", "input[0:4294967296] ->", "line 11: 4294967296 is too large"),
        ("input[0:2] ->", "input[0:\u0662] ->", "line 11: chunks should stand here"),
        ("root 0", f"root {'9' * 5000}", f"line 5: {'9' * 20}... is too large"),
        ("in_place 0", "in_place 2", "line 6: in_place is 1 at most, not 2"),
        ("rank 0 scratch 2", "rank 0 scratch 2\nrank 1 scratch 0", "line 10: ranks should follow"),
    ],
)
def test_spoiled_texts_are_refused_by_both(wrong: str, right: str, message: str) -> None:
    spoiled = TEXT.replace(wrong, right, 1)
    with pytest.raises(ir.PlanTextError, match=re.escape(message)):
        ir.parse(spoiled)
    with pytest.raises(Exception, match="plan text, line"):
        native.verify(spoiled)


def test_numbers_of_ranks_that_no_plan_has() -> None:
    """They are refused before room is made for them."""
    for ranks in ("0", "4097", "4000000000"):
        spoiled = TEXT.replace("ranks 1", f"ranks {ranks}")
        with pytest.raises(ir.PlanTextError, match=f"line 4: a plan for {ranks} ranks; use 1 to 4096"):
            ir.parse(spoiled)
        with pytest.raises(Exception, match=f"a plan for {ranks} ranks"):
            native.verify(spoiled)
