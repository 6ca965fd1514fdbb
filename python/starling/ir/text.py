"""The text form of plans (src/plan/text.h): ``parse`` and ``to_text`` are each other's inverse."""

import re
from collections.abc import Iterator

from starling.ir.opcodes import OPCODES
from starling.ir.plan import (
    BUFFERS,
    COLLECTIVES,
    MOST_RANKS,
    PROTOCOLS,
    Block,
    Connection,
    Dependency,
    Holding,
    Instruction,
    Plan,
    RankPlan,
    Slice,
)

TEXT_VERSION = 2  # 1: without a postcondition
_SLICE = re.compile(r"([a-z]+)\[([0-9]+)(?::([0-9]+))?\]")
_PAIR = re.compile(r"([0-9]+)\.([0-9]+)")
_MOST = (1 << 32) - 1  # a number of a plan is a word


class PlanTextError(ValueError):
    """The text is not a plan's; the message names the line."""


class _Lines:
    """Lines as lists of words, without comments and blank lines."""

    def __init__(self, text: str) -> None:
        self.number = 0
        self._lines = iter(text.removeprefix("\ufeff").splitlines())  # some editors begin a file with it
        self._put_back: list[list[str]] = []

    def __iter__(self) -> Iterator[list[str]]:
        while self._put_back:
            yield self._put_back.pop()
        for line in self._lines:
            self.number += 1
            words = line.split("#")[0].split()
            if words:
                yield words

    def optional(self, name: str) -> str | None:
        """The value of a line that may be missing."""
        for words in self:
            if words[0] == name and len(words) == 2:
                return words[1]
            self.put_back(words)
            break
        return None

    def put_back(self, words: list[str]) -> None:
        """The line comes again."""
        self._put_back.append(words)

    def fields(self, name: str, count: int) -> list[str]:
        for words in self:
            if words[0] != name or len(words) != count + 1:
                raise self.error(f"'{name}' with {count} value(s) should stand here")
            return words[1:]
        raise self.error(f"the text ends where '{name}' should stand")

    def field(self, name: str) -> int:
        return self.whole(self.fields(name, 1)[0])

    def whole(self, word: str) -> int:
        if not word.isascii() or not word.isdigit():
            raise self.error(f"a whole number should stand here, not '{word}'")
        if len(word) > 20 or int(word) > _MOST:
            raise self.error(
                f"{word:.20}{'...' * (len(word) > 20)} is too large; a number is {_MOST} at most"
            )
        return int(word)

    def error(self, message: str) -> PlanTextError:
        return PlanTextError(f"line {self.number}: {message}")


def parse(text: str) -> Plan:
    """Reads a plan's text; raises PlanTextError. Whether the plan is right is the verifier's question."""
    lines = _Lines(text)
    version = lines.field("starling-plan")
    if not 1 <= version <= TEXT_VERSION:
        raise lines.error(f"version {version} of the text; this module reads 1 to {TEXT_VERSION}")
    name = lines.fields("name", 1)[0]
    collective = lines.fields("collective", 1)[0]
    if collective not in COLLECTIVES:
        raise lines.error(f"no collective is called '{collective}'")
    rank_count = lines.field("ranks")
    if not 1 <= rank_count <= MOST_RANKS:
        raise lines.error(f"a plan for {rank_count} ranks; use 1 to {MOST_RANKS}")
    root, in_place = lines.field("root"), lines.field("in_place")
    if in_place > 1:
        raise lines.error(f"in_place is 1 at most, not {in_place}")
    protocol = lines.optional("protocol") or "slots"
    if protocol not in PROTOCOLS:
        raise lines.error(f"no protocol is called '{protocol}'")
    tile = lines.whole(lines.optional("tile") or "0")
    chunks = lines.field("chunks_per_group")
    groups = [lines.whole(word) for word in lines.fields("groups", 2)]
    postcondition = _parse_postcondition(lines) if version >= 2 and collective == "custom" else None
    ranks = _parse_ranks(lines, rank_count)
    # A part, or a rank's block, that the text leaves out is empty; every rank has at least one block.
    ranks += [RankPlan() for _ in range(rank_count - len(ranks))]
    for rank in ranks:
        if not rank.blocks:
            rank.blocks.append(Block())
    return Plan(
        name,
        collective,
        rank_count,
        root,
        bool(in_place),
        chunks,
        groups[0],
        groups[1],
        ranks,
        protocol,
        tile,
        postcondition,
    )


def _parse_postcondition(lines: _Lines) -> tuple[Holding, ...]:
    found: list[Holding] = []
    for words in lines:
        if words[0] != "holds":
            lines.put_back(words)
            break
        if len(words) < 4:
            raise lines.error("a rank, chunks of its output and what they hold should stand here")
        place = _parse_slice(words[2], lines)
        if place.buffer != "output":
            raise lines.error(f"chunks of the output should stand here, not '{words[2]}'")
        terms = tuple(
            (None, lines.whole(word[2:])) if word.startswith("*.") else _parse_pair(word, lines)
            for word in words[3:]
        )
        found.append(Holding(lines.whole(words[1]), place.chunk, place.chunks, terms))
    return tuple(found)


def _parse_ranks(lines: _Lines, rank_count: int) -> list[RankPlan]:
    ranks: list[RankPlan] = []
    for words in lines:
        if words[0] == "rank" and len(words) == 4 and words[2] == "scratch":
            if lines.whole(words[1]) != len(ranks) or len(ranks) == rank_count:
                raise lines.error(f"ranks should follow each other from 0 to {rank_count - 1}")
            ranks.append(RankPlan(scratch_chunks=lines.whole(words[3])))
        elif words[0] == "block" and len(words) == 2 and ranks:
            if lines.whole(words[1]) != len(ranks[-1].blocks):
                raise lines.error("blocks should follow each other from 0")
            ranks[-1].blocks.append(Block())
        elif ranks and ranks[-1].blocks:
            instructions = ranks[-1].blocks[-1].instructions
            if lines.whole(words[0]) != len(instructions):
                raise lines.error(f"instruction {len(instructions)} should come here")
            instructions.append(_parse_instruction(words[1:], lines))
        else:
            raise lines.error("'rank' or 'block' should stand here")
    return ranks


def _parse_instruction(words: list[str], lines: _Lines) -> Instruction:
    if not words or words[0] not in OPCODES:
        raise lines.error("the name of an instruction should stand here")
    if "size" not in words[:-1]:
        raise lines.error("'size' and its chunks should stand here")
    at = words.index("size")
    operands, rest = words[1:at], words[at + 2 :]
    arrow = operands.index("->") if "->" in operands else len(operands)
    source, receives, local_position = _parse_operands(operands[:arrow], "<", lines)
    destination, sends, _ = _parse_operands(operands[arrow + 1 :], ">", lines)
    final = rest[:1] == ["final"]
    rest = rest[1:] if final else rest
    put = rest[:1] == ["put"]
    rest = rest[1:] if put else rest
    if rest and (rest[0] != "after" or len(rest) == 1):
        raise lines.error(f"'final', 'put' or 'after' should stand here, not '{rest[0]}'")
    after = tuple(Dependency(*_parse_pair(word, lines)) for word in rest[1:])
    size = _parse_slice(words[at + 1], lines)
    if any(operand is not None and operand.chunks != size.chunks for operand in (source, destination)):
        raise lines.error("size and operands should name equally many chunks")
    opcode = OPCODES[words[0]]
    return Instruction(opcode, size, source, destination, receives, sends, local_position, final, after, put)


def _parse_operands(
    words: list[str], direction: str, lines: _Lines
) -> tuple[Slice | None, tuple[Connection, ...], int]:
    local: Slice | None = None
    position = 0
    connections: list[Connection] = []
    for word in words:
        if word.startswith(direction):
            peer, channel = _parse_pair(word[1:], lines)
            if max(peer, channel) > 0xFFFF:
                raise lines.error(f"'{word}' should be a rank and a channel, as {direction}1.0")
            connections.append(Connection(peer, channel))
        elif local is not None:
            raise lines.error("a second local operand on this side")
        else:
            local, position = _parse_slice(word, lines), len(connections)
    return local, tuple(connections), position


def _parse_slice(word: str, lines: _Lines) -> Slice:
    match = _SLICE.fullmatch(word)
    if not match or match[1] not in BUFFERS:
        raise lines.error(f"chunks should stand here, as input[4] or output[2:6], not '{word}'")
    first = lines.whole(match[2])
    last = lines.whole(match[3]) if match[3] else first + 1
    if last <= first:
        raise lines.error(f"'{word}' holds no chunk")
    return Slice(match[1], first, last - first)


def _parse_pair(word: str, lines: _Lines) -> tuple[int, int]:
    match = _PAIR.fullmatch(word)
    if not match:
        raise lines.error(f"two numbers with a dot between them should stand here, not '{word}'")
    return lines.whole(match[1]), lines.whole(match[2])


def to_text(plan: Plan) -> str:
    lines = [
        f"starling-plan {1 if plan.postcondition is None else TEXT_VERSION}",
        f"name {plan.name}",
        f"collective {plan.collective}",
        f"ranks {plan.rank_count}",
        f"root {plan.root}",
        f"in_place {int(plan.in_place)}",
        *([f"protocol {plan.protocol}"] if plan.protocol != "slots" else []),
        *([f"tile {plan.tile_bytes}"] if plan.tile_bytes else []),
        f"chunks_per_group {plan.chunks_per_group}",
        f"groups {plan.input_groups} {plan.output_groups}",
    ]
    for h in plan.postcondition or ():
        terms = " ".join(f"{'*' if rank is None else rank}.{chunk}" for rank, chunk in h.terms)
        lines.append(f"holds {h.rank} {_slice(Slice('output', h.chunk, h.chunks))} {terms}")
    for r, rank in enumerate(plan.ranks):
        lines.append(f"rank {r} scratch {rank.scratch_chunks}")
        for b, block in enumerate(rank.blocks):
            lines.append(f"  block {b}")
            lines += [f"    {i} {_line(instruction)}" for i, instruction in enumerate(block.instructions)]
    return "\n".join(lines) + "\n"


def _line(i: Instruction) -> str:
    sources = [f"<{c.peer}.{c.channel}" for c in i.receives]
    if i.source is not None:
        sources.insert(i.local_position, _slice(i.source))
    destinations = [_slice(i.destination)] if i.destination is not None else []
    destinations += [f">{c.peer}.{c.channel}" for c in i.sends]
    words = [i.opcode.name, *sources]
    if destinations:
        words += ["->", *destinations]
    words += ["size", _slice(i.size)]
    if i.final:
        words.append("final")
    if i.put:
        words.append("put")
    if i.after:
        words += ["after", *(f"{d.block}.{d.instruction}" for d in i.after)]
    return " ".join(words)


def _slice(s: Slice) -> str:
    return f"{s.buffer}[{s.chunk}]" if s.chunks == 1 else f"{s.buffer}[{s.chunk}:{s.chunk + s.chunks}]"
