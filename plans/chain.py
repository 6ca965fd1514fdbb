"""Chains: the tiles of one large message follow each other down a line of ranks."""

from __future__ import annotations

from starling.lang import Broadcast, Program, Reduce


def broadcast(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("chain", Broadcast(ranks, root=root, in_place=in_place), instances=instances)
    c = program.chunk(root, "input", 0)
    c = c.copy(root, "output", 0)
    for step in range(1, ranks):
        c = c.copy((root + step) % ranks, "output", 0)
    return program


def reduce(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("chain", Reduce(ranks, root=root, in_place=in_place), instances=instances)
    c = program.chunk((root - 1) % ranks, "input", 0)
    for step in range(2, ranks + 1):
        c = program.chunk((root - step) % ranks, "input", 0).reduce(c)
    c.copy(root, "output", 0)
    return program
