"""Rings: every rank talks to its two neighbours alone. One logical ring may be spread over several channels."""

from __future__ import annotations

from collections.abc import Sequence

from starling.lang import AllGather, AllReduce, Program, ReduceScatter


def around(program: Program, ring: Sequence[int], parts: range, ch: int = 0, channels: int = 1) -> None:
    """Reduces the r-th part of the ring's inputs on its r-th rank, in the input (GC3 Fig. 3b).

    parts: the first chunk of each; its step: how many chunks each has.
    """
    for r, index in enumerate(parts):
        first, *others = [*ring[r + 1 :], *ring[: r + 1]]
        c = program.chunk(first, "input", index, parts.step)
        for peer in others:
            c = program.chunk(peer, "input", index, parts.step).reduce(c, ch=ch + r % channels)


def pass_round(program: Program, ring: Sequence[int], parts: range, ch: int = 0, channels: int = 1) -> None:
    """Gives the r-th part of the r-th rank's output to all others of the ring."""
    for r, index in enumerate(parts):
        c = program.chunk(ring[r], "output", index, parts.step)
        for peer in [*ring[r + 1 :], *ring[:r]]:
            c = c.copy(peer, "output", ch=ch + r % channels)


def all_reduce(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    """A reduce-scatter that goes round once, then an all-gather."""
    program = Program("ring", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    around(program, range(ranks), range(ranks), channels=channels)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", r)
    pass_round(program, range(ranks), range(ranks), channels=channels)
    return program


def all_gather(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("ring", AllGather(ranks, in_place=in_place), instances=instances)
    for r in range(ranks):
        program.chunk(r, "input", 0).copy(r, "output", r)
    pass_round(program, range(ranks), range(ranks), channels=channels)
    return program


def reduce_scatter(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("ring", ReduceScatter(ranks, in_place=in_place), instances=instances)
    around(program, range(ranks), range(ranks), channels=channels)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", 0)
    return program
