"""The blocks of MSCCL XML (``starling.lang.msccl_xml`` has the format), and what each must be by itself."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
PROTOCOLS = ("Simple", "LL", "LL128")
# Types of steps, and the ends that each of them touches; of the others the file names the peer's, or none.
TYPES = {
    "s": ("src",),
    "r": ("dst",),
    "cpy": ("src", "dst"),
    "re": ("src", "dst"),
    "rcs": ("dst",),
    "rrc": ("src", "dst"),
    "rrs": ("src",),
    "rrcs": ("src", "dst"),
    "nop": (),
}


class XmlError(ValueError):
    """The file is no algorithm that can be read, or the plan none that MSCCL can run; the text says why."""


@dataclass
class Step:
    kind: str
    source: tuple[str, int]
    destination: tuple[str, int]
    count: int
    waits_for: tuple[int, int] | None  # block, step

    def places(self) -> list[tuple[str, int]]:
        """What it touches of its own gpu's buffers."""
        ends = {"src": self.source, "dst": self.destination}
        return [ends[end] for end in TYPES[self.kind]]


@dataclass
class Block:
    rank: int
    number: int
    send: int
    receive: int
    channel: int
    steps: list[Step]
    done: int = 0

    @property
    def name(self) -> str:
        return f"gpu {self.rank} tb {self.number}"


def number_in(element: ElementTree.Element, name: str, default: int | None = None) -> int:
    word = element.get(name)
    if word is None and default is not None:
        return default
    try:
        return int(word or "")
    except ValueError:
        raise XmlError(f"<{element.tag}> needs a whole number as {name}, not {word!r}") from None


def block_of(gpu: ElementTree.Element, tb: ElementTree.Element) -> Block:
    steps = []
    for number, step in enumerate(sorted(tb.findall("step"), key=lambda step: number_in(step, "s"))):
        if number_in(step, "s") != number:
            where = f"gpu {gpu.get('id')} tb {tb.get('id')}"
            raise XmlError(f'{where} has a step s="{step.get("s")}" where {number} should come')
        kind = step.get("type") or ""
        if kind not in TYPES:
            raise XmlError(f"no step has the type '{kind}'; there are {', '.join(TYPES)}")
        depid, deps = number_in(step, "depid", -1), number_in(step, "deps", -1)
        places = [
            (BUFFERS.get(step.get(f"{end}buf") or "i", ""), number_in(step, f"{end}off", 0))
            for end in ("src", "dst")
        ]
        if "" in (places[0][0], places[1][0]):
            raise XmlError(
                f"a step names the buffer '{step.get('srcbuf')}' or '{step.get('dstbuf')}'; use i, o or s"
            )
        waits_for = (depid, deps) if depid >= 0 else None
        steps.append(Step(kind, places[0], places[1], number_in(step, "cnt", 1), waits_for))
    return Block(
        number_in(gpu, "id"),
        number_in(tb, "id"),
        number_in(tb, "send", -1),
        number_in(tb, "recv", -1),
        number_in(tb, "chan", 0),
        steps,
    )


def check_peers(block: Block, ranks: int) -> None:
    for peer, does in ((block.send, "sends to"), (block.receive, "receives from")):
        if peer == block.rank:
            raise XmlError(f"{block.name} {does} its own gpu; steps of type cpy and re need no peer")
        if not -1 <= peer < ranks:
            raise XmlError(f"{block.name} {does} gpu {peer}; use 0 to {ranks - 1}, or -1 for none")


def check_chunks(gpu: ElementTree.Element, blocks: list[Block], most: dict[str, int], of: str) -> None:
    """What the gpu says of its buffers against what its steps use, and what the collective ``of`` has. Less than that
    is usual: msccl-tools writes what is used."""
    for letter, buffer in BUFFERS.items():
        name = f"{letter}_chunks"
        if gpu.get(name) is None:
            continue
        said = number_in(gpu, name)
        where = f"gpu {gpu.get('id')}: {name} is {said}"
        if said < 0:
            raise XmlError(f"{where}; use 0 or more")
        for block in blocks:
            for number, step in enumerate(block.steps):
                end = max((at + step.count for used, at in step.places() if used == buffer), default=0)
                if end > said:
                    raise XmlError(
                        f"{block.name} step {number} ({step.kind}): uses {buffer} up to chunk {end - 1}, but {name} "
                        f"is {said}"
                    )
        if said > most.get(buffer, said):
            raise XmlError(f"{where}; {of} has {most[buffer]} chunks of {buffer}")
