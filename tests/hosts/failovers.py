"""Many failovers in a row between two network namespaces (root): ``python tests/hosts/failovers.py --json FILE``.

All-reduces, every element checked, go on while a rail that carries them goes down at either end, or falls silent, both
ways or one way, by chance under a seed; each time the traffic has to leave the rail, and to come back to it once it is
well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts import programs  # noqa: E402
from hosts.network import Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from starling.bench import results  # noqa: E402

FAULTS = ("own port", "peer's port", "silent", "silent there", "silent back")  # as rank 0 has it
SILENT = {"silent": None, "silent there": 1, "silent back": 0}  # what is sent to whom is lost; None: to both
BOUND_S = 200
LEAST_FLAPS, MOST_FLAPS = 5, 500  # the most: a minute or so, within pytest's time


@dataclass
class Failovers:
    iterations: int = 0  # of the program
    by_fault: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))

    @property
    def count(self) -> int:
        return sum(self.by_fault.values())


def disturb(network: Network, fault: str, rail: int, on: bool) -> None:
    if fault in SILENT:
        network.set_silent(rail, on, to=SILENT[fault])
    else:
        network.set_up(0 if fault == "own port" else 1, rail, not on)


ByPeer = Mapping[str, Sequence[int]]  # what rank 0 counts of each of its paths


def through_failing_rails(network: Network, job: Job, fault: str) -> None:
    """Breaks and heals one of two rails after the other, while the job says which iterations are done."""

    def newest(done: int) -> int:
        while (job.folder / f"done.{done + 1}").exists():
            done += 1
        return done

    done = 2
    try:
        for rail in (0, 1, 0):
            job.wait_for(f"done.{done}")
            disturb(network, fault, rail, True)
            done = newest(done) + 2
            job.wait_for(f"done.{done}")
            disturb(network, fault, rail, False)
            time.sleep(0.3)
            done = newest(done) + 1
        job.say("stop")
        assert min(job.results()) >= done
    finally:
        job.end()
        for rail in (0, 1):
            for host in (0, 1):
                network.set_up(host, rail, True)


def grown(before: ByPeer, now: ByPeer, rail: int, by: int = 0) -> bool:
    """More than so much came to it at the rail to every peer: one peer's flow says nothing of another's."""
    return bool(now) and all(
        paths[rail] - (before[peer][rail] if peer in before else 0) > by for peer, paths in now.items()
    )


class Counts:
    """What rank 0 last said of its paths."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.now: dict[str, Any] = {}

    def until(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while True:
            self.job.check_on()
            if (file := self.job.folder / "paths").exists():
                self.now = json.loads(file.read_text())
                if condition(self.now):
                    return
            assert time.monotonic() < deadline, f"{what}: {self.now}"
            time.sleep(0.002)

    def until_left(self, rail: int, closed: ByPeer, what: str = "") -> None:
        """Its paths to every peer have been closed since then."""
        self.until(f"rail {rail} is left {what}", lambda now: grown(closed, now["closed"], rail))

    def until_it_carries(self, rail: int) -> None:
        """Enough of what comes now; a resend of what was under way is less."""
        self._until_they_carry([rail], 10 * 4 * programs.SMALL_COUNT)

    def until_well(self, striping: bool) -> None:
        """All rails that the policy uses carry. Striped, one may have nothing but small messages for long."""
        if striping:
            self._until_they_carry([0, 1], 4096)
        else:
            self.until_it_carries(0)

    def _until_they_carry(self, rails: Sequence[int], enough: int) -> None:
        # Read anew: what this one read last may be from before all that the caller did since.
        self.until("a start", lambda now: True)
        before, done = self.now["bytes"], self.now["done"]
        self.until(
            f"rails {rails} carry",
            lambda now: (
                now["done"] != done and all(grown(before, now["bytes"], rail, enough) for rail in rails)
            ),
        )


def flap(network: Network, job: Job, fault: str, rail: int, chance: random.Random, while_done: int) -> int:
    """The rail fails and is well again, in turns much shorter than the watchdog's, until the program has done so many
    more iterations meanwhile. How often."""
    counts = Counts(job)
    counts.until("a start", lambda now: True)
    until, times = counts.now["done"] + while_done, 0
    while counts.now["done"] < until or times < LEAST_FLAPS:
        disturb(network, fault, rail, True)
        try:
            time.sleep(chance.random() * 0.1)
        finally:
            disturb(network, fault, rail, False)
        time.sleep(chance.random() * 0.1)
        times += 1
        counts.until("counts", lambda now: True)
        assert times < MOST_FLAPS, f"nothing goes on while a rail flaps: {counts.now}"
    return times


def run(
    network: Network,
    count: int,
    seed: int,
    *,
    striping: bool,
    program: Callable[..., int] = programs.all_reduces_with_counts,
    hosts: Sequence[Sequence[int]] = ((0,), (1,)),
    arguments: Mapping[str, Any] | None = None,
    faults: Sequence[str] = FAULTS,
) -> Failovers:
    """So many failovers in a row, each fault as often as any other. Rank 0 keeps programs.PathCounts."""
    chance, found = random.Random(seed), Failovers()
    settings = {"STARLING_TCP_STRIPING": str(int(striping))}
    job = Job(network, hosts, program, arguments, settings=settings)
    counts = Counts(job)
    faults = list(itertools.islice(itertools.cycle(faults), count))
    chance.shuffle(faults)
    fault, rail = "", 0
    try:
        for chosen in faults:
            rail = chance.randrange(2) if striping else 0
            counts.until_well(striping)
            time.sleep(chance.random() * 0.05)
            closed = counts.now["closed"]
            fault = chosen
            disturb(network, fault, rail, True)
            counts.until_left(rail, closed, fault)
            counts.until_it_carries(1 - rail)
            disturb(network, fault, rail, False)
            found.by_fault[fault] += 1
            fault = ""
        counts.until_well(striping)
        job.say("stop")
        found.iterations = min(job.results())
    finally:
        job.end()
        if fault:
            disturb(network, fault, rail, False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument(
        "--count", type=int, default=200, help="of each policy, one after the other in one job"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = {
        **results.origin(),
        "seed": arguments.seed,
    }
    with Network() as network:
        for policy in ("primary-backup", "striping"):
            begin = time.monotonic()
            found = run(network, arguments.count, arguments.seed, striping=policy == "striping")
            report[policy] = {
                "failovers": found.count,
                "by fault": found.by_fault,
                "all-reduces, each element checked": found.iterations,
                "seconds": round(time.monotonic() - begin, 1),
            }
            print(policy, report[policy], flush=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
