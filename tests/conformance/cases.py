"""What the conformance suite runs: the set of all cases, and the part of it that every run of the tests takes."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from starling import ir
from starling.ir.element import DATA_TYPES, REDUCE_OPS, takes

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
MOVING = ("all_gather", "broadcast", "all_to_all", "gather", "scatter", "send_recv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
VARYING = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
EQUAL_PARTS = ("two_step", "three_step")  # pass parts of others on, of whose lengths they know nothing
COUNTS = (0, 1, 2, 7, 64, 1000, 4099, 65539)
LARGE_COUNT = (1 << 20) + 5


@dataclass(frozen=True)
class Case:
    """One call on all ranks. Its text is enough to run it again: ``-k`` the test, or ``Case(...)`` in a shell."""

    collective: str
    ranks: int
    data_type: str
    reduce_op: str = "sum"
    count: int = 1000  # elements of one part
    root: int = 0
    in_place: bool = False
    varying: bool = False  # parts of different lengths, with gaps between them
    algorithm: str | None = None
    seed: int = 0


def kinds() -> list[tuple[str, str, str]]:
    """Every collective with every data type and reduction that means something."""
    reducing = [
        (collective, data_type, op)
        for collective, data_type, op in itertools.product(REDUCING, DATA_TYPES, REDUCE_OPS)
        if takes(data_type, op)
    ]
    return reducing + [(c, data_type, "sum") for c, data_type in itertools.product(MOVING, DATA_TYPES)]


def shapes(collective: str) -> list[tuple[bool, bool]]:
    """(in place, varying) as the collective has them."""
    places = [False] if collective == "send_recv" else [False, True]
    both = list(itertools.product(places, [False, True] if collective in VARYING else [False]))
    return [shape for shape in both if shape != (True, True) or collective != "all_to_all"]


def algorithms(collective: str, ranks: int, varying: bool) -> list[str | None]:
    """None, the library's choice, and the names that take so many ranks."""
    if collective == "send_recv":
        return [None]
    names = []
    for name in ir.algorithms(collective):
        if varying and name in EQUAL_PARTS:
            continue
        try:
            ir.builtin(collective, name, ranks)
        except ValueError:
            continue
        names.append(name)
    return [None, *names]


def all_cases(ranks: int) -> Iterator[Case]:
    """Every case of so many ranks."""
    for collective, data_type, op in kinds():
        roots = sorted({0, ranks - 1}) if collective in ROOTED else [0]
        for in_place, varying in shapes(collective):
            for algorithm in algorithms(collective, ranks, varying):
                for count, root in itertools.product(COUNTS, roots):
                    yield Case(
                        collective,
                        ranks,
                        data_type,
                        op,
                        count,
                        root,
                        in_place,
                        varying,
                        algorithm,
                        count + root,
                    )


def chosen_cases(ranks: int, share: int, shares: int, seed: int) -> list[Case]:
    """Share number ``share`` of ``shares``: together they have every kind; and every shape with every algorithm."""
    source = random.Random(seed)
    all_kinds = kinds()
    source.shuffle(all_kinds)
    here = random.Random(seed * 1000 + ranks * 100 + share)
    cases = [_any_case(here, ranks, *kind) for kind in all_kinds[share::shares]]
    for collective in REDUCING + MOVING:
        of_collective = [kind for kind in all_kinds if kind[0] == collective]
        for in_place, varying in shapes(collective):
            for algorithm in algorithms(collective, ranks, varying):
                case = _any_case(here, ranks, *here.choice(of_collective))
                cases.append(
                    Case(**{**vars(case), "in_place": in_place, "varying": varying, "algorithm": algorithm})
                )
    cases.append(Case("all_reduce", ranks, "float32", count=LARGE_COUNT, seed=share))
    here.shuffle(cases)
    return cases


def _any_case(source: random.Random, ranks: int, collective: str, data_type: str, op: str) -> Case:
    in_place, varying = source.choice(shapes(collective))
    return Case(
        collective,
        ranks,
        data_type,
        op,
        count=source.choice(COUNTS),
        root=source.randrange(ranks) if collective in ROOTED else 0,
        in_place=in_place,
        varying=varying,
        algorithm=source.choice(algorithms(collective, ranks, varying)),
        seed=source.randrange(1 << 30),
    )
