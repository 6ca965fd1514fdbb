"""Split: what has a root is cut among the other ranks, so that every link carries a part."""

from __future__ import annotations

from starling.lang import Broadcast, Program, Reduce


def owners_of(ranks: int, root: int) -> list[int]:
    """By chunk: the ranks after the root; a rank alone keeps its own."""
    return [(root + 1 + k) % ranks for k in range(max(ranks - 1, 1))]


def broadcast(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    """The root gives each other rank a part, and that one gives it to the rest."""
    owners = owners_of(ranks, root)
    program = Program(
        "split", Broadcast(ranks, len(owners), root=root, in_place=in_place), instances=instances
    )
    for k, owner in enumerate(owners):
        c = program.chunk(root, "input", k).copy(owner, "output", k)
        for other in owners:
            if other != owner:
                c.copy(other, "output", k)
    if ranks > 1:
        for k in range(len(owners)):  # nobody waits for it
            program.chunk(root, "input", k).copy(root, "output", k)
    return program


def reduce(ranks: int, *, root: int = 0, instances: int = 1, in_place: bool = False) -> Program:
    """Each other rank reduces one part of all inputs, in the order of the ranks, for the root."""
    owners = owners_of(ranks, root)
    program = Program("split", Reduce(ranks, len(owners), root=root, in_place=in_place), instances=instances)
    for k, owner in enumerate(owners):
        parts = [
            program.chunk(r, "input", k)
            if r == owner
            else program.chunk(r, "input", k).copy(owner, "scratch", r * len(owners) + k)
            for r in range(ranks)
        ]
        c = parts[0]
        for part in parts[1:]:
            c = c.reduce(part)
        c.copy(root, "output", k)
    return program
