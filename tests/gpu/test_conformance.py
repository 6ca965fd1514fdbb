"""Goal: every collective is right on GPUs: every type, reduction, algorithm, in and out of place, 1 to 4 ranks.

Method: the conformance suite's cases on CUDA tensors; ranks as threads (several on a GPU where there are fewer)
and as processes, one a GPU. Each number of ranks and blocks takes one of SHARES parts of the kinds of cases, and every
shape with every algorithm: together all kinds. ``FULL_TESTS=1`` takes all cases.
"""

import functools

import pytest

from conformance import call, cases
from conformance.test_conformance import FULL, SEED, check
from gpu import gpus

pytestmark = pytest.mark.gpu
SHARES = 6
BLOCKS = (1, 8, 32)  # 32: the default


@pytest.mark.timeout(0 if FULL else 300)
@pytest.mark.parametrize("ranks", (1, 2, 3, 4))
@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
@pytest.mark.parametrize("blocks", BLOCKS)
def test_collectives(machine: str, ranks: int, blocks: int) -> None:
    if machine == "processes":
        gpus.skip_unless(ranks)
    if blocks == 32 and ranks > 2 * gpus.count():
        pytest.skip("their daemons would fill the GPUs")
    share = (ranks - 1 + BLOCKS.index(blocks) * 2) % SHARES
    taken = (
        list(cases.all_cases(ranks))
        if FULL
        else cases.chosen_cases(ranks, share, SHARES, SEED + len(machine))
    )
    check(
        gpus.MACHINES[machine].run(
            ranks,
            functools.partial(call.run_cases, cases=taken, seed=SEED),
            timeout=7200 if FULL else 120,
            context={"blocks": blocks},
            operation_timeout=30,
        )
    )
