"""MSCCL XML: what msccl-tools writes and MSCCL, its executor for Azure, and RCCL read.

``read`` runs the file's thread blocks once, on chunks, and writes down what moves where: a ``Program`` with the file's
channels and blocks, which the compiler proves and schedules anew. So whatever depth of slots the file counted on, the
plan runs with what there is. ``starling.lang.msccl_write`` writes it.

    <algo name proto nchannels nchunksperloop ngpus coll inplace>   also: outofplace minBytes maxBytes; RCCL's: maxcount
                                                                    nthreadblocks; ours: tileBytes
      <gpu id i_chunks o_chunks s_chunks>
        <tb id send recv chan>                                   peers; -1: none
          <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>

Types: s, r, cpy, re, rcs, rrc, rrs, rrcs, nop. The source of rrc, rrs and rrcs is local. minBytes and maxBytes are the
plan's ``sizes``; no maxBytes or "0": no limit; both 0: the file does not say. Files without outofplace are
microsoft/msccl's, as the others load none of these, and it runs what is smaller than maxBytes. proto is looked at, and
not followed: a program's messages go as ``protocol`` says. Attributes that are not known are passed over.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from starling import ir
from starling.errors import InvalidArgumentError
from starling.ir.plan import MOST_RANKS, MOST_TILE_BYTES, is_tile
from starling.lang.collectives import STANDARD, Collective
from starling.lang.errors import Place, ProgramError, StaleReferenceError
from starling.lang.msccl_blocks import (
    PROTOCOLS,
    Block,
    Step,
    XmlError,
    block_of,
    check_chunks,
    check_peers,
    number_in,
)
from starling.lang.program import Program, Ref
from starling.lang.value import Value

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
COUNTED_BY_PARTS = ("gather", "scatter")  # MSCCL's sizes of the others are those of all parts
NO_LIMIT = (1 << 63) - 1


class _StepPlace(Place):
    """``file``: gpu and block; ``line``: the step."""

    def __str__(self) -> str:
        return f"{self.file} step {self.line}"


class _AlgorithmPlace(Place):
    def __str__(self) -> str:
        return self.file


class _Anything(Collective):
    """Of a file whose collective is its own: nothing is known of the result."""

    def __init__(self, ranks: int, inputs: int, outputs: int, in_place: bool) -> None:
        super().__init__(ranks, 1, in_place=in_place)
        self._inputs, self._outputs = inputs, outputs
        self.results: dict[tuple[int, int], Value] = {}

    def input_chunks(self) -> int:
        return self._inputs

    def output_chunks(self) -> int:
        return self._outputs

    def expected(self, rank: int, index: int) -> Value | None:
        return self.results.get((rank, index))


def read(text: str | bytes, *, in_place: bool | None = None, root: int = 0, **options: Any) -> ir.Plan:
    """The plan of an algorithm; ``options`` are compile_program's. Raises XmlError, or ProgramError if it is wrong.

    in_place: for files that serve both; None: in place if the file says so.
    """
    plan = _compiled(text, in_place, root, options)
    plan.sizes = _sizes(_parsed(text), plan)
    return plan


def _compiled(text: str | bytes, in_place: bool | None, root: int, options: dict[str, Any]) -> ir.Plan:
    program = read_program(text, in_place=in_place, root=root)
    # Blocks that keep their sums apart give each rank an order of its own; put together, they have one. Or each rank
    # begins with its own part: then what is added up in a row is added up in the order of the ranks.
    attempts: list[tuple[Program, dict[str, Any]]] = []
    if options.get("by_hand", True):
        attempts.append((program, {}))
    attempts.append((program, {"by_hand": False}))
    for made, more in attempts:
        try:
            return made.compile(**{**options, **more})
        except InvalidArgumentError as error:
            if "rule same_order" not in str(error):
                raise
    program = read_program(text, in_place=in_place, root=root, in_order=True)
    return program.compile(**{**options, "by_hand": False})


def read_program(
    text: str | bytes, *, in_place: bool | None = None, root: int = 0, in_order: bool = False
) -> Program:
    """The same, before it is compiled. in_order: several reductions of a block in a row into one place go by the order
    of the ranks, not by the file's."""
    algorithm = _parsed(text)
    if algorithm.get("proto", PROTOCOLS[0]) not in PROTOCOLS:
        raise XmlError(f"no proto is called '{algorithm.get('proto')}'; use one of {', '.join(PROTOCOLS)}")
    blocks = [block_of(gpu, tb) for gpu in algorithm.findall("gpu") for tb in gpu.findall("tb")]
    for name, many in Counter(block.name for block in blocks).items():
        if many > 1:
            raise XmlError(f"there are {many} blocks {name}")
    collective = _collective(algorithm, in_place, root)
    for block in blocks:
        check_peers(block, collective.ranks)
    for gpu in algorithm.findall("gpu"):
        own = [block for block in blocks if block.rank == number_in(gpu, "id")]
        check_chunks(gpu, own, _chunks_at_most(collective), collective.kind)
    name = re.sub("[^!-~]|#", "_", algorithm.get("name") or "msccl")[:128]
    program = _played(name, collective, blocks, in_order)
    program.tile_bytes = number_in(algorithm, "tileBytes", 0)
    if not is_tile(program.tile_bytes):
        raise XmlError(
            f"tileBytes is {program.tile_bytes}; use a multiple of 16 up to {MOST_TILE_BYTES}, or 0 for no limit"
        )
    if not isinstance(collective, _Anything):
        return program
    # Nothing says what the result should be, so it must at least not depend on who is first.
    if _differ(program, _played(name, collective, blocks[::-1], in_order)):
        if in_place is None and collective.in_place:
            # Old files say "inplace" also where both buffers are named and are two.
            return read_program(text, in_place=False, root=root, in_order=in_order)
        raise XmlError("the result of the algorithm depends on which of its blocks are first")
    outputs = range(collective.output_chunks())
    found = {(r, i): program.value(r, "output", i) for r in range(collective.ranks) for i in outputs}
    collective.results = {place: value for place, value in found.items() if value is not None}
    return program


def _parsed(text: str | bytes) -> ElementTree.Element:
    try:
        algorithm = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise XmlError(f"no XML: {error}") from error
    if algorithm.tag != "algo":
        raise XmlError(f"<{algorithm.tag}> where <algo> should stand")
    return algorithm


def _sizes(algorithm: ElementTree.Element, plan: ir.Plan) -> tuple[int, int] | None:
    """Of the operations that the file is for, as MSCCL's scheduler takes it; None: it does not say."""
    smallest, largest = (number_in(algorithm, name, 0) for name in ("minBytes", "maxBytes"))
    if smallest == largest == 0:
        return None  # what is written where the attributes have to stand and nobody chose sizes
    parts = plan.rank_count if plan.collective in COUNTED_BY_PARTS else 1
    last = largest
    if algorithm.get("outofplace") is None and 0 < largest < NO_LIMIT:
        last = largest - 1  # only microsoft/msccl loads such a file, and it stops before maxBytes
    sizes = smallest * parts, min(last * parts, NO_LIMIT) if largest else NO_LIMIT
    if not 0 <= sizes[0] <= sizes[1]:
        raise XmlError(f"minBytes is {smallest}, maxBytes {largest}: no size is between them")
    return sizes


def _played(name: str, collective: Collective, blocks: list[Block], in_order: bool) -> Program:
    """What the blocks do, the first of them first."""
    buffered: set[tuple[int, int, int]] = set()
    while True:
        program = Program(name, collective, at=_AlgorithmPlace("<algo>", 0))
        for block in blocks:
            block.done = 0
        try:
            _Player(program, blocks, buffered, in_order).run()
            return program
        except _OverwrittenError as error:
            buffered.add(error.step)


def _differ(a: Program, b: Program) -> bool:
    """Whether some output holds something else."""
    for rank in range(a.collective.ranks):
        for index in range(a.collective.chunks_of("output", rank)):
            ours, theirs = a.value(rank, "output", index), b.value(rank, "output", index)
            if (ours is None) != (theirs is None):
                return True
            if ours is not None and theirs is not None and not ours.same_as(theirs):
                return True
    return False


def _chunks_at_most(collective: Collective) -> dict[str, int]:
    """Of each buffer; nothing is known of a file's own collective. In place, either may stand for both."""
    if isinstance(collective, _Anything):
        return {}
    chunks = {"input": collective.input_chunks(), "output": collective.output_chunks()}
    return dict.fromkeys(chunks, max(chunks.values())) if collective.in_place else chunks


def _collective(algorithm: ElementTree.Element, in_place: bool | None, root: int) -> Collective:
    ranks = number_in(algorithm, "ngpus")
    if not 1 <= ranks <= MOST_RANKS:
        raise XmlError(f"ngpus is {ranks}; use 1 to {MOST_RANKS}")
    per_loop = number_in(algorithm, "nchunksperloop")
    if per_loop < 1:
        raise XmlError(f"nchunksperloop is {per_loop}; use 1 or more")
    is_in_place = number_in(algorithm, "inplace", 0) != 0
    word = (algorithm.get("coll") or "").replace("_", "").lower()
    if in_place is not None:
        serves_both = is_in_place and number_in(algorithm, "outofplace", 0) != 0
        serves_both = serves_both or (is_in_place and word not in COLLECTIVES)
        if in_place != is_in_place and not serves_both:
            raise XmlError(f"the algorithm is {'' if is_in_place else 'not '}in place; read it as it is")
        is_in_place = in_place
    if word not in COLLECTIVES:
        inputs, outputs = (
            max([per_loop, *(number_in(gpu, name, 0) for gpu in algorithm.findall("gpu"))])
            for name in ("i_chunks", "o_chunks")
        )
        return _Anything(ranks, inputs, outputs, is_in_place)
    kind = COLLECTIVES[word]
    parts = ranks if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1
    if per_loop % parts:
        raise XmlError(f"nchunksperloop is {per_loop}; {kind} over {ranks} ranks has {parts} equal parts")
    return STANDARD[kind](ranks, per_loop // parts, in_place=is_in_place, root=root)


class _OverwrittenError(Exception):
    """What a step sent was overwritten before it was received: the message lay in a slot meanwhile."""

    def __init__(self, step: tuple[int, int, int]) -> None:
        self.step = step


@dataclass
class _Message:
    chunks: Ref
    sender: Block
    step: int


@dataclass
class _Player:
    """Runs all blocks as far as they go, receivers before others, and writes every move into the program. Messages of
    the steps in ``buffered`` are put aside when they are sent."""

    program: Program
    blocks: list[Block]
    buffered: set[tuple[int, int, int]]
    in_order: bool
    messages: dict[tuple[int, int, int], deque[_Message]] = field(default_factory=dict)
    temporary: int = 0

    def run(self) -> None:
        places = [
            p for b in self.blocks for s in b.steps for p in (s.source, s.destination) if p[0] == "scratch"
        ]
        widest = max((step.count for block in self.blocks for step in block.steps), default=1)
        # Room for sums that are passed on and not kept; the compiler drops it.
        self.temporary = max((index for _, index in places), default=0) + widest
        bynumber_in = {(block.rank, block.number): block for block in self.blocks}
        receivers = {(block.receive, block.rank, block.channel): block for block in self.blocks}
        todo = list(reversed(self.blocks))
        while todo:
            block = todo.pop()
            while block.done < len(block.steps) and (steps := self._step(block, bynumber_in)):
                block.done += steps
                receiver = receivers.get((block.rank, block.send, block.channel))
                # Who was waiting for this step looks again; the receiver first.
                todo += [other for other in self.blocks if other.rank == block.rank and other is not block]
                if receiver is not None:
                    todo += [block, receiver]
                    break
        for block in self.blocks:
            if block.done < len(block.steps):
                kind = block.steps[block.done].kind
                raise XmlError(
                    f"the algorithm deadlocks: {block.name} waits for ever in step {block.done} ({kind})"
                )
        for source, destination, channel in self.messages:
            if self.messages[source, destination, channel]:
                raise XmlError(
                    f"gpu {source} sends more to gpu {destination} on channel {channel} than is received"
                )

    def _step(self, block: Block, bynumber_in: dict[tuple[int, int], Block]) -> int:
        """Does what comes next, and says how many steps that was; 0: it has to wait."""
        step = block.steps[block.done]
        if step.waits_for is not None:
            other = bynumber_in.get((block.rank, step.waits_for[0]))
            if other is None or step.waits_for[1] >= len(other.steps):
                raise XmlError(f"{block.name} waits for a step that is not there: {step.waits_for}")
            if other.done <= step.waits_for[1]:
                return 0
        receives = step.kind.startswith("r") and step.kind != "re"
        queue = self.messages.setdefault((block.receive, block.rank, block.channel), deque())
        if receives and not queue:
            return 0
        message = queue.popleft() if receives else None
        if message is not None and message.chunks.span.count != step.count:
            raise XmlError(
                f"{block.name} step {block.done} ({step.kind}): receives {step.count} chunks where "
                f"{message.sender.name} step {message.step} sends {message.chunks.span.count}"
            )
        self.program.at = _StepPlace(block.name, block.done)
        row = self._row(block) if self.in_order else []
        try:
            if len(row) > 1:
                self._reduce_in_order(block, row)
                return len(row)
            self._move(block, step, message)
        except StaleReferenceError:
            assert message is not None
            raise _OverwrittenError((message.sender.rank, message.sender.number, message.step)) from None
        except ProgramError as error:
            raise XmlError(
                f"{block.name} step {block.done} ({step.kind}): {str(error).split(': ', 1)[1]}"
            ) from error
        return 1

    @staticmethod
    def _row(block: Block) -> list[Step]:
        """Local reductions into one place that follow each other and need not wait."""
        row: list[Step] = []
        for step in block.steps[block.done :]:
            follows = not row or (step.waits_for is None and step.destination == row[0].destination)
            if step.kind != "re" or not follows or step.count != block.steps[block.done].count:
                break
            row.append(step)
        return row

    def _reduce_in_order(self, block: Block, row: list[Step]) -> None:
        """Whatever holds the least rank first, where the file has the block's own part first."""
        rank, place, count = block.rank, row[0].destination, row[0].count
        number = block.number
        places = sorted([place, *(step.source for step in row)], key=lambda at: self._least(rank, at))
        total = self.program.chunk(rank, *places[0], count)
        if places[0] != place:
            total = total.copy(rank, "scratch", self._aside(count), sendtb=number, recvtb=number)
        for source in places[1:]:
            total = total.reduce(self.program.chunk(rank, *source, count), sendtb=number, recvtb=number)
        if places[0] != place:
            total.copy(rank, *place, sendtb=number, recvtb=number)

    def _least(self, rank: int, place: tuple[str, int]) -> tuple[int, int]:
        value = self.program.value(rank, *place)
        return value.first if value is not None else (rank, -1)

    def _move(self, block: Block, step: Step, message: _Message | None) -> None:
        rank, count = block.rank, step.count
        chunk = self.program.chunk
        result: Ref | None = None
        if step.kind == "s":
            result = chunk(rank, *step.source, count)
        elif step.kind == "cpy":
            chunk(rank, *step.source, count).copy(
                rank, *step.destination, sendtb=block.number, recvtb=block.number
            )
        elif step.kind == "re":
            other = chunk(rank, *step.source, count)
            chunk(rank, *step.destination, count).reduce(other, sendtb=block.number, recvtb=block.number)
        elif message is not None:
            if step.kind in ("r", "rcs"):
                result = message.chunks.copy(
                    rank,
                    *step.destination,
                    ch=block.channel,
                    sendtb=message.sender.number,
                    recvtb=block.number,
                )
            else:
                result = self._reduce(block, step, message)
        if step.kind in ("s", "rcs", "rrs", "rrcs"):
            assert result is not None
            if (rank, block.number, block.done) in self.buffered:
                result = result.copy(
                    rank, "scratch", self._aside(count), sendtb=block.number, recvtb=block.number
                )
            queue = self.messages.setdefault((rank, block.send, block.channel), deque())
            queue.append(_Message(result, block, block.done))

    def _aside(self, count: int) -> int:
        self.temporary += count
        return self.temporary - count

    def _reduce(self, block: Block, step: Step, message: _Message) -> Ref:
        """The source is local; rrs leaves its result nowhere."""
        local = self.program.chunk(block.rank, *step.source, step.count)
        target = ("scratch", self._aside(step.count)) if step.kind == "rrs" else step.destination
        if target != step.source:
            local = local.copy(block.rank, *target, sendtb=block.number, recvtb=block.number)
        return local.reduce(
            message.chunks, ch=block.channel, sendtb=message.sender.number, recvtb=block.number
        )
