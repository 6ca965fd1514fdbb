"""Leaders: one rank of each node speaks for it, since a message between nodes costs far more than one inside."""

from __future__ import annotations

from starling.plans.rails import nodes_of

from starling.lang import AllReduce, Broadcast, Program, Reduce


def followers(leader: int, size: int) -> list[int]:
    """The other ranks of its node."""
    first = leader // size * size
    return [r for r in range(first, first + size) if r != leader]


def leaders_of(ranks: int, size: int, root: int) -> list[int]:
    """Of each node: the root in its own, the first rank in the others."""
    return [root if first == root // size * size else first for first in range(0, ranks, size)]


def all_reduce(ranks: int, *, nodes: int = 2, instances: int = 1, in_place: bool = False) -> Program:
    """The nodes' sums come about at the leaders; every leader gets all of them, and adds them in one order."""
    program = Program("leaders", AllReduce(ranks, in_place=in_place), instances=instances)
    size = nodes_of(ranks, nodes)
    leaders = leaders_of(ranks, size, 0)
    for n, leader in enumerate(leaders):
        c = program.chunk(leader, "input", 0)
        for r in followers(leader, size):
            c = c.reduce(program.chunk(r, "input", 0))
        for other in leaders:
            if other != leader:
                c.copy(other, "scratch", n)
    for leader in leaders:
        c = program.chunk(leader, "input", 0)
        for n, other in enumerate(leaders):
            if other != leader:
                c = c.reduce(program.chunk(leader, "scratch", n))
        c = c.copy(leader, "output", 0)
        for r in followers(leader, size):
            c.copy(r, "output", 0)
    return program


def broadcast(
    ranks: int, *, root: int = 0, nodes: int = 2, instances: int = 1, in_place: bool = False
) -> Program:
    """To the leaders first: they are far."""
    program = Program("leaders", Broadcast(ranks, root=root, in_place=in_place), instances=instances)
    size = nodes_of(ranks, nodes)
    own = program.chunk(root, "input", 0)
    held = {
        leader: own.copy(leader, "output", 0) for leader in leaders_of(ranks, size, root) if leader != root
    }
    for leader, c in {**held, root: own}.items():
        for r in followers(leader, size):
            c.copy(r, "output", 0)
    own.copy(root, "output", 0)
    return program


def reduce(
    ranks: int, *, root: int = 0, nodes: int = 2, instances: int = 1, in_place: bool = False
) -> Program:
    """A node's sum comes about at its leader; the root adds them to what its own node has."""
    program = Program("leaders", Reduce(ranks, root=root, in_place=in_place), instances=instances)
    size = nodes_of(ranks, nodes)
    c = program.chunk(root, "input", 0)
    for r in followers(root, size):
        c = c.reduce(program.chunk(r, "input", 0))
    for leader in leaders_of(ranks, size, root):
        if leader == root:
            continue
        theirs = program.chunk(leader, "input", 0)
        for r in followers(leader, size):
            theirs = theirs.reduce(program.chunk(r, "input", 0))
        c = c.reduce(theirs)
    c.copy(root, "output", 0)
    return program
