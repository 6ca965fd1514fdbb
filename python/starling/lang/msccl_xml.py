"""MSCCL XML, in and out: what msccl-tools writes and MSCCL, its executor for Azure, and RCCL read.

``read`` runs the file's thread blocks once, on chunks, and writes down what moves where: a ``Program`` with the file's
channels and blocks, which the compiler proves and schedules anew. So whatever depth of slots the file counted on, the
plan runs with what there is. ``write`` is for plans that MSCCL can run: at most one message in and one out for each
instruction, one peer in each direction for each block.

    <algo name proto nchannels nchunksperloop ngpus coll inplace>      also: outofplace minBytes maxBytes
      <gpu id i_chunks o_chunks s_chunks>
        <tb id send recv chan>                                   peers; -1: none
          <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>

Types: s, r, cpy, re, rcs, rrc, rrs, rrcs, nop. The source of rrc, rrs and rrcs is local. Attributes that are not known
are passed over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from xml.etree import ElementTree

from starling import ir
from starling.errors import InvalidArgumentError
from starling.ir.plan import Instruction, Plan, Slice
from starling.lang.collectives import STANDARD, Collective
from starling.lang.errors import ProgramError, StaleReferenceError
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
BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
TYPES = ("s", "r", "cpy", "re", "rcs", "rrc", "rrs", "rrcs", "nop")


class XmlError(ValueError):
    """The file is no algorithm that can be read, or the plan none that MSCCL can run; the text says why."""


# ---- in ---------------------------------------------------------------------------------------------------------


@dataclass
class _Step:
    kind: str
    source: tuple[str, int]
    destination: tuple[str, int]
    count: int
    waits_for: tuple[int, int] | None  # block, step


@dataclass
class _Block:
    rank: int
    number: int
    send: int
    receive: int
    channel: int
    steps: list[_Step]
    done: int = 0


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


def read(text: str, *, in_place: bool | None = None, root: int = 0, **options: object) -> ir.Plan:
    """The plan of an algorithm; ``options`` are compile_program's. Raises XmlError, or ProgramError if it is wrong.

    in_place: for files that serve both; None: in place if the file says so.
    """
    program = read_program(text, in_place=in_place, root=root)
    try:
        return program.compile(**options)
    except InvalidArgumentError as error:
        if "rule same_order" not in str(error):
            raise
    # Blocks that keep their sums apart give each rank an order of its own; put together, they have one.
    return program.compile(**{**options, "by_hand": False})


def read_program(text: str, *, in_place: bool | None = None, root: int = 0) -> Program:
    """The same, before it is compiled."""
    try:
        algorithm = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise XmlError(f"no XML: {error}") from error
    if algorithm.tag != "algo":
        raise XmlError(f"<{algorithm.tag}> where <algo> should stand")
    blocks = [_block(gpu, tb) for gpu in algorithm.findall("gpu") for tb in gpu.findall("tb")]
    collective = _collective(algorithm, in_place, root)
    name = (algorithm.get("name") or "msccl").replace(" ", "_").replace("#", "_")
    buffered: set[tuple[int, int, int]] = set()
    while True:
        program = Program(name[:128], collective)
        for block in blocks:
            block.done = 0
        try:
            _Player(program, blocks, buffered).run()
            break
        except _OverwrittenError as error:
            buffered.add(error.step)
    if isinstance(collective, _Anything):
        outputs = range(collective.output_chunks())
        found = {(r, i): program.value(r, "output", i) for r in range(collective.ranks) for i in outputs}
        collective.results = {place: value for place, value in found.items() if value is not None}
    return program


def _number(element: ElementTree.Element, name: str, default: int | None = None) -> int:
    word = element.get(name)
    if word is None and default is not None:
        return default
    try:
        return int(word or "")
    except ValueError:
        raise XmlError(f"<{element.tag}> needs a whole number as {name}, not {word!r}") from None


def _collective(algorithm: ElementTree.Element, in_place: bool | None, root: int) -> Collective:
    ranks = _number(algorithm, "ngpus")
    per_loop = _number(algorithm, "nchunksperloop")
    is_in_place = _number(algorithm, "inplace", 0) != 0
    if in_place is not None:
        serves_both = is_in_place and _number(algorithm, "outofplace", 0) != 0
        if in_place != is_in_place and not serves_both:
            raise XmlError(f"the algorithm is {'' if is_in_place else 'not '}in place; read it as it is")
        is_in_place = in_place
    word = (algorithm.get("coll") or "").replace("_", "").lower()
    if word not in COLLECTIVES:
        inputs, outputs = (
            max([per_loop, *(_number(gpu, name, 0) for gpu in algorithm.findall("gpu"))])
            for name in ("i_chunks", "o_chunks")
        )
        return _Anything(ranks, inputs, outputs, is_in_place)
    kind = COLLECTIVES[word]
    parts = ranks if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1
    if per_loop % parts:
        raise XmlError(f"nchunksperloop is {per_loop}; {kind} over {ranks} ranks has {parts} equal parts")
    return STANDARD[kind](ranks, per_loop // parts, in_place=is_in_place, root=root)


def _block(gpu: ElementTree.Element, tb: ElementTree.Element) -> _Block:
    steps = []
    for step in sorted(tb.findall("step"), key=lambda step: _number(step, "s")):
        kind = step.get("type") or ""
        if kind not in TYPES:
            raise XmlError(f"no step has the type '{kind}'; there are {', '.join(TYPES)}")
        depid, deps = _number(step, "depid", -1), _number(step, "deps", -1)
        places = [
            (BUFFERS.get(step.get(f"{end}buf") or "i", ""), _number(step, f"{end}off", 0))
            for end in ("src", "dst")
        ]
        if "" in (places[0][0], places[1][0]):
            raise XmlError(
                f"a step names the buffer '{step.get('srcbuf')}' or '{step.get('dstbuf')}'; use i, o or s"
            )
        waits_for = (depid, deps) if depid >= 0 else None
        steps.append(_Step(kind, places[0], places[1], _number(step, "cnt", 1), waits_for))
    return _Block(
        _number(gpu, "id"),
        _number(tb, "id"),
        _number(tb, "send", -1),
        _number(tb, "recv", -1),
        _number(tb, "chan", 0),
        steps,
    )


class _OverwrittenError(Exception):
    """What a step sent was overwritten before it was received: the message lay in a slot meanwhile."""

    def __init__(self, step: tuple[int, int, int]) -> None:
        self.step = step


@dataclass
class _Message:
    chunks: Ref
    sender: _Block
    step: int


@dataclass
class _Player:
    """Runs all blocks as far as they go, receivers before others, and writes every move into the program. Messages of
    the steps in ``buffered`` are put aside when they are sent."""

    program: Program
    blocks: list[_Block]
    buffered: set[tuple[int, int, int]]
    messages: dict[tuple[int, int, int], deque[_Message]] = field(default_factory=dict)
    temporary: int = 0

    def run(self) -> None:
        places = [
            p for b in self.blocks for s in b.steps for p in (s.source, s.destination) if p[0] == "scratch"
        ]
        widest = max((step.count for block in self.blocks for step in block.steps), default=1)
        # Room for sums that are passed on and not kept; the compiler drops it.
        self.temporary = max((index for _, index in places), default=0) + widest
        by_number = {(block.rank, block.number): block for block in self.blocks}
        receivers = {(block.receive, block.rank, block.channel): block for block in self.blocks}
        todo = list(reversed(self.blocks))
        while todo:
            block = todo.pop()
            while block.done < len(block.steps) and self._step(block, by_number):
                block.done += 1
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
                    f"the algorithm deadlocks: gpu {block.rank} tb {block.number} waits for ever in step "
                    f"{block.done} ({kind})"
                )
        for source, destination, channel in self.messages:
            if self.messages[source, destination, channel]:
                raise XmlError(
                    f"gpu {source} sends more to gpu {destination} on channel {channel} than is received"
                )

    def _step(self, block: _Block, by_number: dict[tuple[int, int], _Block]) -> bool:
        step = block.steps[block.done]
        if step.waits_for is not None:
            other = by_number.get((block.rank, step.waits_for[0]))
            if other is None or step.waits_for[1] >= len(other.steps):
                raise XmlError(
                    f"gpu {block.rank} tb {block.number} waits for a step that is not there: {step.waits_for}"
                )
            if other.done <= step.waits_for[1]:
                return False
        receives = step.kind.startswith("r") and step.kind != "re"
        queue = self.messages.setdefault((block.receive, block.rank, block.channel), deque())
        if receives and not queue:
            return False
        message = queue.popleft() if receives else None
        try:
            self._move(block, step, message)
        except StaleReferenceError:
            assert message is not None
            raise _OverwrittenError((message.sender.rank, message.sender.number, message.step)) from None
        except ProgramError as error:
            raise XmlError(
                f"gpu {block.rank} tb {block.number} step {block.done} ({step.kind}): {str(error).split(': ', 1)[1]}"
            ) from error
        return True

    def _move(self, block: _Block, step: _Step, message: _Message | None) -> None:
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

    def _reduce(self, block: _Block, step: _Step, message: _Message) -> Ref:
        """The source is local; rrs leaves its result nowhere."""
        local = self.program.chunk(block.rank, *step.source, step.count)
        target = ("scratch", self._aside(step.count)) if step.kind == "rrs" else step.destination
        if target != step.source:
            local = local.copy(block.rank, *target, sendtb=block.number, recvtb=block.number)
        return local.reduce(
            message.chunks, ch=block.channel, sendtb=message.sender.number, recvtb=block.number
        )


# ---- out --------------------------------------------------------------------------------------------------------

_OUT = {
    "nop": "nop",
    "copy": "cpy",
    "reduce": "re",
    "send": "s",
    "recv": "r",
    "recv_send": "rcs",
    "recv_copy_send": "rcs",
    "recv_reduce_send": "rrs",
    "recv_reduce_copy": "rrc",
    "recv_reduce_copy_send": "rrcs",
}


def write(plan: Plan, *, protocol: str = "Simple", smallest_bytes: int = 0, largest_bytes: int = 0) -> str:
    """The plan as MSCCL XML; raises XmlError where MSCCL has no words for it."""
    words = {kind: word for word, kind in COLLECTIVES.items()}
    channels = {
        c.channel
        for r in plan.ranks
        for b in r.blocks
        for i in b.instructions
        for c in (*i.receives, *i.sends)
    }
    algorithm = ElementTree.Element(
        "algo",
        name=plan.name,
        proto=protocol,
        nchannels=str(max(channels, default=0) + 1),
        nchunksperloop=str(plan.chunks_per_group * max(plan.input_groups, plan.output_groups)),
        ngpus=str(plan.rank_count),
        coll=words.get(plan.collective, "custom"),
        inplace=str(int(plan.in_place)),
        outofplace=str(int(not plan.in_place)),
        minBytes=str(smallest_bytes),
        maxBytes=str(largest_bytes),
    )
    for rank in range(plan.rank_count):
        _write_rank(algorithm, plan, rank)
    ElementTree.indent(algorithm)
    return ElementTree.tostring(algorithm, encoding="unicode") + "\n"


def _write_rank(algorithm: ElementTree.Element, plan: Plan, rank: int) -> None:
    blocks = plan.ranks[rank].blocks
    passing = max(
        (i.size.chunks for b in blocks for i in b.instructions if i.opcode.name == "recv_send"), default=0
    )
    scratch = plan.ranks[rank].scratch_chunks
    gpu = ElementTree.SubElement(
        algorithm,
        "gpu",
        id=str(rank),
        i_chunks=str(plan.chunks_per_group * plan.input_groups),
        o_chunks=str(plan.chunks_per_group * plan.output_groups),
        s_chunks=str(scratch + passing * len(blocks)),
    )
    # An instruction with several dependencies is led by nops, one for each but the last.
    step_of: dict[tuple[int, int], int] = {}
    for number, block in enumerate(blocks):
        steps = 0
        for index, i in enumerate(block.instructions):
            steps += max(1, len(i.after))
            step_of[number, index] = steps - 1
    awaited = {(d.block, d.instruction) for b in blocks for i in b.instructions for d in i.after}
    for number, block in enumerate(blocks):
        send, receive, channel = _peers(rank, number, block.instructions)
        tb = ElementTree.SubElement(
            gpu, "tb", id=str(number), send=str(send), recv=str(receive), chan=str(channel)
        )
        for index, i in enumerate(block.instructions):
            waits = [(d.block, step_of[d.block, d.instruction]) for d in i.after] or [(-1, -1)]
            for depth, wait in enumerate(waits):
                is_last = depth == len(waits) - 1
                place = step_of[number, index] - len(waits) + 1 + depth
                has_dependents = is_last and (number, index) in awaited
                _write_step(
                    tb, i if is_last else None, place, wait, has_dependents, scratch + passing * number
                )


def _peers(rank: int, block: int, instructions: list[Instruction]) -> tuple[int, int, int]:
    sends = {c for i in instructions for c in i.sends}
    receives = {c for i in instructions for c in i.receives}
    channels = {c.channel for c in sends | receives}
    wide = any(len(i.sends) > 1 or len(i.receives) > 1 for i in instructions)
    if wide or len(sends) > 1 or len(receives) > 1 or len(channels) > 1:
        raise XmlError(
            f"block {block} of rank {rank} has several peers or channels in one direction; MSCCL's have one: "
            'compile with --policy connections (in Python: policy="connections")'
        )
    send = next(iter(sends)).peer if sends else -1
    receive = next(iter(receives)).peer if receives else -1
    return send, receive, channels.pop() if channels else 0


def _write_step(
    tb: ElementTree.Element,
    i: Instruction | None,
    place: int,
    wait: tuple[int, int],
    has_dependents: bool,
    passing: int,
) -> None:
    letters = {name: letter for letter, name in BUFFERS.items()}
    size = i.size if i is not None else Slice("input", 0)
    destination = i.destination if i is not None else None
    if i is not None and i.opcode.name == "recv_send":
        destination = Slice("scratch", passing, size.chunks)
    source = (i.source if i is not None else None) or destination or size
    destination = destination or source
    ElementTree.SubElement(
        tb,
        "step",
        s=str(place),
        type=_OUT[i.opcode.name] if i is not None else "nop",
        srcbuf=letters[source.buffer],
        srcoff=str(source.chunk),
        dstbuf=letters[destination.buffer],
        dstoff=str(destination.chunk),
        cnt=str(size.chunks),
        depid=str(wait[0]),
        deps=str(wait[1]),
        hasdep=str(int(has_dependents)),
    )
