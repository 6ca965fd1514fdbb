"""Goal: every collective is right for every type, reduction, count, number of ranks, algorithm, in and out of place.

Method: cases run on every machine, several at a time in lanes of their own and in another order on every rank;
each rank compares with numpy, and memory around the buffers must stay as it was. CI takes a part that is chosen
by SEED: a kind of case on one of the machines, every shape with every algorithm on both; ``FULL_TESTS=1`` takes all.
"""

import functools

import pytest

from conformance import call, cases
from conformance.machines import MACHINES, Machine
from full_tests import FULL

SEED = 20260114
RANKS = range(1, 9)
BLOCKS = (1, 3)


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]


def check(results: list[list[call.Result]]) -> None:
    """Every rank's every case went well, and all ranks of an all_reduce hold the same bytes."""
    problems = [
        f"rank {rank}: {result.case}: {result.problem}"
        for rank, of_rank in enumerate(results)
        for result in of_rank
        if result.problem
    ]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])
    for of_case in zip(*results, strict=True):
        if of_case[0].case.collective == "all_reduce":
            assert len({result.digest for result in of_case}) == 1, f"ranks differ: {of_case[0].case}"


def taken_cases(machine: Machine, ranks: int, blocks: int) -> list[cases.Case]:
    if FULL:
        return list(cases.all_cases(ranks))
    number = list(MACHINES).index(machine.name)
    shares = len(RANKS) * len(BLOCKS) * len(MACHINES)
    share = ((ranks - 1) * len(BLOCKS) + BLOCKS.index(blocks)) * len(MACHINES) + number
    return cases.chosen_cases(ranks, share, shares, SEED)


@pytest.mark.timeout(0 if FULL else 300)
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("ranks", RANKS)
def test_collectives(machine: Machine, ranks: int, blocks: int) -> None:
    taken = taken_cases(machine, ranks, blocks)
    check(
        machine.run(
            ranks,
            functools.partial(call.run_cases, cases=taken, seed=SEED),
            timeout=7200 if FULL else 280,
            context={"blocks": blocks},
            operation_timeout=250,
        )
    )
