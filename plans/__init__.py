"""The library's algorithms as programs (starling.lang), each a function from the number of ranks to a ``Program``.

``ALGORITHMS[collective][name]`` has them all; ``program(collective, name, ranks, ...)`` makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starling.plans import (
    all_pairs,
    all_to_all,
    all_to_next,
    chain,
    direct,
    halving_doubling,
    hierarchical,
    leaders,
    rails,
    ring,
    split,
    tree,
)

from starling.lang import Program

Maker = Callable[..., Program]

ALGORITHMS: dict[str, dict[str, Maker]] = {
    "all_reduce": {
        "ring": ring.all_reduce,
        "one_shot": all_pairs.one_shot,
        "two_shot": all_pairs.two_shot,
        "halving_doubling": halving_doubling.all_reduce,
        "double_tree": tree.double_tree,
        "hierarchical": hierarchical.all_reduce,
        "rails": rails.all_reduce,
        "leaders": leaders.all_reduce,
    },
    "all_gather": {"ring": ring.all_gather, "all_pairs": all_pairs.all_gather, "rails": rails.all_gather},
    "reduce_scatter": {
        "ring": ring.reduce_scatter,
        "all_pairs": all_pairs.reduce_scatter,
        "rails": rails.reduce_scatter,
    },
    "broadcast": {
        "chain": chain.broadcast,
        "direct": direct.broadcast,
        "split": split.broadcast,
        "tree": tree.broadcast,
        "leaders": leaders.broadcast,
    },
    "reduce": {
        "chain": chain.reduce,
        "direct": direct.reduce,
        "split": split.reduce,
        "tree": tree.reduce,
        "leaders": leaders.reduce,
    },
    "gather": {"direct": direct.gather},
    "scatter": {"direct": direct.scatter},
    "send_recv": {"direct": direct.send_recv},
    "all_to_all": {
        "direct": all_to_all.direct,
        "two_step": all_to_all.two_step,
        "three_step": all_to_all.three_step,
    },
    "all_to_next": {"direct": all_to_next.direct, "spread": all_to_next.spread},
}


def program(collective: str, algorithm: str, ranks: int, **options: Any) -> Program:
    """The program of an algorithm; raises KeyError with the names there are."""
    if collective not in ALGORITHMS:
        raise KeyError(f"no program for '{collective}'; there are {', '.join(ALGORITHMS)}")
    makers = ALGORITHMS[collective]
    if algorithm not in makers:
        raise KeyError(f"no program '{algorithm}' for {collective}; there are {', '.join(makers)}")
    return makers[algorithm](ranks, **options)
