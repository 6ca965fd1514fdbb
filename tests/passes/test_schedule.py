"""Goal: a block does first what has the fewest messages before it, then what has the most behind it (GC3 section 5.2).

Method: programs whose trace has it the other way round; the order of one rank's block is looked at.
"""

from passes.wanted import Wanted
from starling.lang import Program


def peers_in_order(made: Program, rank: int) -> list[int]:
    """Whom the rank's only block speaks to, one instruction after the other."""
    (block,) = made.compile(fusion=False).ranks[rank].blocks
    return [(i.receives or i.sends)[0].peer for i in block.instructions if i.receives or i.sends]


def test_fewer_messages_before_come_first() -> None:
    """Rank 0 may send to rank 2 at once; what the trace has first, from rank 1 to rank 3, has to come."""
    made = Program("depth", Wanted(4, 2, {(3, 0): (1, 0), (2, 1): (0, 1)}))
    made.chunk(1, "input", 0).copy(0, "output", 0).copy(3, "output", 0)
    made.chunk(0, "input", 1).copy(2, "output", 1)
    assert peers_in_order(made, 0) == [2, 1, 3]


def test_more_messages_behind_come_first() -> None:
    """Rank 0's message to rank 2 goes on to rank 3; that to rank 1, which the trace has first, stays there."""
    made = Program("reverse", Wanted(4, 2, {(1, 0): (0, 0), (3, 1): (0, 1)}))
    made.chunk(0, "input", 0).copy(1, "output", 0)
    made.chunk(0, "input", 1).copy(2, "output", 1).copy(3, "output", 1)
    assert peers_in_order(made, 0) == [2, 1]
