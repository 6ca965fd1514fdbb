"""How long large messages and all-reduces take over Soft-RoCE in a guest, straight, and copied by the rings.

The FIGURE lines of straight_program.cc, where the two ways take turns; what registering memory takes, beside a copy.
"""

import argparse
import os
import re
import statistics
import sys
from pathlib import Path

import figures
import guest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=500, help="seconds for the guest")
    parser.add_argument(
        "--program", type=Path, default=figures.ROOT / "build/dev/tests/bin/verbs.straight_program"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    command = f"/bin/{arguments.program.name} figures {arguments.rounds}"
    console = guest.boot([arguments.program], command, arguments.limit)
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    ways = {"0": "copied", "1": "straight", "-": "ms"}
    for kind, size, way, ms in re.findall(r"^FIGURE (\w+) (\d+) (\S+) (\S+)$", console, re.M):
        times.setdefault((kind, size), {}).setdefault(ways[way], []).append(float(ms))
    if not times:
        sys.exit(console[-2000:])
    result: dict[str, object] = figures.place(load)
    for (kind, size), by_way in times.items():
        entry: dict[str, object] = {way: figures.summary(all_of) for way, all_of in by_way.items()}
        if len(by_way) == 2:
            entry["straight over copied"] = round(
                statistics.median(by_way["straight"]) / statistics.median(by_way["copied"]), 3
            )
        result[f"{kind}, {size} B, ms"] = entry
    figures.show(result, arguments.json)


if __name__ == "__main__":
    main()
