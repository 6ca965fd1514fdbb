"""Goal: what the verifier says of a compiled program names the program's lines.

Method: a program for each kind of refusal that the language itself does not see; the line is looked up in this file.
"""

import re
from pathlib import Path

import pytest

from starling import errors
from starling.ir.plan import MOST_BLOCKS, MOST_CHANNELS, MOST_RANKS
from starling.lang import AllGather, AllReduce, Program
from starling.lang.errors import ProgramError
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


def too_many(ch: bool = False, by_hand: bool = False, chunks: int = 1, instances: int = 1) -> Program:
    made = Program("many", AllReduce(2, chunks, in_place=True), instances=instances)
    for k in range(chunks):
        how = {"ch": k} if ch else {}
        how |= {"sendtb": k, "recvtb": k} if by_hand else {}
        c = made.chunk(1, "input", k).reduce(made.chunk(0, "input", k), **how)  # sums of rank 1
        c.copy(0, "output", k, **how)
    return made


@pytest.mark.parametrize(
    ("made", "options", "told"),
    [
        (too_many(instances=65), {}, r"rank 0 gets 65 blocks \(one for every channel and instance\)"),
        (too_many(instances=65), {"blocks": 65}, "rank 0 gets 65 blocks"),
        (
            too_many(instances=65),
            {"policy": "connections"},
            r"rank 0 gets 130 blocks \(one for every connection\)",
        ),
        (
            too_many(True, True, 33, 2),
            {},
            r"rank 0 gets 66 blocks \(one for every sendtb or recvtb, and instance\)",
        ),
        (too_many(True, False, 257), {"blocks": 300}, "the program has 257 channels"),
        (too_many(True, False, 257), {}, "the program has 257 channels"),
    ],
)
def test_more_than_a_rank_has_is_told_at_its_line(made: Program, options: dict, told: str) -> None:
    with pytest.raises(ProgramError, match=told) as caught:
        made.compile(**options)
    assert str(caught.value).startswith(f"{__file__}:{line_of('sums of rank 1')}: ")
    assert len(made.compile(blocks=64).ranks[0].blocks) <= 64


def test_what_a_plan_can_have_is_what_the_library_says(repository_root: Path) -> None:
    """Names and ranks are told where the program begins."""
    header = (repository_root / "src/plan/builder.h").read_text()
    for name, most in (("Ranks", MOST_RANKS), ("Blocks", MOST_BLOCKS), ("Channels", MOST_CHANNELS)):
        assert re.search(rf"kMaxPlan{name} = (\d+);", header)[1] == str(most)  # type: ignore[index]
    for name, ranks, told in (
        ("a b", 2, "the name 'a b'; use 1 to 128 visible ASCII characters"),
        ("", 2, "the name ''; use"),
        ("wide", 4097, "wide has 4097 ranks; a plan has 4096 at most"),
    ):
        with pytest.raises(ProgramError, match=f"test_refusals.py:.*{told}"):
            Program(name, AllReduce(ranks))


def test_two_blocks_of_a_connection_are_told() -> None:
    made = Program("two", AllGather(2, 2))
    made.chunk(0, "input", 0).copy(1, "output", 0, sendtb=1, recvtb=1)
    made.chunk(0, "input", 1).copy(1, "output", 1)
    for rank in range(2):
        made.chunk(rank, "input", 0, 2).copy(rank, "output", 2 * rank)
    made.chunk(1, "input", 0, 2).copy(0, "output", 2)
    with pytest.raises(
        ProgramError, match=r"a block of the compiler's choice of rank 0 sends on .* as block 1 does at"
    ):
        made.compile()
