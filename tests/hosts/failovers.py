"""Many failovers in a row between two network namespaces (root): ``python tests/hosts/failovers.py --json FILE``.

All-reduces, every element checked, go on while a rail that carries them goes down at either end, or falls silent, by
chance under a seed; each time the traffic has to leave the rail, and to come back to it once it is well.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts import programs  # noqa: E402
from hosts.network import Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402

FAULTS = ("own port", "peer's port", "silent")
BOUND_S = 200


@dataclass
class Failovers:
    all_reduces: int = 0
    by_fault: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))

    @property
    def count(self) -> int:
        return sum(self.by_fault.values())


def disturb(network: Network, fault: str, rail: int, on: bool) -> None:
    if fault == "silent":
        network.set_silent(rail, on)
    else:
        network.set_up(0 if fault == "own port" else 1, rail, not on)


class Counts:
    """What rank 0 last said of its paths."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.now: dict[str, list[int]] = {}

    def until(self, what: str, condition: Callable[[dict[str, list[int]]], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while True:
            self.job.check_on()
            if (file := self.job.folder / "paths").exists():
                self.now = json.loads(file.read_text())
                if condition(self.now):
                    return
            assert time.monotonic() < deadline, f"{what}: {self.now}"
            time.sleep(0.002)

    def until_it_carries(self, rail: int) -> None:
        """Enough of what comes now; a resend of what was under way is less."""
        if not self.now:
            self.until("a start", lambda now: True)
        before, done = self.now["bytes"][rail], self.now["done"]
        enough = 10 * 4 * programs.SMALL_COUNT
        self.until(
            f"rail {rail} carries",
            lambda now: now["bytes"][rail] - before > enough and now["done"] != done,
        )


def run(network: Network, count: int, seed: int, *, striping: bool) -> Failovers:
    """So many failovers in a row."""
    chance, found = random.Random(seed), Failovers()
    settings = {"STARLING_TCP_STRIPING": str(int(striping))}
    job = Job(network, [[0], [1]], programs.all_reduces_with_counts, settings=settings)
    counts = Counts(job)
    fault, rail = "", 0
    try:
        for _ in range(count):
            rail = chance.randrange(2) if striping else 0
            counts.until_it_carries(rail)
            time.sleep(chance.random() * 0.05)
            closed = counts.now["closed"][rail]
            fault = chance.choice(FAULTS)
            disturb(network, fault, rail, True)
            counts.until(
                "the rail is left", lambda now, rail=rail, closed=closed: now["closed"][rail] > closed
            )
            counts.until_it_carries(1 - rail)
            disturb(network, fault, rail, False)
            found.by_fault[fault] += 1
            fault = ""
        counts.until_it_carries(0)
        job.say("stop")
        found.all_reduces = min(job.results())
    finally:
        job.end()
        if fault:
            disturb(network, fault, rail, False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200, help="half of them with striping")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    )
    report = {
        "command": "python tests/hosts/failovers.py --json " + str(arguments.json),
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "seed": arguments.seed,
    }
    with Network() as network:
        for policy in ("primary-backup", "striping"):
            begin = time.monotonic()
            found = run(network, arguments.count // 2, arguments.seed, striping=policy == "striping")
            report[policy] = {
                "failovers": found.count,
                "by fault": found.by_fault,
                "all-reduces, each element checked": found.all_reduces,
                "seconds": round(time.monotonic() - begin, 1),
            }
            print(policy, report[policy], flush=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
