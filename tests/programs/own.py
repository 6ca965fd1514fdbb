"""Collectives that the library does not know, and programs for them."""

from starling import lang


class Neighbours(lang.Collective):
    """The own buffer and the right neighbour's, reduced."""

    def expected(self, rank: int, index: int) -> lang.Value:
        return lang.reduction([(rank, index), ((rank + 1) % self.ranks, index)])


class Collected(lang.Collective):
    """Two groups: the left neighbour's buffer, and the sum of all."""

    def output_chunks(self) -> int:
        return 2

    def expected(self, rank: int, index: int) -> lang.Value:
        if index == 0:
            return lang.leaf((rank - 1) % self.ranks, 0)
        return lang.reduction((r, 0) for r in range(self.ranks))


class Everything(lang.Collective):
    """An all-reduce that the library does not know as one."""

    def expected(self, rank: int, index: int) -> lang.Value:
        return lang.reduction((r, index) for r in range(self.ranks))


def neighbours(ranks: int) -> lang.Program:
    made = lang.Program("neighbours", Neighbours(ranks))
    for r in range(ranks):
        made.chunk((r + 1) % ranks, "input", 0).copy(r, "scratch", 0)
    for r in range(ranks):
        made.chunk(r, "input", 0).copy(r, "output", 0).reduce(made.chunk(r, "scratch", 0))
    return made


def collected(ranks: int) -> lang.Program:
    made = lang.Program("collected", Collected(ranks))
    total = made.chunk(0, "input", 0).copy(0, "scratch", 0)
    for r in range(1, ranks):
        total = made.chunk(r, "input", 0).copy(r, "scratch", 0).reduce(total)
    for r in range(ranks):
        made.chunk((r - 1) % ranks, "input", 0).copy(r, "output", 0)
        total.copy(r, "output", 1)
    return made


def everything(ranks: int) -> lang.Program:
    made = lang.Program("everything", Everything(ranks, in_place=True))
    total = made.chunk(0, "input", 0)
    for r in range(1, ranks):
        total = made.chunk(r, "input", 0).reduce(total)
    for r in range(ranks - 1):
        total.copy(r, "output", 0)
    return made
