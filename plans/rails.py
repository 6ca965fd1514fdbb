"""Rails: ranks of one place on each node are a column, and only they speak across nodes. A ring for each column, and
one inside each node: a part crosses into a node once."""

from __future__ import annotations

from starling.lang import AllGather, AllReduce, Program, ReduceScatter, Ref


def nodes_of(ranks: int, nodes: int) -> int:
    """The ranks of a node."""
    if nodes < 1 or ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    return ranks // nodes


def collect(program: Program, ranks: int, nodes: int) -> None:
    """Rank r's input chunk r becomes the sum of all: round each node's ring to its place, then down the column."""
    size = nodes_of(ranks, nodes)
    for r in range(ranks):
        node, place = divmod(r, size)
        total: Ref | None = None
        for n in range(1, nodes + 1):
            first = (node + n) % nodes * size
            c = program.chunk(first + (place + 1) % size, "input", r)
            for s in range(2, size + 1):
                c = program.chunk(first + (place + s) % size, "input", r).reduce(c)
            total = c if total is None else c.reduce(total)


def spread(ranks: int, nodes: int, r: int, c: Ref) -> None:
    """Rank r's part, which lies in c, goes down its column and round every node."""
    size = nodes_of(ranks, nodes)
    node, place = divmod(r, size)
    for n in range(nodes):
        first = (node + n) % nodes * size
        c = c.copy(first + place, "output", r) if n else c
        passed = c
        for s in range(1, size):
            passed = passed.copy(first + (place + s) % size, "output", r)


def all_reduce(ranks: int, *, nodes: int = 2, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("rails", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    collect(program, ranks, nodes)
    for r in range(ranks):
        spread(ranks, nodes, r, program.chunk(r, "input", r).copy(r, "output", r))
    return program


def all_gather(ranks: int, *, nodes: int = 2, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("rails", AllGather(ranks, in_place=in_place), instances=instances)
    for r in range(ranks):
        c = program.chunk(r, "input", 0)
        spread(ranks, nodes, r, c)
        c.copy(r, "output", r)
    return program


def reduce_scatter(ranks: int, *, nodes: int = 2, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("rails", ReduceScatter(ranks, in_place=in_place), instances=instances)
    collect(program, ranks, nodes)
    for r in range(ranks):
        program.chunk(r, "input", r).copy(r, "output", 0)
    return program
