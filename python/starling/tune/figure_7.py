"""GC3's Fig. 7 by the cost model: `python -m starling.tune.figure_7`. Virtual time: load does not matter.

Each row is a pair of plans: by size, how many times faster the first one is. The machine is 8 GPUs a node, each with a
port between nodes; its figures are guesses of the right size, none of them fitted to the paper's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling import ir
from starling.lang import AllGather, Program, ReduceScatter
from starling.plans import program
from starling.plans.ring import around, pass_round
from starling.tune.model import Link, Machine, cost_us

NODE = 8
MACHINE = Machine(
    inside=Link(1.1, 140000.0, 0.1),
    between=Link(4.0, 40000.0, 0.5),
    ranks_per_node=NODE,
    instruction_us=0.4,
    copy_bytes_per_us=60000.0,
    reduce_bytes_per_us=50000.0,
    slot_bytes=1 << 18,
)
SIZES = [1 << k for k in range(10, 31, 4)]


@dataclass(frozen=True)
class Comparison:
    panel: str
    ours: str
    theirs: str
    ours_us: Callable[[int], float]
    theirs_us: Callable[[int], float]


def _cost(plan: ir.Plan) -> Callable[[int], float]:
    """By the size of the larger buffer, all parts included."""
    parts = plan.output_groups if plan.collective != "custom" else 1
    return lambda size: cost_us(plan, max(16, size // parts), MACHINE)


def _composed(ranks: int) -> Callable[[int], float]:
    """A hierarchical all-reduce of three kernels, one after the other: what libraries are composed to."""
    nodes = ranks // NODE
    scatter, gather = Program("scatter", ReduceScatter(NODE)), Program("gather", AllGather(NODE))
    around(scatter, range(NODE), range(NODE))
    for r in range(NODE):
        scatter.chunk(r, "input", r).copy(r, "output", 0)
        gather.chunk(r, "input", 0).copy(r, "output", r)
    pass_round(gather, range(NODE), range(NODE))
    across = program("all_reduce", "ring", nodes).compile(verify=False)
    apart = Machine(**{**vars(MACHINE), "ranks_per_node": 1})
    inner = [plan.compile(verify=False) for plan in (scatter, gather)]
    launch_us = 5.0  # of each kernel after the first
    return lambda size: (
        sum(cost_us(plan, size // NODE, MACHINE) for plan in inner)
        + cost_us(across, size // NODE, apart)
        + 2 * launch_us
    )


def comparisons(largest_nodes: int) -> list[Comparison]:
    def made(collective: str, name: str, ranks: int, **options: Any) -> Callable[[int], float]:
        return _cost(program(collective, name, ranks, **options).compile(verify=False))

    plain = made("all_reduce", "ring", NODE)
    rows = [
        Comparison("a", f"ring, {channels} channels, {instances} instances", "ring, 1 channel, 24 instances",
                   made("all_reduce", "ring", NODE, channels=channels, instances=instances),
                   made("all_reduce", "ring", NODE, instances=24))
        for channels, instances in ((1, 1), (4, 1), (4, 8), (8, 4))
    ]  # fmt: skip
    rows.append(Comparison("a", "all pairs", "ring", made("all_reduce", "two_shot", NODE), plain))
    for nodes in sorted({2, min(8, largest_nodes), largest_nodes}):
        ranks = nodes * NODE
        rows += [
            Comparison("c", f"hierarchical, {nodes} nodes", "composed",
                       made("all_reduce", "hierarchical", ranks, nodes=nodes), _composed(ranks)),
            Comparison("e", f"two-step all-to-all, {nodes} nodes", "direct",
                       made("all_to_all", "two_step", ranks, nodes=nodes), made("all_to_all", "direct", ranks)),
        ]  # fmt: skip
    rows.append(
        Comparison("g", "AllToNext, 3 nodes, 8 instances", "direct, 8 instances",
                   made("all_to_next", "spread", 3 * NODE, nodes=3, instances=8),
                   made("all_to_next", "direct", 3 * NODE, instances=8))
    )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m starling.tune.figure_7", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8, help="of the larger cases; 32 is the paper's")
    parser.add_argument("--out", type=Path, default=None, help="JSON")
    options = parser.parse_args()
    rows = []
    print("| | first | second | " + " | ".join(f"{size >> 10} KB" for size in SIZES) + " |")
    print("| --- | --- | --- | " + " | ".join("---:" for _ in SIZES) + " |")
    for row in comparisons(options.nodes):
        ratios = [row.theirs_us(size) / row.ours_us(size) for size in SIZES]
        print(f"| {row.panel} | {row.ours} | {row.theirs} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
        rows.append({"panel": row.panel, "first": row.ours, "second": row.theirs, "ratios": ratios})
    if options.out is not None:
        from starling.bench import results

        settings = {"nodes": options.nodes, "model": repr(MACHINE), "sizes": SIZES}
        document = results.document("figure_7_model", settings, rows)
        document["command"] = "python -m starling.tune.figure_7 " + " ".join(sys.argv[1:])
        results.write(options.out, document)


if __name__ == "__main__":
    main()
