"""A collective that is nothing but a list of what shall be where."""

from starling.lang import Collective, Value, leaf


class Wanted(Collective):
    """``held``: by rank and index of the output, the rank and the index of the input that it shall hold."""

    def __init__(self, ranks: int, chunks: int, held: dict[tuple[int, int], tuple[int, int]]) -> None:
        super().__init__(ranks, chunks)
        self._held = held

    def expected(self, rank: int, index: int) -> Value | None:
        return leaf(*self._held[rank, index]) if (rank, index) in self._held else None
