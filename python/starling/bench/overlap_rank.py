"""Computation beside collectives, the side of one rank: a process of `starling bench overlap`.

Both libraries serve groups of the same processes, and are measured in turns. A gate lets both streams begin at the
same time. What is measured runs beside the other from its begin to its end: the other is launched twice as often as
it would be alone in that time, and more often where that was not enough.

All ranks go through the same turns: every count and every decision is made of what they agreed on, and they meet
before each measurement, with nothing left on their GPUs.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import overlap_cpu, overlap_turns
from .beside import Beside

MATRIX = 8192
L2_BYTES = 24 << 20  # fits the cache, and no multiprocessor's own
STEP_BYTES = 8 << 20  # of each of the small kernels: a few microseconds
SPAN_MS = 20.0
MOST_OFTEN = 8  # times as often as alone
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "send_recv",
)
KERNELS = ("matrix product", "L2-bound", "issue-bound", "small kernels")
# Asked for by name: the same work, but no bit ever changes, so that it draws less power.
QUIET = "matrix product of zeros"


@dataclass
class Place:
    rank: int
    size: int
    device: torch.device


class Kernels:
    """Each call puts one kernel of about 1.5 ms into the current stream, or a row of small ones."""

    def __init__(self, place: Place, programs: Path | None) -> None:
        assert place.device.index is not None
        self._beside = Beside(place.device.index, programs)
        self._a, self._b, self._c = (
            torch.randn(MATRIX, MATRIX, device=place.device, dtype=torch.bfloat16) for _ in range(3)
        )
        self._zeros = torch.zeros_like(self._a)
        self._data = torch.zeros(L2_BYTES, dtype=torch.uint8, device=place.device)
        self._sink = torch.zeros(4, dtype=torch.uint8, device=place.device)
        self._passes, self._rounds, self._steps = 100, 1000, 100

    def of(self, name: str) -> Callable[[], Any]:
        return {
            "matrix product": lambda: torch.mm(self._a, self._b, out=self._c),
            QUIET: lambda: torch.mm(self._zeros, self._zeros, out=self._c),
            "L2-bound": self._l2,
            "issue-bound": self._issue,
            "small kernels": self._small,
        }[name]

    def _l2(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._beside.l2(stream, self._data.data_ptr(), L2_BYTES, self._passes, self._sink.data_ptr())

    def _issue(self) -> None:
        self._beside.issue(torch.cuda.current_stream().cuda_stream, self._rounds, self._sink.data_ptr())

    def _small(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._beside.steps(stream, self._steps, self._data.data_ptr(), STEP_BYTES)

    def calibrate(self, of_one: Callable[[Callable[[], Any]], float]) -> None:
        """As long as the matrix product; ``of_one`` measures a kernel, in microseconds."""
        for kernel in map(self.of, (*KERNELS, QUIET)):  # loads it
            kernel()
        wanted = of_one(self.of("matrix product"))
        self._passes = max(round(self._passes * wanted / of_one(self._l2)), 1)
        self._rounds = max(round(self._rounds * wanted / of_one(self._issue)), 1)
        self._steps = max(round(self._steps * wanted / of_one(self._small)), 1)


class Collectives:
    """``launch`` puts one into the current stream and orders what comes behind after it."""

    def __init__(self, place: Place, size_bytes: int) -> None:
        self._place = place
        count = size_bytes // 2 // place.size * place.size  # bfloat16; parts are alike
        self._input, self._output = (
            torch.zeros(count, dtype=torch.bfloat16, device=place.device) for _ in range(2)
        )

    def launch(self, name: str, group: Any) -> None:
        whole, other = self._input, self._output
        part = other[: other.numel() // self._place.size]
        works: list[Any]
        if name == "all_reduce":
            works = [dist.all_reduce(whole, group=group, async_op=True)]
        elif name == "all_gather":
            works = [dist.all_gather_into_tensor(whole, part, group=group, async_op=True)]
        elif name == "reduce_scatter":
            works = [dist.reduce_scatter_tensor(part, whole, group=group, async_op=True)]
        elif name == "broadcast":
            works = [dist.broadcast(whole, 0, group=group, async_op=True)]
        elif name == "reduce":
            works = [dist.reduce(whole, 0, group=group, async_op=True)]
        elif name == "all_to_all":
            works = [dist.all_to_all_single(other, whole, group=group, async_op=True)]
        else:
            after, before = (self._place.rank + step for step in (1, self._place.size - 1))
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, whole, after % self._place.size, group),
                    dist.P2POp(dist.irecv, other, before % self._place.size, group),
                ]
            )
        for work in works:
            work.wait()


class Measured:
    """Times of two loops that begin together, each in a stream of its own."""

    def __init__(self, place: Place, meet: Callable[[], None]) -> None:
        self._meet = meet
        self._gate, self._compute, self._communicate = (torch.cuda.Stream(place.device) for _ in range(3))

    def us(
        self, compute: Callable[[], Any], computes: int, communicate: Callable[[], Any], communications: int
    ) -> tuple[float, float]:
        """Microseconds of a kernel, and of a collective; 0 for what is not run."""
        torch.cuda.synchronize()
        self._meet()
        with torch.cuda.stream(self._gate):
            torch.cuda._sleep(20_000_000)  # 10 ms: both loops are in their streams by then
            opened = self._gate.record_event()
        ends = []
        # Collectives last: who launches many waits for the GPU in between, with the gate open.
        for stream, call, count in (
            (self._compute, compute, computes),
            (self._communicate, communicate, communications),
        ):
            with torch.cuda.stream(stream):
                stream.wait_event(opened)
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                for _ in range(count):
                    call()
                last.record()
                ends.append((first, last, count))
        torch.cuda.synchronize()
        computed, communicated = (
            1e3 * first.elapsed_time(last) / max(count, 1) for first, last, count in ends
        )
        return (computed if computes else 0.0, communicated if communications else 0.0)


class Rank:
    def __init__(self, place: Place, options: argparse.Namespace, results: Any) -> None:
        self.place, self.results, self.rounds = place, results, options.rounds
        libraries = options.libraries.split(",")
        dist.init_process_group(
            "starling",
            store=dist.FileStore(f"{options.folder}/store", place.size),
            rank=place.rank,
            world_size=place.size,
            timeout=datetime.timedelta(seconds=30),
        )
        self.groups = {name: dist.new_group(range(place.size), backend=name) for name in libraries}
        self._met = torch.zeros(1, device=place.device)
        self.kernels = Kernels(place, options.programs)
        self.collectives = Collectives(place, options.bytes)
        self.measured = Measured(place, self.meet)
        self.kernels.calibrate(lambda kernel: self.measured.us(kernel, 5, lambda: None, 0)[0])

    def meet(self) -> None:
        dist.all_reduce(self._met)
        torch.cuda.synchronize()

    def collective(self, name: str, library: str) -> Callable[[], None]:
        return lambda: self.collectives.launch(name, self.groups[library])

    def agreed(self, value: float) -> float:
        """The mean over ranks, the same on all of them."""
        mean = torch.tensor([value], device=self.place.device)
        dist.all_reduce(mean)
        return float(mean) / self.place.size

    def measure(self, kernels: list[str], collectives: list[str]) -> None:
        for collective in collectives:
            shares = {library: self.cpu(self.collective(collective, library)) for library in self.groups}
            for kernel in kernels:
                turns = [
                    self.turn(self.kernels.of(kernel), self.collective(collective, library), library)
                    for _ in range(self.rounds)
                    for library in self.groups
                ]
                for row in overlap_turns.rows(turns):
                    named = {"kernel": kernel, "collective": collective, **row}
                    self.results.write(json.dumps({**named, **shares[row["library"]]}) + "\n")

    def cpu(self, communicate: Callable[[], None]) -> dict[str, Any]:
        """The first that a library hears of this collective; nothing of another library is left."""
        self.meet()
        for _ in range(3):  # connects, and loads what is to be loaded
            communicate()
        alone_us = self.agreed(self.measured.us(lambda: None, 0, communicate, 8)[1])
        count = min(max(int(overlap_cpu.WINDOW_S * 0.8e6 / alone_us), 1), 400)

        def work() -> None:
            for _ in range(count):
                communicate()

        clock = overlap_cpu.finest_clock()
        self.meet()
        return {"cpu_clock": clock, "cpu_shares": overlap_cpu.shares(work, clock)}

    def turn(
        self, compute: Callable[[], Any], communicate: Callable[[], None], library: str
    ) -> overlap_turns.Turn:
        compute_us = self.agreed(self.measured.us(compute, 8, communicate, 0)[0])
        collective_us = self.agreed(self.measured.us(compute, 0, communicate, 8)[1])
        counts = (
            max(round(SPAN_MS * 1e3 / compute_us), 2),
            max(round(SPAN_MS * 1e3 / collective_us), 2),
        )
        beside_us, all_along = self.beside(0, compute, communicate, counts)
        slowed_us, too = self.beside(1, compute, communicate, counts)
        return overlap_turns.Turn(
            library=library,
            kernel_alone_us=compute_us,
            kernel_beside_us=beside_us,
            collective_alone_us=collective_us,
            collective_beside_us=slowed_us,
            beside_throughout=all_along and too,
        )

    def beside(
        self,
        measured: int,
        compute: Callable[[], Any],
        communicate: Callable[[], None],
        counts: tuple[int, int],
    ) -> tuple[float, bool]:
        """Microseconds of a kernel (``measured`` 0) or a collective (1); was the other one there to the end?"""
        factor = 2
        while True:
            often = [count * (1 if k == measured else factor) for k, count in enumerate(counts)]
            us = self.measured.us(compute, often[0], communicate, often[1])
            lasted = us[1 - measured] * often[1 - measured] >= us[measured] * often[measured]
            throughout = self.agreed(float(lasted)) == 1  # on all ranks
            found = self.agreed(us[measured])
            if throughout or factor >= MOST_OFTEN:
                return found, throughout
            factor *= 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--rank", "--size", "--bytes", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--folder", "--libraries", "--kernels", "--collectives"):
        parser.add_argument(name, required=True)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--limit", type=float, required=True)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)  # a hang ends, and says where
    device = torch.device("cuda", options.rank)
    torch.cuda.set_device(device)
    import starling.torch  # noqa: F401  registers the backend

    with Path(options.folder, f"results.{options.rank}").open("w", buffering=1) as results:
        rank = Rank(Place(options.rank, options.size, device), options, results)
        rank.measure(options.kernels.split(","), options.collectives.split(","))
    torch.cuda.synchronize()
    rank.meet()
    sys.stdout.flush()
    os._exit(0)  # two libraries' threads are still there


if __name__ == "__main__":
    sys.exit(main())
