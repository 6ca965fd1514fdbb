"""Goal: the language says what is wrong with a program, at the user's line.

Method: small programs with one mistake each; the error names this file and the line where the mistake stands.
"""

import inspect

import pytest

from starling import ir, lang
from starling.lang import AllGather, AllReduce, Collective, Program, ReduceScatter, Value, leaf


def line() -> int:
    """The line of whoever calls."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def assert_at(error: lang.ProgramError, number: int) -> None:
    assert error.place.file == __file__
    assert error.place.line == number
    assert str(error).startswith(f"{__file__}:{number}: ")


def test_a_stale_reference_names_both_lines() -> None:
    program = Program("stale", AllReduce(2, in_place=True))
    old = program.chunk(0, "input", 0)
    other = program.chunk(1, "input", 0)
    program.chunk(0, "input", 0).reduce(other)
    made_stale = line() - 1
    with pytest.raises(
        lang.StaleReferenceError, match="stale: rank 0 input\\[0\\] was overwritten at"
    ) as caught:
        old.copy(1, "scratch", 0)
    assert_at(caught.value, line() - 1)
    assert f"{__file__}:{made_stale}" in str(caught.value)


def test_a_reference_of_several_chunks_is_stale_when_one_is() -> None:
    program = Program("stale", AllReduce(2, 4, in_place=True))
    both = program.chunk(0, "input", 0, 2)
    program.chunk(1, "input", 1).copy(0, "input", 1)
    with pytest.raises(lang.StaleReferenceError, match="input\\[1\\]"):
        both.copy(1, "scratch", 0)
    both[0].copy(1, "scratch", 0)


def test_an_uninitialised_chunk() -> None:
    program = Program("nothing", AllReduce(2))
    program.chunk(0, "input", 0).copy(1, "scratch", 0)
    with pytest.raises(
        lang.UninitialisedChunkError, match="rank 1 scratch\\[1\\] holds nothing yet"
    ) as caught:
        program.chunk(1, "scratch", 0, 2)
    assert_at(caught.value, line() - 1)
    with pytest.raises(lang.UninitialisedChunkError, match="output"):
        program.chunk(0, "output", 0)


def test_overlapping_local_copies() -> None:
    program = Program("overlap", AllReduce(2, 4, in_place=True))
    c = program.chunk(0, "input", 0, 3)
    with pytest.raises(lang.ProgramError, match="overlap in part") as caught:
        c.copy(0, "input", 1)
    assert_at(caught.value, line() - 1)
    # In place, input and output are one memory, also under two names.
    with pytest.raises(lang.ProgramError, match="overlap in part"):
        c.copy(0, "output", 1)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda p: p.chunk(2, "input", 0), "ranks 0 to 1"),
        (lambda p: p.chunk(0, "in", 0), "no buffer is called 'in'"),
        (lambda p: p.chunk(0, "input", 2), "out of bounds: the input has 2 chunks"),
        (lambda p: p.chunk(0, "input", 0).copy(1, "output", 2), "out of bounds"),
        (lambda p: p.chunk(0, "input", 0, 0), "holds no chunk"),
        (lambda p: p.chunk(0, "input", 0).copy(1, "output", 0, ch=-1), "ch is -1"),
        (lambda p: p.chunk(0, "input", 0).reduce(p.chunk(1, "input", 0, 2)), "not equally long"),
        (lambda p: p.chunk(0, "input", 0).reduce(p.chunk(0, "input", 0)), "counts it twice"),
        (lambda p: p.chunk(0, "input", 0)[1], "holds no chunk"),
        (lambda p: p.chunk(0, "input", 0).copy(1, "output"), None),
    ],
)
def test_wrong_operands(use, message: str | None) -> None:
    program = Program("wrong", AllReduce(2, 2))
    if message is None:
        use(program)
        return
    with pytest.raises(lang.ProgramError, match=message):
        use(program)


def test_references_of_another_program() -> None:
    one, two = Program("one", AllReduce(2)), Program("two", AllReduce(2))
    with pytest.raises(lang.ProgramError, match="another program, 'one'"):
        two.chunk(0, "input", 0).reduce(one.chunk(1, "input", 0))


def test_a_collective_that_moves_has_nothing_to_reduce() -> None:
    program = Program("moves", AllGather(2))
    with pytest.raises(lang.ProgramError, match="nothing to reduce"):
        program.chunk(0, "input", 0).reduce(program.chunk(1, "input", 0))


def test_the_postcondition_names_line_and_values() -> None:
    program = Program("half", AllReduce(2))
    for rank in range(2):
        program.chunk(rank, "input", 0).copy(rank, "output", 0)
    wrong = line() - 1
    with pytest.raises(lang.PostconditionError) as caught:
        program.compile()
    assert_at(caught.value, wrong)
    assert "rank 0 output[0] holds rank 0 input[0]" in str(caught.value)
    assert "wants rank 0 input[0] + rank 1 input[0]" in str(caught.value)


def test_a_contribution_that_is_added_twice() -> None:
    program = Program("twice", AllReduce(2, in_place=True))
    c = program.chunk(1, "input", 0).copy(0, "scratch", 0)
    s = program.chunk(0, "input", 0).reduce(c)
    s = s.reduce(program.chunk(0, "scratch", 0))
    s.copy(1, "output", 0)
    with pytest.raises(lang.PostconditionError, match="rank 1 input\\[0\\] \\(2 times\\)"):
        program.compile()


class Swap(Collective):
    """Pairs of ranks exchange their buffers; a collective as users write them."""

    def expected(self, rank: int, index: int) -> Value:
        return leaf(rank ^ 1, index)


def swap(ranks: int) -> Program:
    program = Program("swap", Swap(ranks, 2))
    for rank in range(ranks):
        program.chunk(rank, "input", 0, 2).copy(rank ^ 1, "output", 0)
    return program


def test_a_collective_of_ones_own() -> None:
    plan = swap(4).compile()
    assert plan.collective == "custom"
    with pytest.raises(lang.PostconditionError, match="Swap over 2 ranks wants"):
        Program("idle", Swap(2)).check()


class Reverse(Collective):
    """Rank 0's chunks in reverse order: chunks change their position."""

    def expected(self, rank: int, index: int) -> Value:
        return leaf(0, self.chunks - 1 - index)


def test_a_collective_that_does_not_say_what_it_computes() -> None:
    class Silent(Collective):
        pass

    class Pairs(Collective):
        def expected(self, rank: int, index: int) -> Value | None:
            return (rank, index)  # type: ignore[return-value]

    for collective, told in (
        (Silent(2), r"Silent does not say what its output must hold; give it expected\(rank, index\)"),
        (Pairs(2), r"Pairs\.expected\(0, 0\) gives \(0, 0\); use leaf\(rank, index\), reduction"),
    ):
        program = Program("own", collective)
        program.chunk(0, "input", 0).copy(1, "output", 0)
        with pytest.raises(lang.ProgramError, match=rf"test_language\.py:\d+: {told}"):
            program.compile()


def test_chunks_may_change_their_position_in_custom_collectives() -> None:
    program = Program("reverse", Reverse(2, 3))
    for rank in range(2):
        for index in range(3):
            program.chunk(0, "input", index).copy(rank, "output", 2 - index)
    plan = program.compile()
    assert (plan.chunks_per_group, plan.input_groups) == (1, 3)
    with pytest.raises(lang.ProgramError, match="differ in length when the count does not divide"):
        turned = Program("turned", AllReduce(1, 2))
        turned.chunk(0, "input", 0).copy(0, "output", 1)
        turned.chunk(0, "output", 1).copy(0, "output", 0)
        turned.check = lambda: None  # type: ignore[method-assign]
        turned.compile()


def test_programs_may_write_into_their_input_and_callers_keep_theirs() -> None:
    program = Program("scratch", ReduceScatter(2))
    c = program.chunk(0, "input", 1)
    program.chunk(1, "input", 1).reduce(c).copy(1, "output", 0)
    c = program.chunk(1, "input", 0)
    program.chunk(0, "input", 0).reduce(c).copy(0, "output", 0)
    for rank in program.compile().ranks:
        for block in rank.blocks:
            assert all(i.destination is None or i.destination.buffer != "input" for i in block.instructions)


def test_fragments_nest_and_end() -> None:
    program = Program("nested", AllGather(2))
    with program.parallelize(2), program.parallelize(3):
        program.chunk(0, "input", 0).copy(1, "output", 0)
    program.chunk(1, "input", 0).copy(0, "output", 1)
    assert [operation.parallel for operation in program.operations] == [6, 1]
    for rank in range(2):
        program.chunk(rank, "input", 0).copy(rank, "output", rank)
    plan = program.compile()
    assert plan.chunks_per_group == 6
    channels = {c.channel for b in plan.ranks[0].blocks for i in b.instructions for c in i.sends}
    assert len(channels) == 6
    assert ir.verify(plan) == 1
