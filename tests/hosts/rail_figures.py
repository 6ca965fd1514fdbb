"""What a lost rail costs, between two network namespaces of this machine (root):
``python tests/hosts/rail_figures.py --json FILE``.

*Throughput*: all-reduces over rails of a rate that tc keeps, low enough that not the processor decides: one rail
alone, two striped, and two of which one is lost. *Standstill*: how long all-reduces of 64 KiB stand still when a rail
that they go by fails. The ranks come before what else wants the cores.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts import programs  # noqa: E402
from hosts.failovers import FAULTS, Counts, disturb  # noqa: E402
from hosts.network import RAILS, Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from starling.bench import results  # noqa: E402

POLICIES = {"primary-backup": {}, "striping": {"STARLING_TCP_STRIPING": "1"}}
LARGE, SMALL = 1 << 20, 1 << 14  # float32
SETTLED_S = (
    1.0  # after a rail was left or healed, or a group began: TCP finds its rate, and paths are opened again
)
SHORTEST_S = 4.0  # that a rate is taken over


def rate_of(network: Network, settings: dict[str, str], lost: str | None) -> float:
    """MB/s of what each rank sends in all-reduces of 4 MiB, once rail 1 is lost by that fault."""
    job = Job(network, [[0], [1]], programs.timed_all_reduces, {"count": LARGE}, settings=settings)
    counts = Counts(job)
    try:
        counts.until("a start", lambda now: now["done"] > 3)
        if lost is not None:
            closed = counts.now["closed"]
            disturb(network, lost, 1, True)
            counts.until_left(1, closed, lost)
        begin = time.monotonic() + SETTLED_S
        time.sleep(SETTLED_S + SHORTEST_S)
        job.say("stop")
        done = job.results()[0]
    finally:
        job.end()
        if lost is not None:
            disturb(network, lost, 1, False)
    taken = done[bisect.bisect_left(done, begin) :]
    return 4e-6 * LARGE * (len(taken) - 1) / (taken[-1] - taken[0])


def standstills(
    network: Network, fault: str, policy: str, samples: int, chance: random.Random
) -> list[float]:
    """Milliseconds between two all-reduces, where the fault fell into: the longest until the rail was left."""
    job = Job(network, [[0], [1]], programs.timed_all_reduces, {"count": SMALL}, settings=POLICIES[policy])
    counts, spans = Counts(job), []
    try:
        for _ in range(samples):
            rail = chance.randrange(2) if policy == "striping" else 0
            counts.until_well(policy == "striping")
            # What rank 1 sends has all of its paths again, too; rank 0 alone counts.
            time.sleep(SETTLED_S + chance.random() * 0.05)
            closed, begin = counts.now["closed"], time.monotonic()
            disturb(network, fault, rail, True)
            try:
                counts.until_left(rail, closed, fault)
                counts.until_it_carries(1 - rail)
                spans.append((begin, time.monotonic()))
            finally:
                disturb(network, fault, rail, False)
        job.say("stop")
        done = job.results()[0]
    finally:
        job.end()
    gaps = list(itertools.pairwise(done))
    return [1e3 * max(b - a for a, b in gaps if b > begin and a < end) for begin, end in spans]


def summary(values: list[float]) -> dict[str, Any]:
    values = sorted(values)
    return {
        "median": round(statistics.median(values), 2),
        "largest": round(values[-1], 2),
        "all": [round(one, 2) for one in values],
    }


def throughput(network: Network, rate: str, repetitions: int) -> dict[str, Any]:
    striped = POLICIES["striping"]
    kinds: dict[str, tuple[dict[str, str], str | None]] = {
        "one rail alone": ({"STARLING_TCP_INTERFACES": RAILS[0]}, None),
        "two striped": (striped, None),
        "two striped, one down": (striped, "own port"),
        "two striped, one silent": (striped, "silent"),
    }
    assert all(network.set_rate(rail, rate) for rail in (0, 1)), "the kernel has no tbf"
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repetitions):  # in turns
        for kind, (settings, lost) in kinds.items():
            found[kind].append(rate_of(network, settings, lost))
            print(kind, found[kind][-1], flush=True)
    for rail in (0, 1):
        network.set_slow(rail, False)
    alone = statistics.median(found["one rail alone"])
    return {
        "rails": rate,
        "MB/s": {kind: summary(values) for kind, values in found.items()},
        "of one rail alone": {
            kind: round(statistics.median(values) / alone, 3) for kind, values in found.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rate", default="200mbit", help="of each rail, as tc names it")
    parser.add_argument("--repetitions", type=int, default=5, help="of each throughput")
    parser.add_argument("--samples", type=int, default=15, help="of each standstill")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--standstills-only", action="store_true", help="no throughput")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    report: dict[str, Any] = {
        **results.origin(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
    }
    chance = random.Random(options.seed)
    with Network() as network:
        report["silent by"] = "nftables" if network.nftables else "neighbours"
        if not options.standstills_only:
            report["throughput"] = throughput(network, options.rate, options.repetitions)
        report["standstill, ms"] = {}
        for policy, fault in itertools.product(options.policies, options.faults):
            times = summary(standstills(network, fault, policy, options.samples, chance))
            report["standstill, ms"].setdefault(policy, {})[fault] = times
            print(policy, fault, times, flush=True)
    report["load at the end"] = os.getloadavg()[0]
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
