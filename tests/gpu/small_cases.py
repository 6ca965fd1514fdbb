"""Small cases of the conformance suite on two ranks or more, threads of this process, for compute-sanitizer: every
shape of every collective with every algorithm, up to a thousand elements.

``compute-sanitizer --tool memcheck python tests/gpu/small_cases.py [cases [ranks]]``, with CUDA_MODULE_LOADING=LAZY:
the library loads its own kernels, and nothing launches any of PyTorch's.
"""

import functools
import sys

from conformance import call, cases
from conformance.test_conformance import SEED, check
from gpu import gpus

LARGEST_COUNT = 1000
LIMIT_S = 200


def main() -> None:
    ranks = int(sys.argv[2]) if sys.argv[2:] else 2
    chosen = cases.chosen_cases(ranks, 0, 6, SEED)
    small = [case for case in chosen if case.count <= LARGEST_COUNT][
        : int(sys.argv[1]) if sys.argv[1:] else None
    ]
    check(
        gpus.MACHINES["threads"].run(
            ranks,
            functools.partial(call.run_cases, cases=small, seed=SEED),
            timeout=LIMIT_S,
            operation_timeout=LIMIT_S / 2,
        )
    )
    print(f"{len(small)} cases of {ranks} ranks are right")


if __name__ == "__main__":
    main()
