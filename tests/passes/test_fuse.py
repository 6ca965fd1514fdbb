"""Goal: of what could be fused, the passes fuse what GC3 says (section 4.2), and keep to the program's channels.

Method: programs that leave a choice; the instructions of the rank that has it are looked at. What a fusion must not do
is in test_miscompilations.py.
"""

import pytest

from passes.wanted import Wanted
from starling import ir
from starling.lang import Program


def fused(plan: ir.Plan, rank: int) -> list[ir.Instruction]:
    return [i for block in plan.ranks[rank].blocks for i in block.instructions if i.receives and i.sends]


@pytest.mark.parametrize("longest_first", [True, False])
def test_of_several_sends_the_one_on_the_longest_path_is_passed_on(longest_first: bool) -> None:
    """Rank 1 gives what it gets to rank 2, where it stays, and to rank 3, from where it goes on to rank 4."""
    made = Program("choice", Wanted(5, 1, {(2, 0): (0, 0), (4, 0): (0, 0)}))
    c = made.chunk(0, "input", 0).copy(1, "output", 0)
    if not longest_first:
        c.copy(2, "output", 0)
    c.copy(3, "output", 0).copy(4, "output", 0)
    if longest_first:
        c.copy(2, "output", 0)
    plan = made.compile(fans=False)
    assert [[send.peer for send in i.sends] for i in fused(plan, 1)] == [[3]]
    assert [i.opcode.name for i in fused(plan, 3)] == ["recv_send"]


def chain(first: int | None, second: int | None) -> list[ir.Instruction]:
    """What rank 1 does with a message to rank 2 that comes and goes on these channels."""
    made = Program("chain", Wanted(3, 2, {(2, 0): (0, 0), (2, 1): (0, 1)}))
    made.chunk(0, "input", 0).copy(1, "scratch", 0, ch=first).copy(2, "output", 0, ch=second)
    made.chunk(0, "input", 1).copy(2, "output", 1, ch=0)  # so that there is a channel 0
    return [i for block in made.compile().ranks[1].blocks for i in block.instructions]


@pytest.mark.parametrize(("first", "second"), [(1, None), (None, 1), (1, 1)])
def test_a_fused_chain_has_one_channel(first: int | None, second: int | None) -> None:
    """Who names a channel for one of its messages names it for all."""
    (passed,) = chain(first, second)
    assert [c.channel for c in (*passed.receives, *passed.sends)] == [1, 1]


def test_what_comes_and_goes_on_different_channels_is_not_fused() -> None:
    assert [i.opcode.name for i in chain(0, 1)] == ["recv", "send"]
