"""Binary trees: a logarithmic number of steps; tiles follow each other up and down as in a pipe."""

from __future__ import annotations

from starling.lang import AllReduce, Broadcast, Program, Reduce, Ref


def middle_of(count: int) -> int:
    """Where the root of so many ranks in a row stands: at an odd place, so that every inner rank does."""
    return (count // 2) | 1 if count > 1 else 0


def reduce_up(program: Program, ranks: list[int], index: int, ch: int = 0) -> Ref:
    """Reduces chunk ``index`` of all inputs on the rank in the middle; each half of the others is a tree of its own."""
    middle = middle_of(len(ranks))
    c = program.chunk(ranks[middle], "input", index)
    for half in (ranks[:middle], ranks[middle + 1 :]):
        if half:
            c = c.reduce(reduce_up(program, half, index, ch), ch=ch)
    return c


def send_down(c: Ref, ranks: list[int], ch: int = 0) -> None:
    """Gives the chunk of the rank in the middle to all others."""
    middle = middle_of(len(ranks))
    for half in (ranks[:middle], ranks[middle + 1 :]):
        if half:
            send_down(c.copy(half[middle_of(len(half))], "output", ch=ch), half, ch)


def double_tree(ranks: int, *, instances: int = 1, in_place: bool = False) -> Program:
    """Two trees, each with half of the data: the leaves of one are the inner ranks of the other."""
    program = Program("double_tree", AllReduce(ranks, 2, in_place=in_place), instances=instances)
    for tree in range(2):
        order = [(r + tree) % ranks for r in range(ranks)]
        c = reduce_up(program, order, tree, ch=tree)
        send_down(c.copy(c.rank, "output", tree), order, ch=tree)
    return program


def order_around(root: int, ranks: int) -> list[int]:
    """All ranks, with the root in the middle."""
    return [(root + r - middle_of(ranks)) % ranks for r in range(ranks)]


def broadcast(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("tree", Broadcast(ranks, root=root, in_place=in_place), instances=instances)
    c = program.chunk(root, "input", 0)
    c = c.copy(root, "output", 0)
    send_down(c, order_around(root, ranks))
    return program


def reduce(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    program = Program("tree", Reduce(ranks, root=root, in_place=in_place), instances=instances)
    reduce_up(program, order_around(root, ranks), 0).copy(root, "output", 0)
    return program
