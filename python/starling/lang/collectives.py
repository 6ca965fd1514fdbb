"""What a program computes: the shape of its buffers (signature) and what they hold at the end (postcondition).

A collective of your own is a subclass of ``Collective`` that says ``input_chunks``, ``output_chunks`` and
``expected``. Chunks of a group (a rank's part in all_gather, say) are counted by ``chunks``.
"""

from __future__ import annotations

from math import gcd

from starling.ir.plan import REDUCING, ROOTED
from starling.lang.value import Leaf, Value, reduction


class Collective:
    """Signature and postcondition. ``kind`` is a collective of the library; "custom" is anything else.

    ranks: how many. chunks: chunks of a part (of the whole buffer where it has one part). in_place: input and
    output are one buffer, as the library's collective overlaps them. root: of rooted collectives.
    """

    kind = "custom"

    def __init__(self, ranks: int, chunks: int = 1, *, in_place: bool = False, root: int = 0) -> None:
        if ranks < 1 or chunks < 1:
            raise ValueError(f"{ranks} ranks with {chunks} chunks; both are 1 or more")
        if not 0 <= root < ranks or (root and self.kind not in ROOTED and self.kind != "custom"):
            raise ValueError(f"root {root} of {self.kind} over {ranks} ranks")
        self.ranks = ranks
        self.chunks = chunks
        self.in_place = in_place
        self.root = root
        self._totals: dict[int, Value] = {}

    # ---- for subclasses -----------------------------------------------------------------------------------------

    def input_chunks(self) -> int:
        """Chunks of the input buffer, alike on every rank."""
        return self.chunks

    def output_chunks(self) -> int:
        return self.chunks

    def expected(self, rank: int, index: int) -> Value | None:
        """What output chunk ``index`` of the rank must hold; None: anything."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its output must hold")

    def has(self, buffer: str, rank: int) -> bool:
        """Whether the rank's caller has the buffer."""
        return True

    # ---- what the compiler asks ---------------------------------------------------------------------------------

    @property
    def reduces(self) -> bool:
        return self.kind in REDUCING or self.kind == "custom"

    def chunks_per_group(self) -> int:
        """Chunks of a group; all groups of both buffers are equally long."""
        return gcd(self.input_chunks(), self.output_chunks())

    def chunks_of(self, buffer: str, rank: int) -> int:
        if not self.has(buffer, rank):
            return 0
        return self.input_chunks() if buffer == "input" else self.output_chunks()

    def overlap(self, rank: int) -> tuple[int, int]:
        """In place: where input chunk 0 and output chunk 0 lie in the one buffer."""
        return 0, 0

    def total(self, index: int) -> Value:
        """Input chunk ``index`` of all ranks, reduced."""
        if index not in self._totals:
            self._totals[index] = reduction((rank, index) for rank in range(self.ranks))
        return self._totals[index]

    def __str__(self) -> str:
        return f"{type(self).__name__} over {self.ranks} ranks"


def leaf(rank: int, index: int) -> Value:
    """Input chunk ``index`` of a rank, as it came."""
    return Value.leaf(rank, index)


class _Standard(Collective):
    """A collective of the library: chunks of a group are those of a part."""

    def chunks_per_group(self) -> int:
        return self.chunks


class AllReduce(_Standard):
    """Every output is the reduction of all inputs."""

    kind = "all_reduce"

    def expected(self, rank: int, index: int) -> Value:
        return self.total(index)


class Reduce(AllReduce):
    """The root's output is the reduction of all inputs."""

    kind = "reduce"

    def has(self, buffer: str, rank: int) -> bool:
        return buffer == "input" or rank == self.root


class AllGather(_Standard):
    """Output part r is rank r's input. In place: the input is the rank's own part of the output."""

    kind = "all_gather"

    def output_chunks(self) -> int:
        return self.ranks * self.chunks

    def expected(self, rank: int, index: int) -> Value:
        return leaf(*divmod(index, self.chunks))

    def overlap(self, rank: int) -> tuple[int, int]:
        return rank * self.chunks, 0


class Gather(AllGather):
    """The root's output part r is rank r's input."""

    kind = "gather"

    def has(self, buffer: str, rank: int) -> bool:
        return buffer == "input" or rank == self.root


class ReduceScatter(_Standard):
    """Rank r's output is the reduction of all inputs' part r. In place: the output is that part of the input."""

    kind = "reduce_scatter"

    def input_chunks(self) -> int:
        return self.ranks * self.chunks

    def expected(self, rank: int, index: int) -> Value:
        return self.total(rank * self.chunks + index)

    def overlap(self, rank: int) -> tuple[int, int]:
        return 0, rank * self.chunks


class Scatter(_Standard):
    """Rank r's output is part r of the root's input."""

    kind = "scatter"

    def input_chunks(self) -> int:
        return self.ranks * self.chunks

    def expected(self, rank: int, index: int) -> Value:
        return leaf(self.root, rank * self.chunks + index)

    def has(self, buffer: str, rank: int) -> bool:
        return buffer == "output" or rank == self.root

    def overlap(self, rank: int) -> tuple[int, int]:
        return 0, rank * self.chunks


class Broadcast(_Standard):
    """Every output is the root's input."""

    kind = "broadcast"

    def expected(self, rank: int, index: int) -> Value:
        return leaf(self.root, index)

    def has(self, buffer: str, rank: int) -> bool:
        return buffer == "output" or rank == self.root


class AllToAll(_Standard):
    """Rank r's output part s is rank s's input part r."""

    kind = "all_to_all"

    def input_chunks(self) -> int:
        return self.ranks * self.chunks

    def output_chunks(self) -> int:
        return self.ranks * self.chunks

    def expected(self, rank: int, index: int) -> Value:
        source, inside = divmod(index, self.chunks)
        return leaf(source, rank * self.chunks + inside)


class SendRecv(_Standard):
    """Rank 0's input becomes the last rank's output."""

    kind = "send_recv"

    def expected(self, rank: int, index: int) -> Value:
        return leaf(0, index)

    def has(self, buffer: str, rank: int) -> bool:
        return rank == 0 if buffer == "input" else rank == self.ranks - 1


class AllToNext(Collective):
    """Rank r's output is rank r-1's input (GC3 section 7.4); rank 0's output may hold anything."""

    def expected(self, rank: int, index: int) -> Value | None:
        return leaf(rank - 1, index) if rank > 0 else None


STANDARD: dict[str, type[Collective]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "all_to_all": AllToAll,
    "gather": Gather,
    "scatter": Scatter,
    "send_recv": SendRecv,
}

__all__ = [
    "STANDARD",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "AllToNext",
    "Broadcast",
    "Collective",
    "Gather",
    "Leaf",
    "Reduce",
    "ReduceScatter",
    "Scatter",
    "SendRecv",
    "leaf",
    "reduction",
]
