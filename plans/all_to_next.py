"""AllToNext (GC3 section 7.4): every rank sends its buffer to the next one; the last sends nothing."""

from __future__ import annotations

from starling.lang import AllToNext, Program


def direct(ranks: int, *, instances: int = 1) -> Program:
    program = Program("all_to_next_direct", AllToNext(ranks), instances=instances)
    for r in range(ranks - 1):
        program.chunk(r, "input", 0).copy(r + 1, "output", 0)
    return program


def spread(ranks: int, *, nodes: int = 2, instances: int = 1) -> Program:
    """Between nodes all ranks of both carry a part, so that every link between them is used."""
    if nodes < 1 or ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    size = ranks // nodes
    program = Program("all_to_next", AllToNext(ranks, size), instances=instances)
    for r in range(ranks - 1):
        if (r + 1) % size != 0:
            program.chunk(r, "input", 0, size).copy(r + 1, "output", 0)
            continue
        for g in range(size):
            here, there = r + 1 - size + g, r + 1 + g
            c = program.chunk(r, "input", g)
            c = c.copy(here, "scratch", 0) if here != r else c
            c = c.copy(there, "scratch", 1, ch=1) if there != r + 1 else c.copy(r + 1, "output", g, ch=1)
            if there != r + 1:
                c.copy(r + 1, "output", g, ch=2)
    return program
