"""What a collective of one's own must leave, in the plan's pieces: the plan carries it, whoever loads it proves it."""

from __future__ import annotations

from starling.ir.plan import Holding
from starling.lang.program import Span
from starling.lang.value import Value
from starling.passes.moves import Layout

Term = tuple[int | None, int]


def holdings(layout: Layout) -> tuple[Holding, ...]:
    """Of every output chunk that may not hold anything, neighbours that go up together in one entry."""
    collective = layout.collective
    found: list[Holding] = []
    for rank in range(collective.ranks):
        wanted: dict[int, tuple[Term, ...]] = {}
        for index in range(collective.chunks_of("output", rank)):
            value = collective.expected(rank, index)
            if value is not None:
                wanted.update(_of_chunk(layout, rank, index, value))
        for piece in sorted(wanted):
            last = found[-1] if found else None
            if last is not None and last.rank == rank and _continues(last, piece, wanted[piece]):
                found[-1] = Holding(rank, last.chunk, last.chunks + 1, last.terms)
            else:
                found.append(Holding(rank, piece, 1, wanted[piece]))
    return tuple(found)


def _of_chunk(layout: Layout, rank: int, index: int, value: Value) -> dict[int, tuple[Term, ...]]:
    """Of each piece of an output chunk."""
    leaves = sorted(value.leaves().elements())
    pieces: dict[int, tuple[Term, ...]] = {}
    for instance in range(layout.instances):
        own = layout.pieces_of(Span(rank, "output", index), instance)
        sources = [layout.pieces_of(Span(source, "input", chunk), instance) for source, chunk in leaves]
        for k, piece in enumerate(own):
            terms = [(source, at[k]) for (source, _), at in zip(leaves, sources, strict=True)]
            pieces[piece] = _shortened(terms, layout.collective.ranks)
    return pieces


def _shortened(terms: list[tuple[int, int]], ranks: int) -> tuple[Term, ...]:
    """One term for a chunk of every rank, once each."""
    first = terms[0][1]
    if ranks > 1 and terms == [(rank, first) for rank in range(ranks)]:
        return ((None, first),)
    return tuple(terms)


def _continues(last: Holding, piece: int, terms: tuple[Term, ...]) -> bool:
    return piece == last.chunk + last.chunks and terms == tuple(
        (rank, chunk + last.chunks) for rank, chunk in last.terms
    )
