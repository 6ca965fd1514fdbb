"""Measures large collectives between hosts beside another build's, in turns in one run (root):
``python tests/hosts/collective_figures.py --beside FOLDER --json FILE``, where FOLDER holds its package ``starling``.

Hosts are network namespaces of this machine. A time is the slowest rank's mean of a round, that of processors all
ranks' together; of all rounds the median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts.network import Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from starling.bench import results  # noqa: E402

COLLECTIVES = (
    "all_to_all",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "reduce_scatter",
    "all_reduce",
    "in_place",
)
SIZES = tuple(1 << bits for bits in range(19, 27))  # of a rank's larger buffer


def buffers_of(comm: Any, collective: str, bytes_: int) -> tuple[Any, tuple[Any, ...]]:
    """What to call, and with what."""
    import numpy as np

    whole = np.zeros(bytes_ // 4, np.float32)
    part = np.zeros(whole.size // comm.size, np.float32)
    root = comm.rank == 0
    return {
        "all_to_all": (comm.all_to_all, (whole, whole.copy())),
        "all_gather": (comm.all_gather, (part, whole)),
        "gather": (comm.gather, (part, whole if root else None)),
        "scatter": (comm.scatter, (whole if root else None, part)),
        "broadcast": (comm.broadcast, (whole,)),
        "reduce_scatter": (comm.reduce_scatter, (whole, part)),
        "all_reduce": (comm.all_reduce, (whole, whole.copy())),
        "in_place": (comm.all_reduce, (whole,)),
        "send": (comm.send if root else comm.recv, (whole, 1 - comm.rank)),
    }[collective]


def call_times(
    comm: Any, rounds: int, sizes: list[int], collectives: list[str], own_cores: bool, in_a_row: int
) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Microseconds a call on this rank, and of processors: by collective and bytes, of each round."""
    if own_cores:  # as hosts have; of all threads that are to come
        cores = sorted(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), {cores[comm.rank % len(cores)]})
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for collective in collectives:
        for bytes_ in sizes:
            row = [buffers_of(comm, collective, bytes_) for _ in range(in_a_row)]
            times: list[tuple[float, float]] = []
            calls = max(1, min(20, max(3, (32 << 20) // bytes_)) // in_a_row)
            for _ in range(rounds + 1):
                comm.barrier().wait(100)
                begin, worked = time.monotonic(), time.process_time()
                for _ in range(calls):
                    for request in [call(*buffers) for call, buffers in row]:
                        request.wait(100)
                comm.barrier().wait(100)  # a root has sent before the others have received
                took, worked = time.monotonic() - begin, time.process_time() - worked
                times.append((1e6 * took / calls / in_a_row, 1e6 * worked / calls / in_a_row))
            found.setdefault(collective, {})[bytes_] = times[1:]
    return found


def main() -> None:
    from hosts import collective_figures  # not __main__: ranks import what they run

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--beside", required=True, help="a folder with the package of another build")
    parser.add_argument("--hosts", type=int, default=2, help="of one rank each")
    parser.add_argument("--turns", type=int, default=3, help="of processes, for each build")
    parser.add_argument("--rounds", type=int, default=5, help="in each turn")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--in-a-row", type=int, default=1, help="calls before the first one is waited for")
    parser.add_argument("--own-cores", action="store_true", help="a core for each host")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    arguments = parser.parse_args()
    asked = {
        "rounds": arguments.rounds,
        "sizes": [int(size) for size in arguments.sizes.split(",")],
        "collectives": arguments.collectives.split(","),
        "own_cores": arguments.own_cores,
        "in_a_row": arguments.in_a_row,
    }
    report: dict[str, Any] = {
        **results.origin(),
        "load": [os.getloadavg()[0]],
        "unit": "us a call, median",
    }
    builds = {"beside": arguments.beside, "this": ""}  # where ranks look for it first
    found: dict[str, dict[str, dict[int, list[tuple[float, float]]]]] = {name: {} for name in builds}
    with Network(arguments.hosts) as network:
        for _ in range(arguments.turns):
            for name, folder in builds.items():
                os.environ["PYTHONPATH"] = folder
                os.environ["LD_LIBRARY_PATH"] = (
                    f"{folder}/starling/lib" if folder else ""
                )  # goes before a RUNPATH
                hosts = [[rank] for rank in range(arguments.hosts)]
                job = Job(network, hosts, collective_figures.call_times, asked, blocks=arguments.blocks)
                of_ranks = job.results(600)
                for collective, sizes in of_ranks[0].items():
                    for bytes_ in sizes:
                        rounds = zip(*(one[collective][bytes_] for one in of_ranks), strict=True)
                        times = [(max(one[0] for one in r), sum(one[1] for one in r)) for r in rounds]
                        found[name].setdefault(collective, {}).setdefault(bytes_, []).extend(times)
    for collective in asked["collectives"]:
        for bytes_ in asked["sizes"]:
            line = {}
            for k, what in enumerate(("call", "processors")):
                beside, this = (
                    round(statistics.median(one[k] for one in found[name][collective][bytes_]), 1)
                    for name in builds
                )
                line[what] = {"beside": beside, "this": this, "ratio": round(this / beside, 3)}
            report.setdefault(collective, {})[bytes_] = line
            print(f"{collective} {bytes_}: {line}", flush=True)
    report["load"].append(os.getloadavg()[0])
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
