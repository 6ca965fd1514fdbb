"""What the verifier says of a compiled program, with the lines of the program that made the instructions it names."""

from __future__ import annotations

import re

from starling.lang.errors import Place
from starling.passes.emit import instructions_of
from starling.passes.graph import Graph
from starling.passes.schedule import Schedule

_AT = re.compile(r"rank (\d+), block (\d+), instruction (\d+)")
_OTHER = re.compile(r"block (\d+) instruction (\d+) \(")
_OUTPUT = re.compile(r"rank (\d+): output\[(\d+)")


def places_at_fault(graph: Graph, schedule: Schedule, refusal: str) -> list[Place]:
    """Of the instruction at fault first, then of others that the refusal names; none: it names none."""
    if found := _AT.search(refusal):
        rank, block, instruction = map(int, found.groups())
        named = [(block, instruction)] + [(int(b), int(i)) for b, i in _OTHER.findall(refusal)]
        places = [_place_of(graph, schedule, rank, *at) for at in named]
    elif found := _OUTPUT.search(refusal):
        places = [_last_writer(graph, int(found[1]), int(found[2]))]
    else:
        places = []
    return list(dict.fromkeys(place for place in places if place is not None))


def _place_of(graph: Graph, schedule: Schedule, rank: int, block: int, instruction: int) -> Place | None:
    for node in schedule.blocks[rank][block]:
        instruction -= len(instructions_of(graph, schedule, node))
        if instruction < 0:
            return node.place
    return None


def _last_writer(graph: Graph, rank: int, chunk: int) -> Place | None:
    key = graph.key(rank, ("output", chunk))
    places = [node.place for node in graph.nodes if node.rank == rank and key in graph.writes(node)]
    return places[-1] if places else None
