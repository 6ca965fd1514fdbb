"""Lengths of chunks: when a count divides by nothing the last chunks of a part are shorter, and an instruction has to
name a chunk of the caller's that is as long as what it moves (docs/WIRE.md, "size")."""

from __future__ import annotations

from functools import cache

from starling.ir.plan import Slice
from starling.passes.moves import Layout

# (part, position in the part): chunks of one class are always equally long. src/plan/geometry.cc, length_class.
LengthClass = tuple[int, int]

EACH_RANKS_PART = {"all_gather", "gather", "reduce_scatter", "scatter"}


class Lengths:
    """Which slices of the caller's buffers are as long as what is moved."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._collective = layout.collective
        self.find = cache(self._find)
        self._places: dict[tuple[int, LengthClass, bool], list[tuple[str, int]]] = {}
        self._indexed: set[int] = set()

    def of(self, rank: int, buffer: str, index: int) -> LengthClass:
        group, inside = divmod(index, self._layout.pieces)
        kind = self._collective.kind
        is_input = buffer == "input"
        if kind in EACH_RANKS_PART:
            one_part = is_input == (kind in ("all_gather", "gather"))
            return (rank if one_part else group, inside)
        if kind == "all_to_all":
            pair = (rank, group) if is_input else (group, rank)
            return (pair[0] * self._collective.ranks + pair[1], inside)
        return (0, inside)

    def _find(self, rank: int, classes: tuple[LengthClass, ...]) -> Slice | None:
        """A slice of the rank's whose chunks have these lengths: whatever the parts' lengths, or if all are equal."""
        self._index(rank)
        for exact in (True, False):
            for buffer, index in self._places.get((rank, self._key(classes[0], exact), exact), ()):
                chunks = self._collective.chunks_of(buffer, rank) * self._layout.pieces
                if index + len(classes) > chunks // self._layout.chunks_per_group:
                    continue
                if all(
                    self._key(self.of(rank, buffer, index + k), exact) == self._key(wanted, exact)
                    for k, wanted in enumerate(classes)
                ):
                    return Slice(buffer, index, len(classes))
        return None

    def _index(self, rank: int) -> None:
        if rank in self._indexed:
            return
        self._indexed.add(rank)
        for buffer in ("output", "input"):
            chunks = self._collective.chunks_of(buffer, rank) // self._layout.chunks_per_group
            for index in range(chunks * self._layout.pieces):
                for exact in (True, False):
                    key = (rank, self._key(self.of(rank, buffer, index), exact), exact)
                    self._places.setdefault(key, []).append((buffer, index))

    @staticmethod
    def _key(length: LengthClass, exact: bool) -> LengthClass:
        return length if exact else (0, length[1])
