"""The hierarchical all-reduce of GC3 (Fig. 3): rings inside the nodes, rings between them, pipelined by tiles."""

from __future__ import annotations

from starling.plans.ring import around, pass_round

from starling.lang import AllReduce, Program


def all_reduce(
    ranks: int, *, nodes: int = 2, instances: int = 1, local: int = 1, in_place: bool = False
) -> Program:
    """``ranks`` on ``nodes`` nodes, node by node. local: instances of what stays inside a node."""
    size = ranks // nodes
    if size * nodes != ranks:
        raise ValueError(f"{ranks} ranks on {nodes} nodes; the nodes must be equally large")
    program = Program("hierarchical", AllReduce(ranks, ranks, in_place=in_place), instances=instances)
    inside = [[n * size + g for g in range(size)] for n in range(nodes)]
    across = [[n * size + g for n in range(nodes)] for g in range(size)]
    with program.parallelize(local):
        for node in inside:
            around(program, node, 0, nodes, ch=0)
    for g, peers in enumerate(across):
        around(program, peers, g * nodes, 1, ch=1)
        for n, r in enumerate(peers):
            program.chunk(r, "input", g * nodes + n).copy(r, "output")
        pass_round(program, peers, g * nodes, 1, ch=1)
    with program.parallelize(local):
        for node in inside:
            pass_round(program, node, 0, nodes, ch=2)
    return program
