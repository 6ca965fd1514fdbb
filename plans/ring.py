"""Rings: every rank talks to its two neighbours alone. One logical ring may be spread over several channels."""

from __future__ import annotations

from starling.lang import AllGather, AllReduce, Program, ReduceScatter


def around(
    program: Program, ranks: list[int], offset: int, count: int, ch: int = 0, channels: int = 1
) -> None:
    """Reduces chunk r of the ring's inputs on its r-th rank, in the input (GC3 Fig. 3b)."""
    size = len(ranks)
    for r in range(size):
        index = offset + r * count
        c = program.chunk(ranks[(r + 1) % size], "input", index, count)
        for step in range(2, size + 1):
            c = program.chunk(ranks[(r + step) % size], "input", index, count).reduce(c, ch=ch + r % channels)


def pass_round(
    program: Program, ranks: list[int], offset: int, count: int, ch: int = 0, channels: int = 1
) -> None:
    """Gives chunk r of the r-th rank's output to all others of the ring."""
    size = len(ranks)
    for r in range(size):
        index = offset + r * count
        c = program.chunk(ranks[r], "output", index, count)
        for step in range(1, size):
            c = c.copy(ranks[(r + step) % size], "output", index, ch=ch + r % channels)


def all_reduce(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    """A reduce-scatter that goes round once, then an all-gather."""
    program = Program("ring", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    ring = list(range(ranks))
    around(program, ring, 0, 1, channels=channels)
    for r in ring:
        program.chunk(r, "input", r).copy(r, "output", r)
    pass_round(program, ring, 0, 1, channels=channels)
    return program


def all_gather(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("ring", AllGather(ranks, in_place=in_place), instances=instances)
    ring = list(range(ranks))
    for r in ring:
        program.chunk(r, "input", 0).copy(r, "output", r)
    pass_round(program, ring, 0, 1, channels=channels)
    return program


def reduce_scatter(ranks: int, *, channels: int = 1, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("ring", ReduceScatter(ranks, in_place=in_place), instances=instances)
    around(program, list(range(ranks)), 0, 1, channels=channels)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", 0)
    return program
