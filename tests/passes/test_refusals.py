"""Goal: what the verifier says of a compiled program names the program's lines.

Method: a program for each kind of refusal that the language itself does not see; the line is looked up in this file.
"""

from pathlib import Path

import pytest

from starling import errors
from starling.lang import AllGather, AllReduce, Program
from starling.passes import RefusedError


def line_of(mark: str) -> int:
    """Of the line of this file that ends with the mark."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return found


def in_another_order() -> Program:
    """Rank 1 adds up from left to right, rank 0 pairs of pairs."""
    made = Program("order", AllReduce(4))
    a = made.chunk(0, "input", 0).copy(0, "output", 0).reduce(made.chunk(1, "input", 0))
    b = made.chunk(2, "input", 0).copy(2, "scratch", 0).reduce(made.chunk(3, "input", 0))
    c = made.chunk(1, "input", 0).copy(1, "output", 0)
    for rank in (0, 2, 3):
        c = c.reduce(made.chunk(rank, "input", 0))  # the other order
    a = a.reduce(b)
    for rank in (2, 3):
        a.copy(rank, "output", 0)
    return made


def overwritten_while_it_is_read() -> Program:
    """Rank 1 reads what rank 0 puts aside for it, and rank 0 puts aside the next chunk meanwhile."""
    made = Program("pulled", AllGather(2, 2), protocol="pull")
    for index in range(2):
        made.chunk(0, "input", index).copy(0, "scratch", 0)  # put aside
        made.chunk(0, "scratch", 0).copy(1, "output", index)
    for index in range(2):
        made.chunk(0, "input", index).copy(0, "output", index)
        made.chunk(1, "input", index).copy(0, "output", 2 + index)
        made.chunk(1, "input", index).copy(1, "output", 2 + index)
    return made


@pytest.mark.parametrize(
    ("make", "rule", "mark"),
    [
        (in_another_order, "same_order", "the other order"),
        (overwritten_while_it_is_read, "pull", "put aside"),
    ],
)
@pytest.mark.parametrize("fusion", [True, False])
def test_a_refusal_names_the_line(make, rule: str, mark: str, fusion: bool) -> None:
    with pytest.raises(RefusedError, match=rf"\(rule {rule}\)") as caught:
        make().compile(fusion=fusion)
    assert isinstance(caught.value, errors.InvalidArgumentError)
    assert caught.value.place.file == __file__
    assert caught.value.place.line == line_of(mark), caught.value
    assert str(caught.value).startswith(f"{__file__}:{line_of(mark)}: plan ")
