"""How short may a disturbance of a wire be that the monitor sees, and places on the right path? Two network namespaces
(root): ``python tests/hosts/disturbances.py --json FILE``.

All-reduces are striped over two rails. Again and again one of them, by chance, lets through next to nothing for some
milliseconds (tc's tbf). What rank 0's monitor then says that its paths have lost to the network is compared with what
it says of as many moments without a disturbance. A rail with nothing to carry cannot be seen to be slow: disturbances
of one that had are counted apart.
"""

from __future__ import annotations

import argparse
import bisect
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts.network import RAILS, Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from monitor.programs import UnderWay, follow_paths  # noqa: E402
from starling.bench import results  # noqa: E402
from starling.monitor import Anomaly  # noqa: E402

FAST = "rate 40gbit burst 1mb latency 1s"
FRAMES = 4  # that pass in a disturbance: one waits a quarter of it longer at most
AFTER_NS = 5_000_000  # what waits on the wire comes, and its reports
LONGEST_NS = 1_000_000_000  # that a transfer is under way
SEEN = 0.3  # of the disturbance: lost to the network, that is called seen


@dataclass
class Moment:
    rail: int | None  # None: nothing is disturbed
    begin_ns: int
    end_ns: int


@dataclass
class Verdict:
    """Of moments: how many there were, in how many a path lost time, in how many the disturbed one lost most. The same
    of those in which the disturbed rail, or any where none is, had something under way as long as is called seen."""

    moments: int
    seen: int
    right: int
    lost_ms: float  # by the disturbed path, or by the worst; median
    busy: int
    busy_seen: int
    busy_right: int


class Wire:
    """The ports of one host, whose rates change at once."""

    def __init__(self, network: Network, host: int) -> None:
        self.name = network.names[host]
        for device in RAILS:
            # One that is much longer than the others would stand still for longer than the disturbance.
            network.ip(host, "link", "set", device, "gso_max_segs", "1")
            words = ["qdisc", "add", "dev", device, "root", "tbf", *FAST.split()]
            subprocess.run(["tc", "-n", self.name, *words], check=True)
        self.tc = subprocess.Popen(["tc", "-n", self.name, "-batch", "-"], stdin=subprocess.PIPE, text=True)

    def set(self, rail: int, rate: str) -> None:
        assert self.tc.stdin is not None
        print(f"qdisc change dev {RAILS[rail]} root tbf {rate}", file=self.tc.stdin, flush=True)

    def disturb(self, rail: int, how_long_ns: int) -> Moment:
        begin = time.monotonic_ns()
        bits_per_second = FRAMES * 1514 * 8 * 1_000_000_000 // how_long_ns
        self.set(rail, f"rate {bits_per_second}bit burst 2kb latency 5s")
        while (left_ns := how_long_ns - (time.monotonic_ns() - begin)) > 0:
            time.sleep(max(0, left_ns - 500_000) * 1e-9)
        self.set(rail, FAST)
        return Moment(rail, begin, time.monotonic_ns())

    def end(self) -> None:
        assert self.tc.stdin is not None
        self.tc.stdin.close()
        assert self.tc.wait(10) == 0


def disturb(
    network: Network, wire: Wire, count: int, how_long_ns: int, chance: random.Random
) -> tuple[list[Moment], list[tuple[int, Anomaly]], list[UnderWay]]:
    """So many disturbances, and as many moments without; what was found meanwhile, and what was under way."""
    job = Job(network, [[0], [1]], follow_paths, settings={"STARLING_TCP_STRIPING": "1"})
    moments = []
    try:
        for rank in (0, 1):
            job.wait_for(f"running.{rank}")
        for disturbed in chance.sample([True, False] * count, 2 * count):
            time.sleep(chance.uniform(0.04, 0.06) + 3e-9 * how_long_ns)
            now = time.monotonic_ns()
            if disturbed:
                moments.append(wire.disturb(chance.randrange(len(RAILS)), how_long_ns))
            else:
                moments.append(Moment(None, now, now + how_long_ns))
        time.sleep(0.5)
        job.say("stop")
        return moments, *job.results()[0]
    finally:
        job.end()


def busy_ns(under_way: Sequence[UnderWay], path: int, begin_ns: int, end_ns: int) -> int:
    """How long of that time the path had something under way. Transfers are in the order of their completion."""
    first = bisect.bisect_left(under_way, begin_ns, key=lambda transfer: transfer[2])
    spans = []
    for number, posted_ns, completed_ns in under_way[first:]:
        if number == path and posted_ns < end_ns:
            spans.append((max(posted_ns, begin_ns), min(completed_ns, end_ns)))
        if posted_ns > end_ns + LONGEST_NS:
            break
    busy, last = 0, begin_ns
    for since, until in sorted(spans):
        busy += max(until - max(since, last), 0)
        last = max(last, until)
    return busy


def lost_ns(found: Sequence[tuple[int, Anomaly]], moment: Moment) -> list[int]:
    """To the network, by path."""
    lost = [0] * len(RAILS)
    for path, anomaly in found:
        overlaps = anomaly.begin_ns < moment.end_ns + AFTER_NS and anomaly.end_ns > moment.begin_ns
        if anomaly.cause == "network" and overlaps:
            lost[path] += anomaly.lost_ns
    return lost


def judge(
    moments: Sequence[Moment],
    found: Sequence[tuple[int, Anomaly]],
    under_way: Sequence[UnderWay],
    how_long_ns: int,
) -> Verdict:
    least = SEEN * how_long_ns
    under_way = sorted(under_way, key=lambda transfer: transfer[2])
    verdict = Verdict(len(moments), 0, 0, 0.0, 0, 0, 0)
    all_lost = []
    for moment in moments:
        lost = lost_ns(found, moment)
        seen = max(lost) > least
        right = seen and moment.rail is not None and lost[moment.rail] == max(lost)
        rails = range(len(RAILS)) if moment.rail is None else [moment.rail]
        end_ns = moment.begin_ns + how_long_ns  # not when a busy machine ended it
        busy = max(busy_ns(under_way, rail, moment.begin_ns, end_ns) for rail in rails) >= least
        verdict.seen += seen
        verdict.right += right
        verdict.busy += busy
        verdict.busy_seen += busy and seen
        verdict.busy_right += busy and right
        all_lost.append(max(lost) if moment.rail is None else lost[moment.rail])
    verdict.lost_ms = round(statistics.median(all_lost) / 1e6, 3)
    return verdict


def verdicts(
    network: Network, wire: Wire, count: int, how_long_ns: int, chance: random.Random
) -> dict[str, Verdict]:
    moments, found, under_way = disturb(network, wire, count, how_long_ns, chance)
    return {
        title: judge([m for m in moments if (m.rail is not None) == disturbed], found, under_way, how_long_ns)
        for title, disturbed in (("a rail is slow", True), ("nothing", False))
    }


def others_share() -> float:
    """Of all cores, in half a second in which this process sleeps."""

    def looked() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]

    before = looked()
    time.sleep(0.5)
    spent = [after - earlier for after, earlier in zip(looked(), before, strict=True)]
    return round(1 - (spent[3] + spent[4]) / max(sum(spent), 1), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--milliseconds", default="1,5,20,100", help="lengths of disturbances")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--add", action="store_true", help="to what the file has of other lengths")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        **results.origin(),
    }
    if arguments.add and arguments.json.exists():
        report = {**json.loads(arguments.json.read_text()), **report}
    chance = random.Random(arguments.seed)
    with Network() as network:
        wire = Wire(network, 0)
        for text in arguments.milliseconds.split(","):
            busy = others_share()
            found = verdicts(network, wire, arguments.count, int(float(text) * 1e6), chance)
            report[f"{text} ms"] = {
                **{title: vars(verdict) for title, verdict in found.items()},
                "cores wanted by others, just before and just after": [busy, others_share()],
            }
        wire.end()
    text = json.dumps(report, indent=1)
    arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
