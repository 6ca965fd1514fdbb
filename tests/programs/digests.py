"""A line for each plan of plans/, compiled in several ways: its name and a hash of its text. A process of its own for
test_deterministic.py, which compares what two of them print."""

import hashlib
import random

from programs import own
from programs.cases import ALWAYS_APART, NAMES, make, sizes_of
from starling import ir
from starling.lang import Program
from starling.lang.msccl_write import write
from starling.lang.msccl_xml import read

WAYS: tuple[dict[str, object], ...] = (
    {},
    {"policy": "connections"},
    {"policy": "connections", "fans": False},
    {"blocks": 2, "fusion": False},
)


def print_digest(name: str, text: str) -> None:
    print(name, hashlib.sha256(text.encode()).hexdigest())


def print_compiled(program: Program, name: str) -> None:
    for number, way in enumerate(WAYS):
        print_digest(f"{name}, way {number}", ir.to_text(program.compile(**way, verify=False)))


def scatter_addresses() -> None:
    """Objects made later lie where these lay, in an order that is another for other hashes of words."""
    objects = [bytes(size) for size in range(8, 480, 16) for _ in range(5000)]
    random.Random(hash("seed")).shuffle(objects)
    while objects:
        objects.pop()


def main() -> None:
    scatter_addresses()
    for collective, name in NAMES:
        program = make(collective, name, sizes_of(name)[-1], 2, in_place=collective not in ALWAYS_APART)
        print_compiled(program, f"{collective} {name}")
    for maker in (own.neighbours, own.collected, own.everything):
        print_compiled(maker(4), maker.__name__)
    xml = write(make("all_reduce", "hierarchical", 6).compile(policy="connections", fans=False))
    print_digest("XML", xml)
    print_digest("XML, read", ir.to_text(read(xml)))


if __name__ == "__main__":
    main()
