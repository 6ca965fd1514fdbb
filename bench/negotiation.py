"""What negotiation costs and saves (OCCL, section 4): the same program with and without it, under torchrun.

Each step issues named all-reduces in a random order of each rank's own, with one rank late by a given time; both
kinds run in turns in one process group each; medians count. Prints one line a case, and JSON with --json.

    torchrun --nproc-per-node=4 bench/negotiation.py [--late-ms 0 1 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import random
import shlex
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import starling.torch
from starling.bench import results

SIZES = [
    64,
    36864,
    512,
    256,
    16384,
    36864,
    131072,
    262144,
]  # elements of float32: DFCCL's program 1, in bytes / 4


def step(group: dist.ProcessGroup, order: list[int], tensors: list[torch.Tensor]) -> None:
    works = []
    for lane in order:
        with starling.torch.lane(f"collective {lane}"):
            works.append(dist.all_reduce(tensors[lane], group=group, async_op=True))
    for work in works:
        work.wait()


def measure(group: dist.ProcessGroup, late_s: float, steps: int) -> dict[str, float]:
    """Median time of a step on the ranks that are not late, beyond the lateness, and what the daemon did."""
    rank = dist.get_rank()
    own_order = random.Random(rank)
    tensors = [torch.ones(count) for count in SIZES]
    times_s = []
    before = starling.torch.statistics()
    for _ in range(steps):
        order = list(range(len(SIZES)))
        own_order.shuffle(order)
        dist.barrier()
        if rank == 0:
            time.sleep(late_s)
        started = time.perf_counter()
        step(group, order, tensors)
        times_s.append(time.perf_counter() - started - (late_s if rank else 0))
    after = starling.torch.statistics()
    per_step = {name: (after[name] - before[name]) / steps for name in ("parks", "launches", "quits_stuck")}
    numbers = torch.tensor([statistics.median(times_s) * 1e6, *per_step.values()], dtype=torch.float64)
    dist.all_reduce(numbers, op=dist.ReduceOp.AVG)
    return dict(zip(("step_us", *per_step), numbers.tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--late-ms", type=float, nargs="+", default=[0, 1, 10])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("starling")
    groups = {
        "none": dist.new_group(pg_options=starling.torch.Options(negotiate=False)),
        "negotiated": dist.new_group(pg_options=starling.torch.Options(negotiate=True)),
    }
    for group in groups.values():  # lanes connect
        measure(group, 0, 5)
    rows = []
    for late_ms in arguments.late_ms:
        turns = [
            {name: measure(group, late_ms / 1e3, arguments.steps) for name, group in groups.items()}
            for _ in range(arguments.repetitions)
        ]
        for name in groups:
            medians = {key: statistics.median(turn[name][key] for turn in turns) for key in turns[0][name]}
            rows.append({"late_ms": late_ms, "negotiation": name, **medians})
            if dist.get_rank() == 0:
                print("  ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}"
                                for key, value in rows[-1].items()), flush=True)  # fmt: skip
    if arguments.json and dist.get_rank() == 0:
        ranks = dist.get_world_size()
        settings = {"ranks": ranks, "steps": arguments.steps, "repetitions": arguments.repetitions}
        command = shlex.join(["torchrun", f"--nproc-per-node={ranks}", "bench/negotiation.py", *sys.argv[1:]])
        results.write(arguments.json, results.document("negotiation", settings, rows, command=command))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
