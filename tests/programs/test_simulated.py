"""Goal: compiled programs are right in the simulator: under late stores, forced parks and quits, slow ranks and small
slots, on blocks of one to four threads, with every race between blocks and ranks looked for.

Method: all programs for a number of ranks are lanes of one simulated machine; every rank calls them in an order of its
own. A failing seed replays.
"""

import pytest

from programs.cases import NAMES, NODED, make
from starling import ir
from starling.sim import engine


def origins_of(plan: ir.Plan) -> list[list[tuple[int, int]]]:
    """Of AllToNext: what each group of each rank's output is."""
    if plan.collective != "custom":
        return []
    assert plan.output_groups == 1
    return [[(rank - 1, 0)] if rank else [] for rank in range(plan.rank_count)]


@pytest.mark.parametrize(
    ("ranks", "instances", "blocks"), [(2, 1, None), (3, 2, 1), (4, 1, None), (4, 2, 2), (6, 1, 1)]
)
def test_compiled_programs(ranks: int, instances: int, blocks: int | None) -> None:
    names = [(collective, name) for collective, name in NAMES if name not in NODED or ranks % 2 == 0]
    plans = [make(collective, name, ranks, instances).compile(blocks=blocks) for collective, name in names]
    runs = engine.PlanRuns([ir.to_text(plan) for plan in plans], [origins_of(plan) for plan in plans])
    first = 1_000_000 * ranks  # `starling soak` looks at seeds that nobody has seen
    parks = 0
    for seed in range(first, first + 12):
        report = runs.run(3000, 2, seed)
        assert not report.failure, f"seed {seed}: {report.failure}"
        assert report.operations == ranks * len(plans) * 2
        parks += report.parks
    assert parks > 0


@pytest.mark.parametrize(("ranks", "blocks"), [(2, 1), (4, 2), (6, 1), (6, 2)])
def test_all_to_next_as_c_programs_have_it(ranks: int, blocks: int) -> None:
    plans = [
        ir.builtin("custom", name, ranks, blocks=blocks, in_place=False)
        for name in ("all_to_next", f"all_to_next:{ranks}", f"all_to_next:{ranks // 2}@64")
        if name != "all_to_next:1@64"
    ]
    runs = engine.PlanRuns([ir.to_text(plan) for plan in plans], [origins_of(plan) for plan in plans])
    for seed in range(2_000_000 * ranks, 2_000_000 * ranks + 12):
        report = runs.run(3000, 2, seed)
        assert not report.failure, f"seed {seed}: {report.failure}"
        assert report.operations == ranks * len(plans) * 2


def test_a_wrong_expectation_is_seen() -> None:
    plan = make("all_to_next", "direct", 3).compile()
    runs = engine.PlanRuns([ir.to_text(plan)], [[[], [(0, 0)], [(0, 0)]]])
    assert "wrong bytes" in runs.run(100, 1, 1).failure
