"""DFCCL §6.1's program on GPUs, the side of one rank: a process of `starling bench gpu-disorder`.

Every iteration launches eight all-reduces in a random order of this rank's own, does in between what the case says,
and compares every element of every result. Progress and results go to files that the parent reads; who hangs is
ended by the parent.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import math
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .beside import Beside

BYTES = (256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576)
FREED_BYTES = 1 << 20
OCCUPIED_S = 90  # then a kernel that occupies multiprocessors ends by itself


@dataclass(frozen=True)
class Case:
    """One program. ``situation``: of DFCCL §2.3."""

    name: str
    situation: str
    beside: str = "nothing"  # done after every `every`-th launch
    every: int = 1
    streams: str = "own"  # of each lane: own, blocking (ordered with the legacy default stream), one for all
    left_free: int = 0  # a kernel occupies all multiprocessors but so many; 0: none
    connections: int = 0  # CUDA_DEVICE_MAX_CONNECTIONS; 0: the driver's default
    ordered: bool = False  # one random order for all ranks: what disorder is compared with


CASES = {
    case.name: case
    for case in (
        Case("disorder alone", "none"),
        Case("one order", "none", ordered=True),
        Case("one order with cudaDeviceSynchronize", "none", "synchronize", ordered=True),
        Case("cudaDeviceSynchronize", "synchronization", "synchronize"),
        Case("cudaDeviceSynchronize every 4th", "synchronization", "synchronize", 4),
        Case("32 hardware queues with synchronization", "synchronization", "synchronize", connections=32),
        Case("cudaFree", "synchronization", "free"),
        Case("cudaFreeHost", "synchronization", "free host"),
        Case("legacy default stream", "synchronization", "default stream", streams="blocking"),
        Case("all SMs but 40 occupied", "depleted resources", left_free=40),
        Case("all SMs but 8 occupied", "depleted resources", left_free=8),
        Case("all SMs but 4 occupied", "depleted resources", left_free=4),
        Case("one order with all SMs but 40 occupied", "depleted resources", left_free=40, ordered=True),
        Case("one order with all SMs but 8 occupied", "depleted resources", left_free=8, ordered=True),
        Case("one hardware queue", "depleted resources", connections=1),
        Case("one hardware queue with synchronization", "depleted resources", "synchronize", connections=1),
        Case(
            "one order with one hardware queue and synchronization",
            "depleted resources",
            "synchronize",
            connections=1,
            ordered=True,
        ),
        Case("one stream", "single queue", streams="one"),
        Case("one stream with synchronization", "single queue", "synchronize", streams="one"),
    )
}


def order_of(iteration: int, rank: int) -> list[int]:
    """This rank's own; iterations below 0 warm up, in one order."""
    if iteration < 0:
        return list(range(len(BYTES)))
    return random.Random(1_000_003 + iteration * 1009 + rank).sample(range(len(BYTES)), len(BYTES))


class Clock:
    """Times a case's iterations; where multiprocessors are occupied, those that ended while they were."""

    def __init__(self, occupied_s: float) -> None:
        self._begin = time.monotonic()
        self._limit_s = occupied_s
        self.iterations = 0
        self.seconds = 0.0

    def ended(self, iterations: int) -> None:
        seconds = time.monotonic() - self._begin
        if seconds < self._limit_s:
            self.iterations, self.seconds = iterations, seconds

    def row(self) -> dict[str, Any]:
        us = {"us_per_iteration": round(1e6 * self.seconds / self.iterations, 1)} if self.iterations else {}
        return {"iterations": self.iterations, **us}


@dataclass
class Place:
    rank: int
    size: int
    device: torch.device
    folder: Path
    timeout_s: float

    def join(self, backend: str) -> None:
        dist.init_process_group(
            backend,
            store=dist.FileStore(f"{self.folder}/store", self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=datetime.timedelta(seconds=self.timeout_s),
        )


class Lanes:
    """One library's eight lanes. ``launch`` reduces in place behind the current stream's work; what comes into the
    current stream after ``wait`` sees the result."""

    name: str

    def launch(self, which: int, tensor: torch.Tensor) -> Any:
        raise NotImplementedError

    def wait(self, handle: Any) -> None:
        raise NotImplementedError

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        dist.destroy_process_group()


class TorchLanes(Lanes):
    """Starling through PyTorch: asynchronous operations of named lanes."""

    def __init__(self, place: Place) -> None:
        import starling.torch

        place.join("starling")
        self._module = starling.torch

    def launch(self, which: int, tensor: torch.Tensor) -> Any:
        with self._module.lane(f"gradient {which}"):
            return dist.all_reduce(tensor, async_op=True)

    def wait(self, handle: Any) -> None:
        handle.wait()

    def counters(self) -> dict[str, int]:
        return self._module.statistics()


class ContextLanes(Lanes):
    """Starling's own API, on the caller's streams."""

    def __init__(self, place: Place) -> None:
        from starling import Communicator, Context
        from starling.stores import FileStore

        self._context = Context(device=str(place.device))
        self._comm = Communicator(
            self._context,
            rank=place.rank,
            size=place.size,
            name="programs",
            store=FileStore(str(place.folder)),
            timeout=place.timeout_s,
        )

    def launch(self, which: int, tensor: torch.Tensor) -> Any:
        stream = torch.cuda.current_stream() if tensor.is_cuda else None
        return self._comm.all_reduce(tensor, lane=f"gradient {which}", stream=stream)

    def wait(self, handle: Any) -> None:
        if self._context.device == "cpu":
            handle.wait()
        else:
            handle.wait_on_stream(torch.cuda.current_stream())

    def counters(self) -> dict[str, int]:
        return vars(self._context.statistics())

    def close(self) -> None:
        self._comm.destroy()
        self._context.destroy()


class GroupLanes(Lanes):
    """Another backend of PyTorch: a process group, and so a communicator, for each lane."""

    def __init__(self, place: Place, backend: str, *, inline: bool) -> None:
        place.join(backend)
        self._groups = [dist.new_group(range(place.size)) for _ in BYTES]
        # PyTorch puts what is waited for at birth into the caller's stream, and the rest into one of its own.
        self._asynchronous = not inline

    def launch(self, which: int, tensor: torch.Tensor) -> Any:
        return dist.all_reduce(tensor, group=self._groups[which], async_op=self._asynchronous)

    def wait(self, handle: Any) -> None:
        if handle is not None:
            handle.wait()


LIBRARIES: dict[str, Callable[[Place], Lanes]] = {
    "starling in PyTorch": TorchLanes,
    "starling's API": ContextLanes,
    "nccl": lambda place: GroupLanes(place, "nccl", inline=False),
    "nccl on the caller's streams": lambda place: GroupLanes(place, "nccl", inline=True),
    "gloo": lambda place: GroupLanes(place, "gloo", inline=False),
}


class Program:
    """The eight lanes' buffers and streams, and what a case does in between."""

    def __init__(self, place: Place, lanes: Lanes, programs: Path | None) -> None:
        self.place, self.lanes = place, lanes
        self.gpu = place.device.type == "cuda"
        self.patterns = [(torch.arange(size // 4, device=place.device) % 31).float() for size in BYTES]
        self.tensors = [torch.zeros_like(pattern) for pattern in self.patterns]
        self.wrong = [torch.zeros(1, device=place.device) for _ in BYTES]
        self.small = torch.zeros(64, device=place.device)
        self.beside = Beside(place.device.index, programs) if self.gpu else None
        self.streams: dict[str, list[Any]] = {"own": [None] * len(BYTES)}
        if self.gpu and self.beside is not None:
            kinds = {
                "own": [torch.cuda.Stream() for _ in BYTES],
                "blocking": [torch.cuda.ExternalStream(self.beside.blocking_stream()) for _ in BYTES],
                "one": [torch.cuda.Stream()] * len(BYTES),
            }
            self.streams = kinds
            torch.cuda.synchronize()

    def between(self, what: str) -> None:
        if what == "synchronize":
            if self.beside is None:
                import starling.torch

                starling.torch.synchronize()
            else:
                torch.cuda.synchronize()
        elif what in ("free", "free host"):
            assert self.beside is not None
            self.beside.free(FREED_BYTES, host=what == "free host")
        elif what == "default stream":
            with torch.cuda.stream(torch.cuda.default_stream()):
                self.small.add_(1)

    def iteration(self, case: Case, number: int) -> None:
        size, streams = self.place.size, self.streams[case.streams if self.gpu else "own"]
        handles: dict[int, Any] = {}
        rank = 0 if case.ordered else self.place.rank
        for launched, which in enumerate(order_of(number, rank), 1):
            value = number % 100 + which
            with self._in(streams[which]):
                torch.add(self.patterns[which], float(value + self.place.rank), out=self.tensors[which])
                handles[which] = self.lanes.launch(which, self.tensors[which])
            if number >= 0 and launched % case.every == 0:
                self.between(case.beside)
        for which, handle in handles.items():
            with self._in(streams[which]):
                self.lanes.wait(handle)
                expected = self.patterns[which] * size
                expected.add_(size * (number % 100 + which) + size * (size - 1) // 2)
                self.wrong[which].add_((self.tensors[which] != expected).sum())
        if self.gpu:
            for stream in streams:
                stream.synchronize()

    def run(self, case: Case, iterations: int, note: Callable[[int], Any]) -> dict[str, Any]:
        """What came of it. Where multiprocessors are occupied, only iterations that ended while they were count;
        freed: none did."""
        for wrong in self.wrong:
            wrong.zero_()
        before = self.lanes.counters()
        for number in (-2, -1):  # connects, and loads every kernel
            self.iteration(case, number)
        if self.gpu:
            torch.cuda.synchronize()
        with ExitStack() as stack:
            clock = Clock(math.inf)
            if case.left_free and self.beside is not None:
                clock = Clock(OCCUPIED_S)
                stack.enter_context(self.beside.occupied(case.left_free, limit_s=OCCUPIED_S))
            note(0)
            for number in range(iterations):
                self.iteration(case, number)
                clock.ended(number + 1)
                note(number + 1)
            wrong = int(sum(float(one) for one in self.wrong))
        counted = {key: value - before.get(key, 0) for key, value in self.lanes.counters().items()}
        return {
            "outcome": "wrong" if wrong else "right" if clock.iterations else "freed",
            "wrong": wrong,
            **clock.row(),
            **{key: counted[key] for key in ("parks", "launches", "quits_stuck", "quits_drained") if counted},
        }

    def _in(self, stream: Any) -> Any:
        return torch.cuda.stream(stream) if stream is not None else nullcontext()


def serve(place: Place, library: str, cases: list[Case], iterations: int, own: Path | None) -> int:
    """Runs the cases one after the other, telling files `progress.RANK` and `results.RANK` of each."""
    progress = os.open(place.folder / f"progress.{place.rank}", os.O_WRONLY | os.O_CREAT)
    # Line by line: what was said before a hang counts.
    with (place.folder / f"results.{place.rank}").open("a", buffering=1) as results:
        lanes = LIBRARIES[library](place)
        program = Program(place, lanes, own)
        for case in cases:
            os.pwrite(progress, b"%8d" % -1, 0)
            try:
                found = program.run(case, iterations, lambda done: os.pwrite(progress, b"%8d" % done, 0))
            except Exception as error:
                found = {"outcome": "failed", "text": f"{type(error).__name__}: {error}"}
                traceback.print_exc()
            results.write(json.dumps({"case": case.name, **found}) + "\n")
            if found["outcome"] == "failed":
                return 1
        lanes.close()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--rank", "--size", "--iterations"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--folder", "--library", "--cases", "--device"):
        parser.add_argument(name, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--programs", type=Path)
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # the parent asks what we were doing, before it ends us
    torch.set_num_threads(1)
    device = (
        torch.device("cpu")
        if options.device == "cpu"
        else torch.device("cuda", options.rank % torch.cuda.device_count())
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    place = Place(options.rank, options.size, device, Path(options.folder), options.timeout)
    cases = [CASES[name] for name in options.cases.split(";")]
    status = serve(place, options.library, cases, options.iterations, options.programs)
    sys.stdout.flush()
    os._exit(status)  # a library that waits for its peers at exit would keep a failed rank


if __name__ == "__main__":
    sys.exit(main())
