"""All-to-all: directly, or in steps that put many small messages between nodes together (GC3 section 7.3)."""

from __future__ import annotations

from starling.lang import AllToAll, Program


def direct(ranks: int, *, instances: int = 1) -> Program:
    """One message for each pair."""
    program = Program("direct", AllToAll(ranks), instances=instances)
    for step in range(ranks):
        for r in range(ranks):
            peer = (r + step) % ranks
            program.chunk(r, "input", peer).copy(peer, "output", r)
    return program


def two_step(ranks: int, *, nodes: int = 2, instances: int = 1) -> Program:
    """What a node has for one rank of another is collected on that rank's counterpart, and crosses as one message."""
    if nodes < 1 or ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    size = ranks // nodes
    program = Program("two_step", AllToAll(ranks), instances=instances)
    for n in range(nodes):
        for g in range(size):
            for m in range(nodes):
                for i in range(size):
                    c = program.chunk(m * size + i, "input", n * size + g)
                    if n == m:
                        c.copy(n * size + g, "output", m * size + i)
                    else:
                        c.copy(m * size + g, "scratch", n * size + i)
                if n != m:
                    c = program.chunk(m * size + g, "scratch", n * size, size)
                    c.copy(n * size + g, "output", m * size, ch=1)
    return program


def three_step(ranks: int, *, nodes: int = 2, instances: int = 1) -> Program:
    """All that a node has for another crosses as one message: collected on one rank, sent, and given out."""
    if nodes < 1 or ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    size = ranks // nodes
    program = Program("three_step", AllToAll(ranks), instances=instances)
    for m in range(nodes):
        for n in range(nodes):
            gate, door = m * size + n % size, n * size + m % size
            for i in range(size):
                c = program.chunk(m * size + i, "input", n * size, size)
                if n == m:
                    for g in range(size):
                        c[g].copy(n * size + g, "output", m * size + i)
                else:
                    c.copy(gate, "scratch", (n * size + i) * size)
            if n != m:
                c = program.chunk(gate, "scratch", n * size * size, size * size)
                c = c.copy(door, "scratch", (nodes + m) * size * size, ch=1)
                for i in range(size):
                    for g in range(size):
                        c[i * size + g].copy(n * size + g, "output", m * size + i, ch=2)
    return program
