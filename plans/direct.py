"""Direct: the root and every other rank exchange a message."""

from __future__ import annotations

from starling.lang import Broadcast, Gather, Program, Reduce, Scatter, SendRecv


def broadcast(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("direct", Broadcast(ranks, root=root, in_place=in_place), instances=instances)
    c = program.chunk(root, "input", 0)
    for step in range(1, ranks + 1):  # the own output last: nobody waits for it
        c.copy((root + step) % ranks, "output", 0)
    return program


def reduce(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("direct", Reduce(ranks, root=root, in_place=in_place), instances=instances)
    c = program.chunk(root, "input", 0)
    for r in range(ranks):
        if r != root:
            c = c.reduce(program.chunk(r, "input", 0))
    c.copy(root, "output", 0)
    return program


def gather(ranks: int, *, root: int = 0, instances: int = 1) -> Program:
    program = Program("direct", Gather(ranks, root=root), instances=instances)
    for r in range(ranks):
        program.chunk(r, "input", 0).copy(root, "output", r)
    return program


def scatter(ranks: int, *, root: int = 0, instances: int = 1) -> Program:
    program = Program("direct", Scatter(ranks, root=root), instances=instances)
    for step in range(1, ranks + 1):
        r = (root + step) % ranks
        program.chunk(root, "input", r).copy(r, "output", 0)
    return program


def send_recv(ranks: int = 2, *, instances: int = 1) -> Program:
    program = Program("direct", SendRecv(ranks), instances=instances)
    program.chunk(0, "input", 0).copy(ranks - 1, "output", 0)
    return program
