"""All pairs: every rank talks to every other one, in one or two steps (GC3 section 7.1.2)."""

from __future__ import annotations

from starling.lang import AllGather, AllReduce, Program, ReduceScatter


def one_shot(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    """Everybody gets every input, and reduces them all: one step, for small buffers."""
    program = Program("one_shot", AllReduce(ranks, in_place=in_place), instances=instances)
    for r in range(ranks):
        for peer in range(ranks):
            if peer != r:
                program.chunk(peer, "input", 0).copy(r, "scratch", peer)
    for r in range(ranks):
        c = program.chunk(r, "input", 0)
        for peer in range(ranks):
            if peer != r:
                c = c.reduce(program.chunk(r, "scratch", peer))
        c.copy(r, "output", 0)
    return program


def collect(program: Program, ranks: int) -> None:
    """Rank r's input chunk r becomes the reduction of all inputs' chunk r."""
    for r in range(ranks):
        c = program.chunk(r, "input", r)
        for peer in range(ranks):
            if peer != r:
                c = c.reduce(program.chunk(peer, "input", r).copy(r, "scratch", peer))


def spread(program: Program, ranks: int) -> None:
    """Rank r's output chunk r goes to everybody."""
    for r in range(ranks):
        c = program.chunk(r, "output", r)
        for peer in range(ranks):
            if peer != r:
                c.copy(peer, "output", r)


def two_shot(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    """Everybody reduces one part for all, and gives it to all."""
    program = Program("two_shot", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    collect(program, ranks)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", r)
    spread(program, ranks)
    return program


def reduce_scatter(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("all_pairs", ReduceScatter(ranks, in_place=in_place), instances=instances)
    collect(program, ranks)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", 0)
    return program


def all_gather(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("all_pairs", AllGather(ranks, in_place=in_place), instances=instances)
    for r in range(ranks):
        c = program.chunk(r, "input", 0)
        for step in range(1, ranks + 1):  # the own part last: nobody waits for it
            c.copy((r + step) % ranks, "output", r)
    return program
