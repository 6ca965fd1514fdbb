"""What a chunk holds, as a symbol: the multiset of input chunks that were reduced into it.

A value keeps the sum of random words of its leaves: two values with equal sums and equally many leaves are equal
multisets (but for one chance in 2^128), however they were bracketed. Which leaves they are is found again from the
operands when a message needs it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

Leaf = tuple[int, int]  # rank, index into its input

_MASK = (1 << 128) - 1


@cache
def _word(rank: int, index: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{rank}.{index}".encode(), digest_size=16).digest(), "little")


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One input chunk, or the reduction of two values."""

    word: int
    count: int  # leaves, with repetition
    first: Leaf  # the least leaf: operands of a reduction are put in its order, so that all ranks agree
    left: Value | None = None
    right: Value | None = None

    @staticmethod
    def leaf(rank: int, index: int) -> Value:
        return Value(_word(rank, index), 1, (rank, index))

    def reduced_with(self, other: Value) -> Value:
        word = (self.word + other.word) & _MASK
        return Value(word, self.count + other.count, min(self.first, other.first), self, other)

    def same_as(self, other: Value) -> bool:
        return self.word == other.word and self.count == other.count

    def leaves(self) -> Counter[Leaf]:
        found: Counter[Leaf] = Counter()
        open_values: list[Value] = [self]
        while open_values:
            value = open_values.pop()
            if value.left is None or value.right is None:
                found[value.first] += 1
            else:
                open_values += [value.left, value.right]
        return found

    def __str__(self) -> str:
        named = sorted(self.leaves().items())
        text = [
            f"rank {rank} input[{index}]" + (f" ({times} times)" if times > 1 else "")
            for (rank, index), times in named[:6]
        ]
        return " + ".join(text) + (f" + {len(named) - 6} more" if len(named) > 6 else "")


def reduction(leaves: Iterable[Leaf]) -> Value:
    """The value that all of these input chunks reduce to."""
    values = [Value.leaf(rank, index) for rank, index in leaves]
    if not values:
        raise ValueError("a reduction of no chunks; name one or more")
    total = values[0]
    for value in values[1:]:
        total = total.reduced_with(value)
    return total
