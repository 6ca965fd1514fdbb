"""Programs: chunk-oriented algorithms (GC3 section 3), traced while they are written.

    program = Program("ring", AllReduce(ranks=4, chunks=4, in_place=True))
    c = program.chunk(1, "input", 0)          # a reference to what is there now
    c = program.chunk(2, "input", 0).reduce(c)
    c = c.copy(3, "input", 0)
    plan = program.compile()

Every operation gives a reference to the chunks that it made. A reference is good until its chunks are overwritten;
using it afterwards, or naming chunks that nothing has written, raises with the line at fault. The program means what
it says in its own order; the compiler finds out what may run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starling.ir.plan import MOST_CHANNELS, MOST_CHUNKS, MOST_RANKS, MOST_TILE_BYTES, PROTOCOLS, is_tile
from starling.lang.collectives import Collective
from starling.lang.errors import (
    Place,
    PostconditionError,
    ProgramError,
    StaleReferenceError,
    UninitialisedChunkError,
    caller,
)
from starling.lang.value import Value

if TYPE_CHECKING:
    from starling import ir

BUFFERS = ("input", "output", "scratch")


@dataclass(frozen=True, slots=True)
class Span:
    """Contiguous chunks of a buffer of a rank."""

    rank: int
    buffer: str
    index: int
    count: int = 1

    def __str__(self) -> str:
        end = f":{self.index + self.count}" if self.count > 1 else ""
        return f"rank {self.rank} {self.buffer}[{self.index}{end}]"


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of the trace: ``destination`` = ``source``, or ``destination`` reduced with ``source``."""

    kind: str  # "copy" or "reduce"
    source: Span
    destination: Span
    channel: int | None
    send_block: int | None
    receive_block: int | None
    parallel: int  # this many instances of the fragment that it stands in
    place: Place

    @property
    def is_remote(self) -> bool:
        return self.source.rank != self.destination.rank


@dataclass(slots=True)
class _Cell:
    """What lies in one chunk of memory, and who put it there."""

    value: Value
    version: int
    place: Place | None


class Ref:
    """Chunks at one moment. Made by ``Program.chunk`` and by operations."""

    __slots__ = ("_program", "_versions", "span")

    def __init__(self, program: Program, span: Span, versions: tuple[int, ...]) -> None:
        self._program = program
        self._versions = versions
        self.span = span

    @property
    def rank(self) -> int:
        return self.span.rank

    def copy(
        self,
        rank: int,
        buffer: str,
        index: int | None = None,
        *,
        ch: int | None = None,
        sendtb: int | None = None,
        recvtb: int | None = None,
    ) -> Ref:
        """Copies the chunks to ``buffer[index]`` of a rank (index None: the same). Gives the copy.

        ch: the channel of the connection. sendtb, recvtb: the blocks that send and receive (both, or the compiler
        chooses).
        """
        index = self.span.index if index is None else index
        destination = Span(rank, buffer, index, self.span.count)
        return self._program._copy(self, destination, ch, sendtb, recvtb)

    def reduce(
        self, other: Ref, *, ch: int | None = None, sendtb: int | None = None, recvtb: int | None = None
    ) -> Ref:
        """Reduces ``other`` into these chunks, in place. Gives the result."""
        return self._program._reduce(self, other, ch, sendtb, recvtb)

    def __getitem__(self, at: int | slice) -> Ref:
        """Some of the chunks of a reference of several."""
        start, stop, step = (slice(at, at + 1) if isinstance(at, int) else at).indices(self.span.count)
        if step != 1 or stop <= start:
            raise ProgramError(caller(), f"[{at}] of a reference to {self.span.count} chunks holds no chunk")
        span = Span(self.span.rank, self.span.buffer, self.span.index + start, stop - start)
        return Ref(self._program, span, self._versions[start:stop])

    def __repr__(self) -> str:
        return f"<{self.span}>"


class Program:
    """An algorithm for one collective.

    name: of the plan. instances: so many copies of the whole program, each on its part of every chunk and on
    channels of its own. protocol: how messages travel (docs/WIRE.md): slots; packets, for small ones; pull, from the
    sender's buffer. tile_bytes: of a chunk that go at once, at most; 0: as many as a message has room for.
    sizes: of the operations that it is for, smallest and largest, in bytes of the larger of a rank's buffers:
    ``add_plan`` lets those take it by themselves, and `starling tune` lets it win no others. None: it does not say.
    at: where its operations stand, if that is no line of Python; who writes them down sets it anew for each.
    """

    def __init__(
        self,
        name: str,
        collective: Collective,
        *,
        instances: int = 1,
        protocol: str = "slots",
        tile_bytes: int = 0,
        sizes: tuple[int, int] | None = None,
        at: Place | None = None,
    ) -> None:
        self.at = at
        place = self._here()
        if not (0 < len(name) <= 128 and all("!" <= c <= "~" and c != "#" for c in name)):
            raise ProgramError(place, f"the name '{name}'; use 1 to 128 visible ASCII characters without '#'")
        if collective.ranks > MOST_RANKS:
            raise ProgramError(place, f"{name} has {collective.ranks} ranks; a plan has {MOST_RANKS} at most")
        if max(collective.input_chunks(), collective.output_chunks()) > MOST_CHUNKS:
            raise ProgramError(
                place, f"{name}'s buffers have more than {MOST_CHUNKS} chunks, the most that a plan can have"
            )
        if not 1 <= instances <= MOST_CHANNELS:  # each has a channel of its own
            raise ProgramError(place, f"instances is {instances}; use 1 to {MOST_CHANNELS}")
        if protocol not in PROTOCOLS:
            raise ProgramError(
                place, f"no protocol is called '{protocol}'; use one of {', '.join(PROTOCOLS)}"
            )
        if not is_tile(tile_bytes):
            raise ProgramError(
                place,
                f"tile_bytes is {tile_bytes}; use a multiple of 16 up to {MOST_TILE_BYTES}, or 0 for no limit",
            )
        if sizes is not None and not 0 <= sizes[0] <= sizes[1]:
            raise ProgramError(place, f"sizes is {sizes}; use (smallest, largest) in bytes, or None")
        self.name = name
        self.collective = collective
        self.sizes = sizes
        self.instances = instances
        self.protocol = protocol
        self.tile_bytes = tile_bytes
        self.operations: list[Operation] = []
        self.place = place
        self._parallel = 1
        self._first = first_addresses(collective)
        self._cells: list[dict[int, _Cell]] = []
        self._scratch_first = 0
        self._versions = 0
        self._lay_out()

    def _here(self) -> Place:
        return self.at or caller()

    # ---- writing a program --------------------------------------------------------------------------------------

    def chunk(self, rank: int, buffer: str, index: int, count: int = 1) -> Ref:
        """The chunks that lie there now; raises if one of them was never written."""
        place = self._here()
        span = Span(rank, buffer, index, count)
        cells = self._cells_at(span, place)
        for k, cell in enumerate(cells):
            if cell is None:
                where = Span(rank, buffer, index + k)
                raise UninitialisedChunkError(place, f"{where} holds nothing yet; copy a chunk there first")
        return Ref(self, span, tuple(cell.version for cell in cells if cell is not None))

    @contextmanager
    def parallelize(self, instances: int) -> Iterator[None]:
        """Each operation of the fragment is cut into so many, on channels of their own. Fragments nest."""
        place = self._here()
        if instances < 1:
            raise ProgramError(place, f"parallelize({instances}); use 1 or more")
        before = self._parallel
        self._parallel *= instances
        try:
            yield
        finally:
            self._parallel = before

    # ---- the end ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises PostconditionError with the first output chunk that does not hold what the collective says."""
        for rank in range(self.collective.ranks):
            for index in range(self.collective.chunks_of("output", rank)):
                wanted = self._expected(rank, index)
                if wanted is None:
                    continue
                cell = self._cells[rank].get(self._address(Span(rank, "output", index)))
                if cell is not None and cell.value.same_as(wanted):
                    continue
                place = cell.place if cell is not None and cell.place is not None else self.place
                raise PostconditionError(
                    place,
                    f"{self.name}: at the end {Span(rank, 'output', index)} holds "
                    f"{cell.value if cell else 'nothing'}; {self.collective} wants {wanted}",
                )

    def _expected(self, rank: int, index: int) -> Value | None:
        try:
            wanted = self.collective.expected(rank, index)
        except NotImplementedError as error:
            raise ProgramError(
                self.place, f"{error}; give it expected(rank, index): a leaf, a reduction, or None"
            ) from None
        if wanted is not None and not isinstance(wanted, Value):
            raise ProgramError(
                self.place,
                f"{type(self.collective).__name__}.expected({rank}, {index}) gives {wanted!r:.80}; use "
                "leaf(rank, index), reduction([(rank, index), ...]), or None for anything",
            )
        return wanted

    def compile(self, **options: object) -> ir.Plan:
        """Checks the postcondition and gives the plan; see ``starling.passes.compile_program``."""
        from starling.passes import compile_program

        return compile_program(self, **options)  # type: ignore[arg-type]

    def value(self, rank: int, buffer: str, index: int) -> Value | None:
        """What a chunk holds now, as a symbol."""
        cell = self._cells[rank].get(self._address(Span(rank, buffer, index)))
        return cell.value if cell else None

    # ---- tracing ------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """One address for each chunk of memory: in place, input and output share theirs."""
        c = self.collective
        for rank in range(c.ranks):
            self._cells.append({})
            for index in range(c.chunks_of("input", rank)):
                address = self._address(Span(rank, "input", index))
                self._cells[rank][address] = _Cell(Value.leaf(rank, index), self._new_version(), None)

    def _address(self, span: Span) -> int:
        return self._first[span.rank][span.buffer] + span.index

    def _new_version(self) -> int:
        self._versions += 1
        return self._versions

    def _cells_at(self, span: Span, place: Place) -> list[_Cell | None]:
        self._check_span(span, place)
        first = self._address(span)
        cells = self._cells[span.rank]
        return [cells.get(first + k) for k in range(span.count)]

    def _check_span(self, span: Span, place: Place) -> None:
        c = self.collective
        if span.buffer not in BUFFERS:
            raise ProgramError(place, f"no buffer is called '{span.buffer}'; use input, output or scratch")
        if not 0 <= span.rank < c.ranks:
            raise ProgramError(place, f"rank {span.rank}; {c} has ranks 0 to {c.ranks - 1}")
        if span.index < 0 or span.count < 1:
            raise ProgramError(place, f"{span} holds no chunk; index is 0 or more, count 1 or more")
        if span.buffer == "scratch":
            return
        if not c.has(span.buffer, span.rank):
            raise ProgramError(place, f"rank {span.rank} of {c} has no {span.buffer} (root {c.root})")
        chunks = c.chunks_of(span.buffer, span.rank)
        if span.index + span.count > chunks:
            raise ProgramError(place, f"{span} is out of bounds: the {span.buffer} has {chunks} chunks")

    def _live_cells(self, ref: Ref, place: Place) -> list[_Cell]:
        """What the reference names; raises if something was overwritten since."""
        if ref._program is not self:
            raise ProgramError(place, f"{ref.span} is a reference of another program, '{ref._program.name}'")
        found: list[_Cell] = []
        for k, (cell, version) in enumerate(zip(self._cells_at(ref.span, place), ref._versions, strict=True)):
            assert cell is not None
            if cell.version != version:
                where = Span(ref.span.rank, ref.span.buffer, ref.span.index + k)
                raise StaleReferenceError(
                    place,
                    f"this reference is stale: {where} was overwritten at {cell.place}; take chunk(...) anew",
                )
            found.append(cell)
        return found

    def _write(self, span: Span, values: list[Value], place: Place) -> Ref:
        first = self._address(span)
        versions = []
        for k, value in enumerate(values):
            version = self._new_version()
            self._cells[span.rank][first + k] = _Cell(value, version, place)
            versions.append(version)
        return Ref(self, span, tuple(versions))

    def _copy(
        self, source: Ref, destination: Span, ch: int | None, sendtb: int | None, recvtb: int | None
    ) -> Ref:
        place = self._here()
        cells = self._live_cells(source, place)
        self._check_span(destination, place)
        self._check_apart(source.span, destination, place)
        values = [cell.value for cell in cells]
        self._note("copy", source.span, destination, ch, sendtb, recvtb, place)
        return self._write(destination, values, place)

    def _reduce(self, target: Ref, other: Ref, ch: int | None, sendtb: int | None, recvtb: int | None) -> Ref:
        place = self._here()
        if target.span.count != other.span.count:
            raise ProgramError(
                place, f"{target.span} and {other.span} are not equally long; reduce chunks of one count"
            )
        ours, theirs = self._live_cells(target, place), self._live_cells(other, place)
        if not self.collective.reduces:
            raise ProgramError(place, f"{self.collective} has nothing to reduce; use copy")
        if target.span.rank == other.span.rank and self._address(target.span) == self._address(other.span):
            raise ProgramError(place, f"{target.span} reduced with itself counts it twice; name two places")
        self._check_apart(other.span, target.span, place)
        values = [a.value.reduced_with(b.value) for a, b in zip(ours, theirs, strict=True)]
        self._note("reduce", other.span, target.span, ch, sendtb, recvtb, place)
        return self._write(target.span, values, place)

    def _check_apart(self, source: Span, destination: Span, place: Place) -> None:
        """A local operation whose chunks overlap at another offset would read what it has already written."""
        if source.rank != destination.rank:
            return
        distance = abs(self._address(source) - self._address(destination))
        if 0 < distance < source.count:
            raise ProgramError(place, f"{source} and {destination} overlap in part; copy through scratch")

    def _note(
        self,
        kind: str,
        source: Span,
        destination: Span,
        ch: int | None,
        sendtb: int | None,
        recvtb: int | None,
        place: Place,
    ) -> None:
        for name, number in (("ch", ch), ("sendtb", sendtb), ("recvtb", recvtb)):
            if number is not None and number < 0:
                raise ProgramError(
                    place, f"{name} is {number}; use 0 or more, or None for the compiler's choice"
                )
        self.operations.append(
            Operation(kind, source, destination, ch, sendtb, recvtb, self._parallel, place)
        )


def first_addresses(collective: Collective) -> list[dict[str, int]]:
    """By rank: where each buffer begins in its memory, counted in chunks."""
    inputs, outputs = collective.input_chunks(), collective.output_chunks()
    first: list[dict[str, int]] = []
    for rank in range(collective.ranks):
        if collective.in_place:
            input_first, output_first = collective.overlap(rank)
            end = max(input_first + inputs, output_first + outputs)
            first.append({"input": input_first, "output": output_first, "scratch": end})
        else:
            first.append({"input": 0, "output": inputs, "scratch": inputs + outputs})
    return first
