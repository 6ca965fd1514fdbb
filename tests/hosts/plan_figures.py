"""Measures plans that know hosts beside those that do not: ``python tests/hosts/plan_figures.py --json FILE`` (root).

Hosts are network namespaces of this machine, joined at memory's speed or, by tc, at that of a slow wire; every
algorithm of a collective in turns, in one run. A time is the slowest rank's mean of a round; of the rounds the median.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts.network import RAILS, Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from starling.bench import results  # noqa: E402

LAYOUTS = {
    "2x2": [[0, 1], [2, 3]],
    "4x1": [[0], [1], [2], [3]],
    "2x4": [[0, 1, 2, 3], [4, 5, 6, 7]],
}
SIZES = (8, 4096, 65536, 1 << 20, 8 << 20)
CHOSEN = "chosen"
ALGORITHMS = {
    "all_reduce": ("one_shot", "two_shot", "ring", "leaders", "hierarchical", "rails", CHOSEN),
    "all_gather": ("all_pairs", "ring", "rails", CHOSEN),
    "reduce_scatter": ("all_pairs", "ring", "rails", CHOSEN),
    "broadcast": ("direct", "chain", "tree", "leaders", CHOSEN),
    "reduce": ("direct", "chain", "tree", "leaders", CHOSEN),
    "all_to_all": ("pairwise", "two_step", "three_step", CHOSEN),
}


def plan_times(
    comm: Any, rounds: int, sizes: list[int], collectives: list[str]
) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Microseconds a call on this rank: by collective, bytes and algorithm, of each round."""
    import numpy as np

    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    for collective in collectives:
        algorithms = ALGORITHMS[collective]
        for bytes_ in sizes:
            part = np.zeros(max(1, bytes_ // 4 // comm.size), np.float32)
            whole = np.zeros(part.size * comm.size, np.float32)
            few = np.zeros(bytes_ // 4, np.float32)
            buffers = {
                "all_reduce": (few, few.copy()),
                "all_gather": (part, whole),
                "reduce_scatter": (whole, part),
                "broadcast": (few,),
                "reduce": (few, few.copy()),
                "all_to_all": (whole, whole.copy()),
            }[collective]
            of_size: dict[str, list[float]] = {name: [] for name in algorithms}
            calls = min(20, max(2, (4 << 20) // bytes_))
            for _ in range(rounds):
                for name in algorithms:  # in turns: what else the machine does meets all
                    told = {} if name == CHOSEN else {"algorithm": name}
                    call = getattr(comm, collective)
                    call(*buffers, **told).wait(100)
                    comm.barrier().wait(100)
                    begin = time.monotonic()
                    for _ in range(calls):
                        call(*buffers, **told).wait(100)
                    comm.barrier().wait(100)  # a root has sent before the others have received
                    of_size[name].append(1e6 * (time.monotonic() - begin) / calls)
            found.setdefault(collective, {})[bytes_] = of_size
    return found


def medians(of_ranks: list[dict[str, dict[int, dict[str, list[float]]]]]) -> dict[str, Any]:
    first = of_ranks[0]
    return {
        collective: {
            bytes_: {
                name: round(
                    statistics.median(
                        max(times)
                        for times in zip(*(one[collective][bytes_][name] for one in of_ranks), strict=True)
                    ),
                    1,
                )
                for name in algorithms
            }
            for bytes_, algorithms in sizes.items()
        }
        for collective, sizes in first.items()
    }


def main() -> None:
    from hosts import plan_figures  # not __main__: ranks import what they run

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="hosts x ranks of each")
    parser.add_argument(
        "--rates", default=",250mbit", help="of the rails, as tc has them; empty: memory's speed"
    )
    parser.add_argument("--collectives", default=",".join(ALGORITHMS))
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        **results.origin(),
        "load": [os.getloadavg()[0]],
        "unit": "us a call",
    }
    asked = {
        "rounds": arguments.rounds,
        "sizes": [int(size) for size in arguments.sizes.split(",")],
        "collectives": arguments.collectives.split(","),
    }
    layouts = [LAYOUTS[name] for name in arguments.layouts.split(",")]
    for layout, rate in itertools.product(layouts, arguments.rates.split(",")):
        title = f"{len(layout)} hosts of {len(layout[0])}" + (f", {rate}" if rate else "")
        with Network(len(layout)) as network:
            for rail in range(len(RAILS)):
                if rate and not network.set_rate(rail, rate):
                    sys.exit("no tc(8) here, or no sch_tbf in the kernel")
            report[title] = medians(Job(network, layout, plan_figures.plan_times, asked).results(1200))
        for collective, sizes in report[title].items():
            for bytes_, times in sizes.items():
                print(f"{title}: {collective} {bytes_}:", *(f"{n} {t}" for n, t in times.items()), flush=True)
    report["load"].append(os.getloadavg()[0])
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
