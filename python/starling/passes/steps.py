"""Second pass: moves become steps that name real memory.

Aliasing is resolved here, once, on the rank that owns the memory: in place, a chunk is called input as long as it holds
what the caller put there (a reduction multiplies or converts exactly what it reads as input), and output afterwards. A
program may write into its input; the caller's input is never written: such a chunk moves into scratch. Which step
finishes a reduction (``final``: avg divides there) and which operand comes first are decided here too, by the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from starling.lang.collectives import Collective
from starling.lang.errors import NOWHERE, Place, ProgramError
from starling.lang.program import Program, first_addresses
from starling.lang.value import Leaf, Value
from starling.passes.lengths import LengthClass, Lengths
from starling.passes.moves import Layout, Move, Replica

Name = tuple[str, int]  # buffer, index: of chunks of the plan


class LengthError(ProgramError):
    """A chunk is moved to a place of another length."""


@dataclass(slots=True)
class Step:
    """``destination`` = ``source``, or = ``target`` reduced with ``source``. Names are of the rank that owns them."""

    kind: str
    source_rank: int
    rank: int
    source: Name
    destination: Name
    target: Name | None  # of a reduction: where the local operand is read
    count: int
    other_first: bool  # of a reduction: ``source`` is its left operand
    final: bool
    lengths: tuple[LengthClass, ...]
    channel: int | None
    replica: Replica
    send_block: int | None
    receive_block: int | None
    place: Place
    source_least: Leaf = (0, 0)  # least leaf of the first chunk
    target_least: Leaf = (0, 0)

    @property
    def is_remote(self) -> bool:
        return self.source_rank != self.rank


@dataclass(slots=True)
class _Cell:
    name: Name
    value: Value
    length: LengthClass


@dataclass
class Steps:
    """The program on real memory."""

    layout: Layout
    lengths: Lengths
    steps: list[Step]
    scratch: list[int] = field(default_factory=list)  # chunks of each rank
    protocol: str = "slots"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one chunk of a step is; chunks whose pieces follow each other make one step."""

    source: Name
    destination: Name
    target: Name | None
    other_first: bool
    final: bool
    length: LengthClass
    source_least: Leaf
    target_least: Leaf

    def follows(self, other: _Piece) -> bool:
        def next_to(a: Name | None, b: Name | None) -> bool:
            return a is b is None or (a is not None and b is not None and b == (a[0], a[1] + 1))

        return (
            next_to(other.source, self.source)
            and next_to(other.destination, self.destination)
            and next_to(other.target, self.target)
            and (self.other_first, self.final) == (other.other_first, other.final)
        )


class _Resolver:
    def __init__(self, program: Program, layout: Layout, moves: list[Move]) -> None:
        self.collective: Collective = layout.collective
        self.layout = layout
        self.lengths = Lengths(layout)
        self.steps: list[Step] = []
        self.scale = layout.instances * layout.parts
        self.first = [
            {buffer: chunks * self.scale for buffer, chunks in of_rank.items()}
            for of_rank in first_addresses(self.collective)
        ]
        self.totals: dict[int, Value] = {}
        self.cells: list[dict[int, _Cell]] = [self._inputs(rank) for rank in range(self.collective.ranks)]
        self.moves = moves
        self.protocol = program.protocol
        # A custom collective's reductions are final where nothing reduces them again. Results by number of the move
        # and chunk, and which of them (by identity) are operands later.
        self.results: dict[tuple[int, int], Value] = {}
        self.reduced_again: set[int] = set()

    def run(self) -> Steps:
        if self.collective.kind == "custom":
            self._find_reduced_again()
        for number, move in enumerate(self.moves):
            self._move(number, move)
        self._finish_untouched()
        return Steps(self.layout, self.lengths, self.steps, self._place_shadows(), self.protocol)

    # ---- memory -------------------------------------------------------------------------------------------------

    def _inputs(self, rank: int) -> dict[int, _Cell]:
        cells: dict[int, _Cell] = {}
        for index in range(self._pieces("input", rank)):
            length = self.lengths.of(rank, "input", index)
            cells[self._address(rank, "input", index)] = _Cell(
                ("input", index), Value.leaf(rank, index), length
            )
        return cells

    def _pieces(self, buffer: str, rank: int) -> int:
        return self.collective.chunks_of(buffer, rank) * self.scale

    def _address(self, rank: int, buffer: str, index: int) -> int:
        return self.first[rank][buffer] + index

    def _written_name(self, rank: int, buffer: str, index: int) -> Name:
        if buffer == "scratch":
            return "scratch", index
        at = self._address(rank, buffer, index) - self._address(rank, "output", 0)
        if 0 <= at < self._pieces("output", rank):
            return "output", at
        return "shadow", index

    def _place_shadows(self) -> list[int]:
        """Input chunks that the program writes lie behind the program's own scratch."""
        ranks = self.collective.ranks
        first, last = [1 << 62] * ranks, [-1] * ranks
        for step in self.steps:
            if step.destination[0] == "shadow":
                first[step.rank] = min(first[step.rank], step.destination[1])
                last[step.rank] = max(last[step.rank], step.destination[1] + step.count - 1)
        own = [self.layout.scratch_pieces(rank) for rank in range(ranks)]

        def placed(rank: int, name: Name) -> Name:
            return ("scratch", own[rank] + name[1] - first[rank]) if name[0] == "shadow" else name

        for step in self.steps:
            step.source = placed(step.source_rank, step.source)
            step.destination = placed(step.rank, step.destination)
            step.target = placed(step.rank, step.target) if step.target else None
        return [own[r] + (last[r] - first[r] + 1 if last[r] >= 0 else 0) for r in range(ranks)]

    # ---- values -------------------------------------------------------------------------------------------------

    def _find_reduced_again(self) -> None:
        """Runs the program once on values alone."""
        memory = [{at: cell.value for at, cell in cells.items()} for cells in self.cells]
        for number, move in enumerate(self.moves):
            for k in range(move.source.count):
                value = memory[move.source.rank][
                    self._address(move.source.rank, move.source.buffer, move.source.index + k)
                ]
                at = self._address(move.destination.rank, move.destination.buffer, move.destination.index + k)
                if move.kind == "reduce":
                    local = memory[move.destination.rank][at]
                    self.reduced_again |= {id(value), id(local)}
                    value = self._reduced(local, value)
                    self.results[number, k] = value
                memory[move.destination.rank][at] = value

    @staticmethod
    def _reduced(local: Value, other: Value) -> Value:
        """The least leaf first: every rank that reduces the same two values brackets them alike."""
        return other.reduced_with(local) if other.first < local.first else local.reduced_with(other)

    def _is_total(self, value: Value) -> bool:
        if value.count != self.collective.ranks:
            return False
        index = value.first[1]
        if index not in self.totals:
            total = Value.leaf(0, index)
            for rank in range(1, self.collective.ranks):
                total = total.reduced_with(Value.leaf(rank, index))
            self.totals[index] = total
        return value.same_as(self.totals[index])

    # ---- moves --------------------------------------------------------------------------------------------------

    def _move(self, number: int, move: Move) -> None:
        run: list[_Piece] = []
        for k in range(move.source.count):
            piece = self._piece(number, move, k)
            if piece is None:
                self._add(move, run)
                run = []
                continue
            if run and not piece.follows(run[-1]):
                self._add(move, run)
                run = []
            run.append(piece)
        self._add(move, run)

    def _piece(self, number: int, move: Move, k: int) -> _Piece | None:
        source, destination = move.source, move.destination
        cell = self.cells[source.rank][self._address(source.rank, source.buffer, source.index + k)]
        at = self._address(destination.rank, destination.buffer, destination.index + k)
        name = self._written_name(destination.rank, destination.buffer, destination.index + k)
        self._check_length(move, destination.rank, name, cell.length)
        cells = self.cells[destination.rank]
        if move.kind == "copy":
            raw = self.collective.kind != "custom" and self.collective.reduces and cell.name[0] == "input"
            final = raw and self._is_total(cell.value)  # of one rank
            in_its_place = source.rank == destination.rank and cells.get(at) is cell
            if in_its_place and not final:
                return None
            piece = _Piece(cell.name, name, None, False, final, cell.length, cell.value.first, (0, 0))
            cells[at] = _Cell(name, cell.value, cell.length)
            return piece
        local = cells[at]
        if local.length[1] != cell.length[1]:
            raise LengthError(move.place, f"{destination} and {source} hold chunks of different lengths")
        value = self._reduced(local.value, cell.value)
        other_first = cell.value.first < local.value.first
        if self.collective.kind == "custom":
            final = id(self.results[number, k]) not in self.reduced_again
        else:
            final = self._is_total(value)
        piece = _Piece(
            cell.name, name, local.name, other_first, final, cell.length, cell.value.first, local.value.first
        )
        cells[at] = _Cell(name, value, cell.length)
        return piece

    def _check_length(self, move: Move, rank: int, name: Name, length: LengthClass) -> None:
        if name[0] != "output":
            return
        is_ = self.lengths.of(rank, "output", name[1])
        if is_[1] != length[1]:
            raise LengthError(
                move.place,
                f"{move.destination} is cut as chunk {is_[1]} of its part, what is moved there as chunk {length[1]}: "
                "they differ in length when the count does not divide; keep a chunk's position in its part",
            )

    def _add(self, move: Move, run: list[_Piece]) -> None:
        if not run:
            return
        first = run[0]
        lengths = tuple(piece.length for piece in run)
        whole = self.protocol == "slots" or len(run) == 1  # the others take one chunk at a time
        if not whole or not self._is_sized(move, first, lengths):
            # Or nothing of a rank's is as long as the whole run: chunk by chunk then.
            if len(run) == 1:
                raise LengthError(
                    move.place,
                    f"no chunk of rank {move.destination.rank}'s buffers is as long as {move.source}",
                )
            for piece in run:
                self._add(move, [piece])
            return
        self.steps.append(
            Step(
                move.kind,
                move.source.rank,
                move.destination.rank,
                first.source,
                first.destination,
                first.target,
                len(run),
                first.other_first,
                first.final,
                lengths,
                move.channel,
                move.replica,
                move.send_block,
                move.receive_block,
                move.place,
                first.source_least,
                first.target_least,
            )
        )

    def _is_sized(self, move: Move, first: _Piece, lengths: tuple[LengthClass, ...]) -> bool:
        """Whether each end can say how long the run is by chunks of its caller's."""
        ends = {move.source.rank: [first.source]}
        ends.setdefault(move.destination.rank, []).append(first.destination)
        return all(
            any(name[0] in ("input", "output") for name in names)
            or self.lengths.find(rank, lengths) is not None
            for rank, names in ends.items()
        )

    def _finish_untouched(self) -> None:
        """In place, an output that is the caller's input as it came (one rank) still has to be finished."""
        if not self.collective.reduces or self.collective.kind == "custom":
            return
        for rank in range(self.collective.ranks):
            for index in range(self._pieces("output", rank)):
                cell = self.cells[rank].get(self._address(rank, "output", index))
                if cell is None or cell.name[0] != "input" or not self._is_total(cell.value):
                    continue
                self.steps.append(
                    Step("copy", rank, rank, cell.name, ("output", index), None, 1, False, True, (cell.length,),
                         None, Replica(), None, None, NOWHERE)
                )  # fmt: skip


def resolve(program: Program, layout: Layout, moves: list[Move]) -> Steps:
    """Raises LengthError where chunks of different lengths would meet."""
    return _Resolver(program, layout, moves).run()
