"""Recursive halving, then doubling: twice log2(n) steps, and each byte moved as seldom as in a ring."""

from __future__ import annotations

from starling.lang import AllReduce, Program


def all_reduce(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    """Ranks beyond the largest power of two lend their input to a partner, and get its output."""
    power = 1 << (ranks.bit_length() - 1)
    collective = AllReduce(ranks, power, in_place=in_place)
    program = Program("halving_doubling", collective, instances=instances)
    for r in range(power, ranks):
        program.chunk(r - power, "input", 0, power).reduce(program.chunk(r, "input", 0, power))
    distance = power // 2
    while distance:
        for r in range(power):
            kept = r & -distance
            theirs = program.chunk(r ^ distance, "input", kept, distance)
            program.chunk(r, "input", kept, distance).reduce(theirs)
        distance //= 2
    for r in range(power):
        program.chunk(r, "input", r).copy(r, "output", r)
    distance = 1
    while distance < power:
        for r in range(power):
            program.chunk(r, "output", r & -distance, distance).copy(r ^ distance, "output")
        distance *= 2
    for r in range(power, ranks):
        program.chunk(r - power, "output", 0, power).copy(r, "output")
    return program
