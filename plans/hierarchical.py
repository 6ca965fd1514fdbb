"""The hierarchical all-reduce of GC3 (Fig. 3): rings inside the nodes, rings between them, pipelined by tiles."""

from __future__ import annotations

from starling.plans.ring import around, pass_round

from starling.lang import AllReduce, Program


def all_reduce(
    ranks: int, *, nodes: int = 2, instances: int = 1, local: int = 1, in_place: bool = False
) -> Program:
    """``ranks`` on ``nodes`` nodes, node by node. local: instances of what stays inside a node."""
    if nodes < 1 or ranks % nodes:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    program = Program("hierarchical", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    size = ranks // nodes
    with program.parallelize(local):
        for first in range(0, ranks, size):
            around(program, range(first, first + size), range(0, ranks, nodes), ch=0)
    for g in range(size):
        around(program, range(g, ranks, size), range(g * nodes, (g + 1) * nodes), ch=1)
        for n in range(nodes):
            program.chunk(n * size + g, "input", g * nodes + n).copy(n * size + g, "output")
        pass_round(program, range(g, ranks, size), range(g * nodes, (g + 1) * nodes), ch=1)
    with program.parallelize(local):
        for first in range(0, ranks, size):
            pass_round(program, range(first, first + size), range(0, ranks, nodes), ch=2)
    return program
