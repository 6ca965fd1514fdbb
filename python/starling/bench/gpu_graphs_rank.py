"""all_reduce inside of CUDA graphs, the side of one rank: a process of `starling bench gpu-graphs`."""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

OPERATIONS = 20
REPLAYS = 20
REPETITIONS = 5


class Rank:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.rank, self.size, self.device = options.rank, options.size, device
        dist.init_process_group(
            "starling",
            store=dist.FileStore(f"{options.folder}/store", options.size),
            rank=options.rank,
            world_size=options.size,
            timeout=datetime.timedelta(seconds=20),
        )
        self.groups = {
            name: dist.new_group(range(options.size), backend=name) for name in options.libraries.split(",")
        }
        self._met = torch.zeros(1, device=device)

    def meet(self) -> None:
        dist.all_reduce(self._met)
        torch.cuda.synchronize()

    def us(self, call: Callable[[], None], times: int) -> float:
        """Microseconds of one call, by events around so many: the median of some repetitions."""
        found = []
        for _ in range(REPETITIONS + 1):
            self.meet()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(times):
                call()
            last.record()
            last.synchronize()
            found.append(1e3 * first.elapsed_time(last) / times)
        return float(statistics.median(found[1:]))  # the first one warms up

    def captured(self, tensor: torch.Tensor, group: Any, operations: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(operations):
                dist.all_reduce(tensor, group=group)
        return graph

    def measure(self, size_bytes: int, library: str) -> dict[str, Any]:
        group = self.groups[library]
        tensor = torch.zeros(size_bytes // 4, device=self.device)
        for _ in range(3):  # connects
            dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()
        single, row_of = self.captured(tensor, group, 1), self.captured(tensor, group, OPERATIONS)
        row = {
            "library": library,
            "bytes": size_bytes,
            "graph_us": self.us(row_of.replay, REPLAYS) / OPERATIONS,
            "single_us": self.us(single.replay, REPLAYS),
            "eager_us": self.us(lambda: dist.all_reduce(tensor, group=group), OPERATIONS),
        }
        tensor.fill_(self.rank + 1)
        single.replay()
        row["wrong"] = int((tensor != self.size * (self.size + 1) / 2).sum())
        return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--rank", "--size"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--folder", "--libraries", "--sizes"):
        parser.add_argument(name, required=True)
    parser.add_argument("--limit", type=float, required=True)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)  # a hang ends, and says where
    device = torch.device("cuda", options.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    import starling.torch  # noqa: F401  registers the backend

    rank = Rank(options, device)
    with Path(options.folder, f"results.{options.rank}").open("w", buffering=1) as results:
        for size_bytes in map(int, options.sizes.split(",")):
            for library in rank.groups:
                results.write(json.dumps(rank.measure(size_bytes, library)) + "\n")
    rank.meet()
    sys.stdout.flush()
    os._exit(0)  # two libraries' threads are still there


if __name__ == "__main__":
    sys.exit(main())
