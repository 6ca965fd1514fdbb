"""Plans as MSCCL XML (``starling.lang.msccl_xml`` has the format): those that MSCCL can run, with at most one message
in and one out for each instruction, and one peer in each direction for each block."""

from __future__ import annotations

from xml.etree import ElementTree

from starling.ir.plan import Instruction, Plan, Slice
from starling.lang.msccl_blocks import BUFFERS, PROTOCOLS, XmlError
from starling.lang.msccl_xml import COLLECTIVES, COUNTED_BY_PARTS, NO_LIMIT

DIALECTS = ("msccl", "azure", "rccl")

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


def write(
    plan: Plan,
    *,
    protocol: str = "Simple",
    dialect: str | None = None,
    sizes: tuple[int, int] | None = None,
) -> str:
    """The plan as MSCCL XML; raises XmlError where MSCCL has no words for it.

    dialect: "msccl", of microsoft/msccl, which alone has collectives of one's own; "azure", whose executor and
    scheduler want to be told places and sizes; "rccl", which has the widest step and the blocks as well. None: azure,
    or msccl if the collective is one's own.
    sizes: as of ``Plan.sizes``, whose default they are; None: the file does not say.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"no proto is called '{protocol}'; use one of {', '.join(PROTOCOLS)}")
    words = {kind: word for word, kind in COLLECTIVES.items()}
    if dialect is None:
        dialect = "azure" if plan.collective in words else "msccl"
    if dialect not in DIALECTS:
        raise ValueError(f"no dialect is called '{dialect}'; use one of {', '.join(DIALECTS)}")
    if dialect != "msccl" and plan.collective not in words:
        raise XmlError(f"{dialect} has no word for {plan.collective}; write it in the dialect msccl")
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
    )
    algorithm.attrib.update(_of_dialect(plan, dialect, sizes or plan.sizes))
    if plan.tile_bytes:
        algorithm.set("tileBytes", str(plan.tile_bytes))
    for rank in range(plan.rank_count):
        _write_rank(algorithm, plan, rank)
    ElementTree.indent(algorithm)
    return ElementTree.tostring(algorithm, encoding="unicode") + "\n"


def _of_dialect(plan: Plan, dialect: str, sizes: tuple[int, int] | None) -> dict[str, str]:
    """What not all of them have. microsoft/msccl takes maxBytes="0" for a limit, none for 128 MiB, and runs what is
    smaller than maxBytes; the others run that size too."""
    found: dict[str, str] = {}
    if dialect == "rccl":
        steps = [i.size.chunks for rank in plan.ranks for block in rank.blocks for i in block.instructions]
        found["maxcount"] = str(max(steps, default=1))
        found["nthreadblocks"] = str(max(len(rank.blocks) for rank in plan.ranks))
    if dialect != "msccl":
        found["outofplace"] = str(int(not plan.in_place))
    if dialect != "msccl" or sizes is not None:
        smallest, largest = sizes or (0, NO_LIMIT)
        parts = plan.rank_count if plan.collective in COUNTED_BY_PARTS else 1
        no_limit = largest // parts >= NO_LIMIT // parts
        found["minBytes"] = str(-(-smallest // parts))
        if dialect == "msccl":
            found["maxBytes"] = str(NO_LIMIT if no_limit else largest // parts + 1)
        else:
            found["maxBytes"] = str(0 if no_limit else max(1, largest // parts))
    return found


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
    if i is not None and i.opcode.name not in _OUT:
        raise XmlError(f"MSCCL has no step for {i.opcode.name}; write a reduce, and a send behind it")
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
