"""Measures links between two network namespaces of this machine (root): ``python tests/hosts/figures.py --json FILE``.

How long all-reduces stand still when the rail they go by goes down or falls silent, and PyTorch's all_reduce and
send/recv beside gloo, in turns in the same processes, of which there are several pairs one after the other: where the
system puts them counts as much as what they do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hosts.network import RAILS, Network  # noqa: E402
from hosts.ranks import Job  # noqa: E402
from starling.bench import results  # noqa: E402

REPETITIONS = 5
Rounds = dict[str, dict[str, dict[int, list[float]]]]  # by call, library and bytes
SIZES = (8, 512, 4096, *(1 << bits for bits in range(16, 27)))


def watched(comm: Any, folder: str) -> list[float]:
    """All-reduces of 64 KiB until told to stop: when each was done."""
    import numpy as np

    values, total = np.ones(1 << 14, np.float32), np.empty(1 << 14, np.float32)
    leaves = np.zeros(1, np.int32)
    done = []
    while not leaves[0]:
        for _ in range(20):
            comm.all_reduce(values, total).wait(30)
            assert total[-1] == comm.size
            done.append(time.monotonic())
        leaves[0] = comm.rank == 0 and (Path(folder) / "stop").exists()
        comm.all_reduce(leaves, lane="leave").wait(30)
        if len(done) == 100 and comm.rank == 0:
            (Path(folder) / "running").touch()
    return done


def standstill(network: Network, program: Any, fault: str) -> float:
    """Milliseconds from the fault to the first all-reduce done without the rail."""
    job = Job(network, [[0], [1]], program)
    job.wait_for("running")
    begin = time.monotonic()
    if fault == "port down":
        network.set_up(0, 0, False)
    else:
        network.set_silent(0, True)
    time.sleep(1.5)
    job.say("stop")
    done = job.results()[0]
    network.set_up(0, 0, True)
    if fault == "silent":
        network.set_silent(0, False)
    # What was under way when the command began still ends: the longest gap after it is the failover.
    times = [t for t in done if t > begin - 0.05]
    return 1e3 * max(b - a for a, b in itertools.pairwise(times))


def torch_times(rank: int, size: int, folder: str) -> Rounds:
    """Microseconds a call by collective, backend and bytes: the means of five rounds, least first."""
    import torch
    import torch.distributed as dist

    import starling.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/torch", rank=rank, world_size=size)
    groups = {"gloo": dist.new_group(backend="gloo"), "starling": dist.new_group(backend="starling")}

    def all_reduce(values: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(values, group=group)

    def there_and_back(values: torch.Tensor, group: dist.ProcessGroup) -> None:
        for sender in (0, 1):
            if rank == sender:
                dist.send(values, 1 - rank, group=group)
            else:
                dist.recv(values, 1 - rank, group=group)

    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for call in (all_reduce, there_and_back):
        for bytes_ in SIZES:
            values = torch.zeros(bytes_ // 4)
            rounds: dict[str, list[float]] = {name: [] for name in groups}
            for _ in range(5):  # in turns: what else the machine does meets both
                for name, group in groups.items():
                    call(values, group)
                    begin, calls = time.monotonic(), 0
                    while calls < 3 or (calls < 200 and calls * bytes_ < 64 << 20):
                        call(values, group)
                        calls += 1
                    rounds[name].append(1e6 * (time.monotonic() - begin) / calls)
            for name, times in rounds.items():
                found.setdefault(call.__name__, {}).setdefault(name, {})[bytes_] = sorted(times)
    dist.destroy_process_group()
    return found


def torch_times_on_own_cores(rank: int, size: int, folder: str) -> Rounds:
    """Each host has a core, which the other's threads never take: as hosts have."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    return torch_times(rank, size, folder)


def together(pairs: list[Rounds]) -> Rounds:
    """All rounds of all pairs of processes."""
    return {
        call: {
            name: {bytes_: sorted(t for pair in pairs for t in pair[call][name][bytes_]) for bytes_ in sizes}
            for name, sizes in of_call.items()
        }
        for call, of_call in pairs[0].items()
    }


def congestion_control(network: Network, wanted: str | None) -> str:
    """What connections of the hosts have unless they say otherwise; what is wanted, if anything is."""
    key = "net.ipv4.tcp_congestion_control"
    for name in network.names:
        inside = ["ip", "netns", "exec", name, "sysctl", "-n"]
        if wanted:
            subprocess.run([*inside, "-w", f"{key}={wanted}"], check=True, capture_output=True)
    return subprocess.run([*inside, key], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    from hosts import figures  # not __main__: ranks import what they run

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=3, help="of processes that measure PyTorch's calls")
    parser.add_argument("--own-cores", action="store_true", help="PyTorch's calls: a core for each host")
    parser.add_argument(
        "--congestion", metavar="NAME", help="the hosts' congestion control, as sysctl names it"
    )
    options = parser.parse_args()
    target = options.json
    program = figures.torch_times_on_own_cores if options.own_cores else figures.torch_times
    os.environ["GLOO_SOCKET_IFNAME"] = RAILS[0]
    report: dict[str, Any] = {
        **results.origin(),
    }
    with Network() as network:
        report["the hosts' congestion control"] = congestion_control(network, options.congestion)
        for fault in ("port down", "silent"):
            times = sorted(standstill(network, figures.watched, fault) for _ in range(REPETITIONS))
            report[f"{fault}: standstill, ms"] = {
                "median": round(statistics.median(times), 2),
                "all": [round(t, 2) for t in times],
            }
            print(fault, report[f"{fault}: standstill, ms"], flush=True)
        pairs = [
            Job(network, [[0], [1]], program, communicator=False).results(300)[0]
            for _ in range(options.pairs)
        ]
    rounds = together(pairs)
    report["load at the end"] = os.getloadavg()[0]
    report["torch, ratios of pairs"] = {
        call: {
            bytes_: [
                round(statistics.median(pair[call]["starling"][bytes_]) / statistics.median(times), 2)
                for pair in pairs
                for times in [pair[call]["gloo"][bytes_]]
            ]
            for bytes_ in SIZES
        }
        for call in rounds
    }
    for title, chosen in (("torch, us a call", statistics.median), ("torch, us a call, least round", min)):
        report[title] = {
            call: {
                name: {bytes_: round(chosen(times), 1) for bytes_, times in sizes.items()}
                for name, sizes in of_call.items()
            }
            for call, of_call in rounds.items()
        }
    target.write_text(json.dumps(report, indent=1) + "\n")
    for title in ("torch, us a call", "torch, us a call, least round"):
        for call, of_call in report[title].items():
            for bytes_ in SIZES:
                gloo, ours = of_call["gloo"][bytes_], of_call["starling"][bytes_]
                print(f"{title}: {call} {bytes_}: gloo {gloo}, starling {ours}, ratio {ours / gloo:.2f}")


if __name__ == "__main__":
    main()
