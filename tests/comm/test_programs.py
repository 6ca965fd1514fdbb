"""Goal: DFCCL §6.1's two programs, which hang other libraries, finish with right sums.

Method: eight ranks launch eight all-reduces in random orders, or in a Latin square's (program 1), with a device
synchronization after every k-th submission (program 2); as threads and as processes, with adaptive, fixed and
minimal budgets, with one and two blocks. Every element is checked. ``FULL_TESTS=1`` runs all for 200
iterations, else the first ones take 50, the others 10.
"""

import functools
import itertools

import pytest

from comm import programs
from conformance.machines import MACHINES
from full_tests import FULL
from starling import Scheduling

SEED = 7
ITERATIONS = 200 if FULL else 50

BUDGETS = {
    "adaptive": Scheduling(),
    "fixed": Scheduling(fixed=True),
    "minimal": Scheduling(initial_budget_ns=1, minimum_budget_ns=1, fixed=True),
}


def run(
    machine: str, order: str, synchronize_every: int, budgets: str, blocks: int, iterations: int
) -> list[dict]:
    statistics = MACHINES[machine].run(
        programs.RANKS,
        functools.partial(
            programs.disordered,
            order=order,
            iterations=iterations if not FULL else ITERATIONS,
            synchronize_every=synchronize_every,
            seed=SEED,
        ),
        timeout=280,
        context={"blocks": blocks, "scheduling": BUDGETS[budgets]},
        operation_timeout=250,
    )
    assert len(statistics) == programs.RANKS
    return statistics


@pytest.mark.parametrize("order", sorted(programs.ORDERS))
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_program_1(machine: str, order: str) -> None:
    statistics = run(machine, order, 0, "adaptive", 1, ITERATIONS)
    for of_rank in statistics:
        assert of_rank["completions"] == of_rank["submissions"] == ITERATIONS * len(programs.COUNTS)
    assert sum(of_rank["parks"] for of_rank in statistics) > 0, "nothing ever yielded: the test tests nothing"


@pytest.mark.parametrize("every", (1, 2, 4))
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_program_2(machine: str, every: int) -> None:
    statistics = run(machine, "random", every, "adaptive", 1, ITERATIONS)
    assert sum(of_rank["quits_stuck"] + of_rank["quits_drained"] for of_rank in statistics) > 0


VARIANTS = [
    (budgets, blocks, every)
    for budgets, blocks, every in itertools.product(sorted(BUDGETS), (1, 2), (0, 1, 2, 4))
    if (budgets, blocks) != ("adaptive", 1)
]


@pytest.mark.parametrize(("budgets", "blocks", "every"), VARIANTS)
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_budgets_and_blocks(machine: str, budgets: str, blocks: int, every: int) -> None:
    run(machine, "latin" if every == 0 else "random", every, budgets, blocks, 10)


def test_without_yielding_it_hangs() -> None:
    """The programs are hard: with yielding switched off, the same launches never finish, and a timeout says so."""
    outcomes = MACHINES["processes"].run(
        programs.RANKS,
        functools.partial(
            programs.disordered, order="latin", iterations=3, synchronize_every=0, seed=SEED, timeout_s=2
        ),
        timeout=250,
        check=False,
        context={"blocks": 1, "scheduling": Scheduling(unbounded=True)},
        operation_timeout=200,
    )
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert errors, "nothing hung: the test tests nothing"
    assert any("did not finish within" in str(error) for error in errors), errors
    assert any("all have called it: see with `starling diagnose`" in str(error) for error in errors), errors
