"""All programs of plans/, at sizes that show their shapes."""

from starling.plans import ALGORITHMS, program

from starling.lang import Program

NODED = {
    "hierarchical",
    "rails",
    "leaders",
    "two_step",
    "three_step",
    "spread",
}  # for an even number of ranks
ALWAYS_APART = {"all_to_all", "all_to_next", "gather", "scatter"}
NAMES = [
    (collective, name)
    for collective, makers in ALGORITHMS.items()
    for name in makers
    if collective != "send_recv"  # of two ranks alone
]


def sizes_of(name: str) -> tuple[int, ...]:
    return (2, 4, 6) if name in NODED else (1, 2, 3, 4, 7)


def make(collective: str, name: str, ranks: int, instances: int = 1, in_place: bool = False) -> Program:
    options: dict[str, object] = {"instances": instances}
    if collective not in ALWAYS_APART:
        options["in_place"] = in_place
    return program(collective, name, ranks, **options)
