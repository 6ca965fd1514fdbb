"""Files as the collections of MSCCL, its executor for Azure and RCCL have them, made anew for any number of ranks: the
same blocks, channels, kinds of steps, waits and nops as the ranks of those that were looked at; orders are ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from starling.lang.msccl_blocks import TYPES

Wait = tuple[int, int]  # block, step


@dataclass
class Block:
    """A <tb>. A step with several waits is led by nops, one for each but the last."""

    number: int
    send: int
    receive: int
    channel: int
    steps: list[tuple[str, str, str, int, Wait]] = field(default_factory=list)

    def do(
        self, kind: str, source: str, destination: str, count: int = 1, after: list[Wait] | None = None
    ) -> Wait:
        waits = after or [(-1, -1)]
        self.steps += [("nop", "i-1", "o-1", 0, wait) for wait in waits[:-1]]
        self.steps.append((kind, source, destination, count, waits[-1]))
        return self.number, len(self.steps) - 1


class File:
    def __init__(self, collective: str, ranks: int, chunks: int, **places: int) -> None:
        self.head = {"coll": collective, "ngpus": str(ranks), "nchunksperloop": str(chunks)}
        self.head |= {name: str(value) for name, value in places.items()}
        self.blocks: list[list[Block]] = [[] for _ in range(ranks)]

    def block(self, rank: int, send: int = -1, receive: int = -1, channel: int = 0) -> Block:
        self.blocks[rank].append(Block(len(self.blocks[rank]), send, receive, channel))
        return self.blocks[rank][-1]

    def text(self) -> str:
        channels = 1 + max(block.channel for blocks in self.blocks for block in blocks)
        root = ElementTree.Element(
            "algo", name="shape", proto="LL", nchannels=str(channels), attrib=self.head
        )
        for rank, blocks in enumerate(self.blocks):
            used = {"i": 0, "o": 0, "s": 0}
            for kind, source, destination, count, _ in (step for block in blocks for step in block.steps):
                for end, place in (("src", source), ("dst", destination)):
                    if end in TYPES[kind]:
                        used[place[0]] = max(used[place[0]], int(place[1:]) + count)
            lengths = {f"{buffer}_chunks": str(most) for buffer, most in used.items()}
            gpu = ElementTree.SubElement(root, "gpu", id=str(rank), attrib=lengths)
            awaited = {wait for block in blocks for *_, wait in block.steps}
            for block in blocks:
                ends = {"send": str(block.send), "recv": str(block.receive), "chan": str(block.channel)}
                tb = ElementTree.SubElement(gpu, "tb", id=str(block.number), attrib=ends)
                for s, (kind, source, destination, count, wait) in enumerate(block.steps):
                    ElementTree.SubElement(
                        tb, "step", s=str(s), type=kind, srcbuf=source[0], srcoff=source[1:],
                        dstbuf=destination[0], dstoff=destination[1:], cnt=str(count), depid=str(wait[0]),
                        deps=str(wait[1]), hasdep=str(int((block.number, s) in awaited)),
                    )  # fmt: skip
        return ElementTree.tostring(root, encoding="unicode")


def two_step_all_to_all(nodes: int, size: int) -> File:
    """What a node has for another is collected on the counterpart of its receiver, and crosses as one wide message,
    which waits, nop by nop, for everything that is to be collected."""
    file = File("alltoall", nodes * size, nodes * size, inplace=0)
    for rank in range(nodes * size):
        m, i = divmod(rank, size)
        peers = [p for p in range(size) if p != i]
        others = [n for n in range(nodes) if n != m]
        collected: list[list[Wait]] = [[] for _ in others]
        for p in peers:
            block = file.block(rank, receive=m * size + p)
            for k, n in enumerate(others):
                collected[k].append(block.do("r", f"i{n * size + i}", f"s{k * size + p}"))
            block.do("r", f"i{m * size + i}", f"o{m * size + p}")
        for n in others:
            block = file.block(rank, receive=n * size + i, channel=4 + i % 2)
            block.do("r", "s0", f"o{n * size}", size)
        for p in peers:
            block = file.block(rank, send=m * size + p)
            for k, n in enumerate(others):
                block.do("s", f"i{n * size + p}", f"s{k * size + i}")
                if p == peers[0]:
                    collected[k].append(block.do("cpy", f"i{n * size + i}", f"s{k * size + i}"))
            block.do("s", f"i{m * size + p}", f"o{rank}")
            if p == peers[0]:
                block.do("cpy", f"i{rank}", f"o{rank}")
        for k, n in enumerate(others):
            block = file.block(rank, send=n * size + i, channel=4 + i % 2)
            block.do("s", f"s{k * size}", f"o{m * size}", size, collected[k])
    return file


def all_to_all(ranks: int, instances: int) -> File:
    """A block in each direction for each peer and channel; the first ones copy the own part."""
    file = File("alltoall", ranks, ranks * instances, inplace=0, outofplace=1)
    for rank in range(ranks):
        peers = [p for p in range(ranks) if p != rank]
        for p in peers:
            for h in range(instances):
                block = file.block(rank, receive=p, channel=h)
                block.do("r", f"i{rank * instances + h}", f"o{p * instances + h}")
        for p in peers:
            for h in range(instances):
                block = file.block(rank, send=p, channel=h)
                block.do("s", f"i{p * instances + h}", f"o{rank * instances + h}")
                if p == peers[0]:
                    block.do("cpy", f"i{rank * instances + h}", f"o{rank * instances + h}")
    return file


def _doubling_order(rank: int, level: int) -> list[tuple[int, Wait | None]]:
    """In which order a rank sends what it has before a level, and at which level and step that came."""
    came = [
        (step, below, owner)
        for below in range(level)
        for step, (owner, _) in enumerate(_doubling_order(rank ^ 1 << below, below))
    ]
    return [(rank, None), *((owner, (below, step)) for step, below, owner in sorted(came))]


def recursive_doubling(levels: int, instances: int) -> File:
    """All-gather in place, without an input: a channel for each distance; what came is sent on, step by step."""
    ranks = 1 << levels
    file = File("allgather", ranks, ranks * instances, inplace=1, outofplace=0)
    for rank in range(ranks):
        for level in range(levels):
            for h in range(instances):
                block = file.block(rank, receive=rank ^ 1 << level, channel=level + levels * h)
                for owner, _ in _doubling_order(rank ^ 1 << level, level):
                    block.do("r", f"o{owner * instances + h}", f"o{owner * instances + h}")
        for level in range(levels):
            for h in range(instances):
                block = file.block(rank, send=rank ^ 1 << level, channel=level + levels * h)
                for owner, came in _doubling_order(rank, level):
                    after = [(came[0] * instances + h, came[1])] if came else None
                    block.do("s", f"o{owner * instances + h}", f"o{owner * instances + h}", 1, after)
    return file


def pairs_in_one_pass(ranks: int, instances: int) -> File:
    """All-reduce in place: everybody sends everything; blocks with and without peers add up one chunk each, led by nops
    that wait for what others send and receive."""
    file = File("allreduce", ranks, ranks * instances, inplace=1, outofplace=0)
    for rank in range(ranks):
        peers, blocks, moved = _pair_blocks(file, rank, ranks, instances)
        for h in range(instances):
            for j, peer in enumerate(peers):
                there = [p for p in range(ranks) if p != peer].index(rank)
                block = blocks[h][j + 1]
                sent = block.do("s", f"i{h * ranks}", f"s{(h * (ranks - 1) + there) * ranks}", ranks)
                came = block.do("r", f"i{h * ranks}", f"s{(h * (ranks - 1) + j) * ranks}", ranks)
                moved[h] += [sent, came]
        _add_up(blocks, moved, [h * ranks for h in range(instances)])
    return file


def pairs_in_two_passes(ranks: int, instances: int) -> File:
    """The same for one part of each rank, which then goes out to all, when all blocks have added up their chunk."""
    file = File("allreduce", ranks, ranks * ranks * instances, inplace=1, outofplace=0)
    for rank in range(ranks):
        peers, blocks, moved = _pair_blocks(file, rank, ranks, instances)
        for h in range(instances):
            first = h * ranks * ranks
            for j, peer in enumerate(peers):
                there = [p for p in range(ranks) if p != peer].index(rank)
                to = f"s{(h * (ranks - 1) + there) * ranks}"
                blocks[h][j + 1].do("s", f"i{first + peer * ranks}", to, ranks)
                mine = f"s{(h * (ranks - 1) + j) * ranks}"
                moved[h].append(blocks[h][j + 1].do("r", f"i{first + rank * ranks}", mine, ranks))
        added = _add_up(blocks, moved, [(h * ranks + rank) * ranks for h in range(instances)])
        for h in range(instances):
            for j, peer in enumerate(peers):
                own, theirs = (f"i{(h * ranks + r) * ranks}" for r in (rank, peer))
                block = blocks[h][j + 1]
                block.do("s", own, own, ranks, [wait for wait in added[h] if wait[0] != block.number])
                block.do("r", theirs, theirs, ranks)
    return file


def _pair_blocks(
    file: File, rank: int, ranks: int, instances: int
) -> tuple[list[int], list[list[Block]], list[list[Wait]]]:
    """By instance: a block without peers, and one for each peer; they are numbered with the instances side by side."""
    peers = [p for p in range(ranks) if p != rank]
    blocks: list[list[Block]] = [[] for _ in range(instances)]
    for peer in (-1, *peers):
        for h in range(instances):
            blocks[h].append(file.block(rank, peer, peer, h))
    return peers, blocks, [[] for _ in range(instances)]


def _add_up(blocks: list[list[Block]], moved: list[list[Wait]], first: list[int]) -> list[list[Wait]]:
    """Block k of an instance adds chunk k of what came from all peers to the own one. Gives the last steps."""
    added: list[list[Wait]] = []
    for h, of_instance in enumerate(blocks):
        ranks = len(of_instance)
        added.append([])
        for k, block in enumerate(of_instance):
            after: list[Wait] | None = [wait for wait in moved[h] if wait[0] != block.number]
            last = (0, 0)
            for j in range(ranks - 1):
                source = f"s{(h * (ranks - 1) + j) * ranks + k}"
                last = block.do("re", source, f"i{first[h] + k}", 1, after)
                after = None
            added[h].append(last)
    return added


def pairs_of_single_steps(ranks: int, instances: int) -> File:
    """All-reduce in place by blocks of one step, on a channel for each chunk: rrc after rrc, each waiting for the block
    of the peer behind; then the sum goes out, over chunks that wait until they were sent."""
    parts = ranks * instances
    file = File("allreduce", ranks, parts, inplace=1, outofplace=0)
    for rank in range(ranks):
        peers = [p for p in range(ranks) if p != rank]
        width = 2 * instances  # blocks of a peer in one direction
        for j, p in enumerate(peers):
            for h in range(instances):
                chunk = f"i{rank * instances + h}"
                after = [((j + 1) * width + h, 0)] if j + 1 < len(peers) else None
                file.block(rank, receive=p, channel=rank * instances + h).do("rrc", chunk, chunk, 1, after)
            for h in range(instances):
                chunk = f"i{p * instances + h}"
                after = [(len(peers) * width + j * width + h, 0)]
                file.block(rank, receive=p, channel=parts + p * instances + h).do("r", chunk, chunk, 1, after)
        for p in peers:
            for h in range(instances):
                chunk = f"i{p * instances + h}"
                file.block(rank, send=p, channel=p * instances + h).do("s", chunk, chunk)
            for h in range(instances):
                chunk = f"i{rank * instances + h}"
                file.block(rank, send=p, channel=parts + rank * instances + h).do(
                    "s", chunk, chunk, 1, [(h, 0)]
                )
    return file


def pairs_across(columns: int) -> File:
    """All-reduce of four ranks in place: halves between neighbours, sums between the pairs, and halves back, each in a
    block of its own, on two channels for every two chunks."""
    file = File("allreduce", 4, 2 * columns, inplace=1, outofplace=0)
    for rank in range(4):
        side = rank % 2
        for c in range(columns):
            kept, given = f"i{2 * c + side}", f"i{2 * c + 1 - side}"
            block = file.block(rank, rank ^ 1, rank ^ 1, 2 * c)
            block.do("s", given, given)
            block.do("rrc", kept, kept)
            block = file.block(rank, rank ^ 1, rank ^ 1, 2 * c + 1)
            block.do("s", kept, kept, 1, [(2 * columns + c, 2)])
            block.do("r", given, given, 1, [(2 * c, 0)])
        for c in range(columns):
            kept = f"i{2 * c + side}"
            block = file.block(rank, rank ^ 2, rank ^ 2, 2 * c + side)
            block.do("s", kept, f"s{c}", 1, [(2 * c, 1)])
            block.do("r", kept, f"s{c}")
            block.do("re", f"s{c}", kept)
    return file


def ring_for_both_places(ranks: int, channels: int) -> File:
    """All-reduce from the input to the output, which may be one: a ring for each channel; rrs names an output too."""
    file = File(
        "allreduce", ranks, ranks * channels, inplace=1, outofplace=1, maxcount=1, nthreadblocks=channels
    )
    for rank in range(ranks):
        for c in range(channels):
            block = file.block(rank, (rank + 1) % ranks, (rank - 1) % ranks, c)
            for turn in range(2 * ranks - 1):
                chunk = c * ranks + (rank - turn) % ranks
                kind = "s" if turn == 0 else "rrs" if turn < ranks - 1 else "rrcs"
                kind = kind if turn < ranks else "rcs" if turn < 2 * ranks - 2 else "r"
                block.do(kind, f"i{chunk}", f"o{chunk}")
    return file
