"""How long a flow's traffic rests when a rail fails, over Soft-RoCE in a guest: the FIGURE lines of link_program.cc.

Port event to resumed traffic is from the sender's hearing of the event to the first transfer of the next epoch that is
in the receiver's memory and in order; standstill is the longest time between two such transfers. With --failovers N:
so many in a row of one flow, by chance, every transfer's bytes checked.
"""

import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import guest

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--failovers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=500, help="seconds for the guest")
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/tests/bin/verbs.link_program")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if arguments.failovers:
        return many(arguments, load)
    command = f"/bin/{arguments.program.name} figures {arguments.rounds}"
    console = guest.boot([arguments.program], command, arguments.limit)
    events: dict[str, list[float]] = {}
    gaps: dict[str, list[float]] = {}
    for kind, event, gap in re.findall(r"^FIGURE (\w+) (\S+) (\S+)$", console, re.M):
        gaps.setdefault(kind, []).append(float(gap))
        if float(event) >= 0:
            events.setdefault(kind, []).append(float(event))
    if not gaps:
        sys.exit(console[-2000:])
    result = {
        **place(load),
        "port event to resumed traffic, ms": {k: summary(v) for k, v in events.items()},
        "standstill, ms": {k: summary(v) for k, v in gaps.items()},
    }
    show(result, arguments.json)


def many(arguments: argparse.Namespace, load: float) -> None:
    command = f"/bin/{arguments.program.name} failovers {arguments.failovers} {arguments.seed}"
    console = guest.boot([arguments.program], command, arguments.limit)
    if (end := re.search(r"^FAILOVERS (\d+) (\d+) (\d+)$", console, re.M)) is None:
        sys.exit(console[-2000:])
    kinds = collections.Counter(re.findall(r"^FAILOVER (.*)$", console, re.M))
    assert kinds.total() == int(end[1]) == arguments.failovers
    counts = {
        "failovers": int(end[1]),
        "by kind": dict(kinds),
        "transfers": int(end[2]),
        "epoch": int(end[3]),
    }
    show({**place(load), **counts}, arguments.json)


def place(load: float) -> dict[str, object]:
    """Where and when, with the load before."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    version = guest.qemu_version()
    return {
        "command": "python " + " ".join(sys.argv),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"QEMU {version[0]}.{version[1]} without KVM, 2 processors, on {os.cpu_count()} cores",
        "load": load,
        "load at the end": os.getloadavg()[0],
        "kernel": (guest.guest_kernel.folder() / "package").read_text().strip(),
    }


def show(result: dict[str, object], file: Path | None) -> None:
    text = json.dumps(result, indent=1)
    if file:
        file.write_text(text + "\n")
    print(text)


def summary(values: list[float]) -> dict[str, object]:
    return {"median": statistics.median(values), "all": sorted(values)}


if __name__ == "__main__":
    main()
