"""Goal: every collective is right on GPUs: every type, reduction, algorithm, in and out of place, 1 to 4 ranks.

Method: the conformance suite's cases on CUDA tensors; ranks as threads (several on a GPU where there are fewer)
and as processes, one a GPU. Each number of ranks that has so many GPUs takes all kinds of cases, a SHARES-th in each
machine with each number of blocks, and every shape with every algorithm in all of them. ``FULL_TESTS=1`` takes all
cases, 100,000 each time.
"""

import functools

import pytest

from conformance import call, cases
from conformance.test_conformance import FULL, SEED, check
from gpu import gpus

pytestmark = pytest.mark.gpu
BLOCKS = (1, 8, 32)  # 32: the default
SHARES = len(BLOCKS) * len(gpus.MACHINES)


@pytest.mark.timeout(0 if FULL else 300)
@pytest.mark.parametrize("ranks", (1, 2, 3, 4))
@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
@pytest.mark.parametrize("blocks", BLOCKS)
def test_collectives(machine: str, ranks: int, blocks: int) -> None:
    if machine == "processes":
        gpus.skip_unless(ranks)
    if blocks == 32 and ranks > 2 * gpus.count():
        pytest.skip("their daemons would fill the GPUs")
    share = (
        ranks + BLOCKS.index(blocks) * len(gpus.MACHINES) + sorted(gpus.MACHINES).index(machine)
    ) % SHARES
    taken = list(cases.all_cases(ranks)) if FULL else cases.chosen_cases(ranks, share, SHARES, SEED)
    check(
        gpus.MACHINES[machine].run(
            ranks,
            functools.partial(call.run_cases, cases=taken, seed=SEED),
            timeout=7200 if FULL else 120,
            context={"blocks": blocks},
            operation_timeout=30,
        )
    )
