"""GC3's Fig. 7 by the cost model: `python -m starling.tune.figure_7`. Virtual time: load does not matter.

Each row is a pair of plans: by size, how many times faster the first one is. The machine is 8 GPUs a node, each with a
port between nodes; its figures are guesses of the right size, none of them fitted to the paper's. With `--rings`, rings
of 8 to 256 ranks by protocol; what protocols cost is as measured between two H200 (`model.GPUS`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starling import ir
from starling.lang import AllGather, Program, ReduceScatter
from starling.plans import program
from starling.plans.ring import around, pass_round
from starling.tune.model import GPUS, Link, Machine, cost_us

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
RINGS_MACHINE = replace(
    MACHINE,
    signal_us=GPUS.signal_us,
    packet_bytes_per_us=GPUS.packet_bytes_per_us,
    pull_bytes_per_us=GPUS.pull_bytes_per_us,
    pulls_cross_links=True,
)
RINGS = ((8, 1), (8, 4), (16, 1), (16, 4), (64, 1), (64, 4), (256, 1))
"""Ranks and blocks. A ring of 256 has 130,000 instructions for each tile of each block."""
RINGS_SIZES = SIZES[:-1]
LARGEST_PACKETS = 1 << 22  # of a chunk of a 256th, two packet slots; what is larger is not what they are for


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


def rings(rings: tuple[tuple[int, int], ...] = RINGS, sizes: list[int] = RINGS_SIZES) -> list[dict[str, Any]]:
    """Rings in packets and pulled beside the ring in slots of as many ranks and blocks."""
    rows = []
    for ranks, blocks in rings:
        us = {}
        for protocol in ("slots", "packets", "pull"):
            plan = replace(ir.builtin("all_reduce", "ring", ranks, blocks=blocks), protocol=protocol)
            fitting = [size for size in sizes if protocol != "packets" or size <= LARGEST_PACKETS]
            us[protocol] = {size: cost_us(plan, size, RINGS_MACHINE) for size in fitting}
        many = f"{ranks} ranks, {blocks} block{'' if blocks == 1 else 's'}"
        rows += [
            {
                "panel": f"a, {ranks} ranks",
                "first": f"ring in {protocol}, {many}" if protocol == "packets" else f"ring, pulled, {many}",
                "second": "ring in slots",
                "us": [us[protocol].get(size) for size in sizes],
                "second_us": [us["slots"][size] for size in sizes],
                "ratios": [
                    us["slots"][size] / us[protocol][size] if size in us[protocol] else None for size in sizes
                ],
                "model_ratios": [None for _ in sizes],
            }
            for protocol in ("packets", "pull")
        ]
    return rows


def _write(path: Path, rows: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    from starling.bench import results

    document = results.document("figure_7_model", settings, rows)
    document["command"] = "python -m starling.tune.figure_7 " + " ".join(sys.argv[1:])
    results.write(path, document)


def _rings_main(out: Path | None) -> None:
    from starling.tune.figure_7_measured import plot, table

    rows = rings()
    for line in table(rows, RINGS_SIZES):
        print(line)
    if out is not None:
        _write(out, rows, {"model": repr(RINGS_MACHINE), "sizes": RINGS_SIZES})
        plot(rows, RINGS_SIZES, out.with_suffix(".png"), "rings by the cost model")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m starling.tune.figure_7", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8, help="of the larger cases; 32 is the paper's")
    parser.add_argument("--out", type=Path, default=None, help="JSON")
    parser.add_argument(
        "--rings", action="store_true", help="rings by protocol instead; the picture goes beside --out"
    )
    options = parser.parse_args()
    if options.rings:
        return _rings_main(options.out)
    rows = []
    print("| | first | second | " + " | ".join(f"{size >> 10} KB" for size in SIZES) + " |")
    print("| --- | --- | --- | " + " | ".join("---:" for _ in SIZES) + " |")
    for row in comparisons(options.nodes):
        ratios = [row.theirs_us(size) / row.ours_us(size) for size in SIZES]
        print(f"| {row.panel} | {row.ours} | {row.theirs} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
        rows.append({"panel": row.panel, "first": row.ours, "second": row.theirs, "ratios": ratios})
    if options.out is not None:
        _write(options.out, rows, {"nodes": options.nodes, "model": repr(MACHINE), "sizes": SIZES})


if __name__ == "__main__":
    main()
