"""First pass: the trace as moves of pieces of chunks, replicated (GC3 section 5.1).

Replication happens here, on chunks, before anything looks at dependencies: whatever pieces overlap, the passes after
this one see it. With ``instances`` each instance owns one stretch of every part of a standard collective, so slices of
several chunks stay in one piece.
``parallelize`` cuts the run of chunks of one operation into equal stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import lcm

from starling.ir.plan import MOST_CHUNKS
from starling.lang.collectives import Collective
from starling.lang.errors import Place, ProgramError
from starling.lang.program import Operation, Program, Span


@dataclass(frozen=True, slots=True)
class Replica:
    """Which copy of the program, and which copy of the fragment: each has channels of its own."""

    instance: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """One operation on pieces. Spans count pieces."""

    kind: str
    source: Span
    destination: Span
    channel: int | None
    replica: Replica
    send_block: int | None
    receive_block: int | None
    place: Place


@dataclass(frozen=True)
class Layout:
    """How chunks become pieces: a group has ``pieces`` of them; an instance has ``parts`` of each chunk."""

    collective: Collective
    chunks_per_group: int
    instances: int
    parts: int
    scratch_chunks: tuple[int, ...]  # of each rank, as the program counts

    @property
    def pieces(self) -> int:
        """Pieces of a group: the plan's chunks_per_group."""
        return self.chunks_per_group * self.instances * self.parts

    def scratch_pieces(self, rank: int) -> int:
        return self.scratch_chunks[rank] * self.instances * self.parts

    def groups(self, buffer: str) -> int:
        c = self.collective
        chunks = c.input_chunks() if buffer == "input" else c.output_chunks()
        return chunks // self.chunks_per_group

    @property
    def _stretch(self) -> int:
        """Chunks that an instance has side by side. What a standard collective does to an element does not depend on
        its position in its part, so an instance may take one stretch of every part. In a collective of one's own every
        chunk keeps its place, and each instance has a stretch of each chunk."""
        return 1 if self.collective.kind == "custom" else self.chunks_per_group

    def chunk_of(self, piece: int) -> int:
        """Which chunk of the program's a piece of a caller's buffer belongs to."""
        stretch, inside = divmod(piece, self._stretch * self.instances * self.parts)
        return stretch * self._stretch + inside % (self._stretch * self.parts) // self.parts

    def pieces_of(self, span: Span, instance: int) -> list[int]:
        """Indices of the pieces of one instance of a span, in order."""
        group_chunks = self._stretch
        if span.buffer == "scratch":
            group_chunks = self.scratch_chunks[span.rank]
        found: list[int] = []
        for chunk in range(span.index, span.index + span.count):
            group, inside = divmod(chunk, group_chunks)
            first = (group * self.instances + instance) * group_chunks + inside
            found.extend(range(first * self.parts, (first + 1) * self.parts))
        return found


def layout_of(program: Program, chunks_per_group: int | None = None) -> Layout:
    collective = program.collective
    scratch = [0] * collective.ranks
    parts = 1
    for operation in program.operations:
        parts = lcm(parts, operation.parallel)
        for span in (operation.source, operation.destination):
            if span.buffer == "scratch":
                scratch[span.rank] = max(scratch[span.rank], span.index + span.count)
    per_group = chunks_per_group or collective.chunks_per_group()
    most = max(collective.input_chunks(), collective.output_chunks(), *scratch) * program.instances * parts
    if most > MOST_CHUNKS:
        raise ProgramError(
            program.place,
            f"{program.name} cuts a buffer into {most} chunks (instances and parallelize included); a plan has "
            f"{MOST_CHUNKS} at most",
        )
    return Layout(collective, per_group, program.instances, parts, tuple(scratch))


def replicate(program: Program, layout: Layout) -> list[Move]:
    """All instances of all operations, in an order that each instance agrees with."""
    return [
        move
        for operation in program.operations
        for instance in range(layout.instances)
        for move in _instances(operation, layout, instance)
    ]


def _instances(operation: Operation, layout: Layout, instance: int) -> Iterator[Move]:
    pairs = list(
        zip(
            layout.pieces_of(operation.source, instance),
            layout.pieces_of(operation.destination, instance),
            strict=True,
        )
    )
    stretch = len(pairs) // operation.parallel
    for part in range(operation.parallel):
        for source, destination, count in runs(pairs[part * stretch : (part + 1) * stretch]):
            yield Move(
                operation.kind,
                Span(operation.source.rank, operation.source.buffer, source, count),
                Span(operation.destination.rank, operation.destination.buffer, destination, count),
                operation.channel,
                Replica(instance, part),
                operation.send_block,
                operation.receive_block,
                operation.place,
            )


def runs(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Pairs of indices as stretches (first, first, count) in which both go up by one."""
    start: tuple[int, int] | None = None
    count = 0
    for a, b in pairs:
        if start is not None and (a, b) == (start[0] + count, start[1] + count):
            count += 1
            continue
        if start is not None:
            yield (*start, count)
        start, count = (a, b), 1
    if start is not None:
        yield (*start, count)
