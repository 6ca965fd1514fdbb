"""Measuring plans beside each other, on ranks that are threads or processes: in turns, checked, without Python between
one call and the next."""

from __future__ import annotations

import dataclasses
import mmap
import statistics
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from starling import _core
from starling.comm import Communicator
from starling.launch import run_processes, run_threads
from starling.numbers import COLLECTIVES as NUMBERS
from starling.request import handle_of, start_of
from starling.tune.candidates import OF_PARTS, REDUCING, Candidate

Progress = Callable[[int], None]
"""Called with the number of visits to points since."""


@dataclass(frozen=True)
class Point:
    """One operation; ``size_bytes`` of the larger of a rank's buffers, all parts included."""

    collective: str
    in_place: bool
    dtype: str
    size_bytes: int

    @property
    def types(self) -> str:
        if self.collective not in REDUCING:
            return "moved"
        return "half" if self.dtype == "float16" else "plain"

    def group_bytes(self, ranks: int) -> int:
        """Of one part."""
        return max(1, self.size_bytes // (ranks if self.collective in OF_PARTS else 1))

    def count(self, ranks: int) -> int:
        """Elements of one part."""
        parts = ranks if self.collective in OF_PARTS else 1
        return max(1, self.size_bytes // parts // np.dtype(self.dtype).itemsize)


@dataclass(frozen=True)
class Effort:
    """``repetitions`` samples of each plan, each the mean of as many calls as fit into ``slice_s``.

    finals: then so many new samples of those that are within ``near`` of the best, at most ``finalists``, and of
        choices: the first ones chose them, and are no longer fair.
    visits: both in so many parts, with all other points between: how far apart two cores of a virtual machine are
        changes within seconds, and one visit meets one state of it.
    again: then the best of the first ones takes part twice, the second time on a communicator of its own.
    """

    repetitions: int = 7
    slice_s: float = 0.004
    most_calls: int = 200
    finals: int = 0
    visits: int = 1
    near: float = 1.2
    finalists: int = 5
    again: bool = False

    @property
    def sweeps(self) -> int:
        """Over all points: the last visit for the first samples is the first for the finals."""
        return 2 * self.visits - 1 if self.finals else self.visits


@dataclass(frozen=True)
class Work:
    """modelled_us: what the cost model says, by the candidate's name."""

    point: Point
    candidates: list[Candidate]
    modelled_us: dict[str, float] = field(default_factory=dict)


Samples = dict[str, list[float]]
"""Microseconds of a call by the candidate's name."""

AGAIN, ITSELF = "again", "itself"
"""Samples of a plan that takes part twice: the second ones, and the first ones once more."""


def device_of(rank: int) -> str:
    """Ranks on GPUs: in turn, several on one if they are threads and there are fewer."""
    import torch

    return f"cuda:{rank % max(torch.cuda.device_count(), 1)}"


class Memory:
    """Of the CPU; or of a GPU, with the stream that operations start on."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.start: dict[str, Any] = {}
        if device != "cpu":
            import torch

            torch.cuda.set_device(device)
            self.stream = torch.cuda.Stream(device)
            self.start = {"start": start_of(self.stream, True), "stream": handle_of(self.stream)}

    def put(self, array: Any) -> Any:
        """A copy."""
        if self.device == "cpu":
            return in_own_pages(array)
        import torch

        return torch.from_numpy(array).to(self.device)

    def get(self, buffer: Any) -> Any:
        return buffer if self.device == "cpu" else buffer.cpu().numpy()

    def settle(self) -> None:
        """What was written is there."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()


def in_own_pages(array: Any) -> Any:
    """A copy in pages that the kernel gives now, without advice, as a program's own large buffers are.

    The heap has stretches that numpy once advised to be huge pages (of arrays from 4 MiB on). What comes to lie there
    is read by another process in half the time, so two programs with other heaps would measure other plans as best.
    """
    pages = mmap.mmap(-1, max(array.nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made = np.frombuffer(pages, array.dtype, array.size)
    made[:] = array
    return made


class Buffers:
    """What one rank passes, and what it must get. Values are small: sums are exact in every type."""

    def __init__(self, point: Point, rank: int, ranks: int, memory: Memory | None = None) -> None:
        self.point, self.memory = point, memory or Memory()
        count = point.count(ranks)
        every = point.collective in ("reduce_scatter", "all_to_all") or point.collective == "scatter"
        inputs = [
            ((np.arange(count * (ranks if every else 1)) + r) % 5).astype(point.dtype) for r in range(ranks)
        ]
        self.wanted = self._wanted(inputs, rank, count)
        begin = inputs[rank]
        gathers = point.collective == "all_gather" and point.in_place
        if gathers:
            begin = np.zeros(count * ranks, point.dtype)
            begin[rank * count : (rank + 1) * count] = inputs[rank]
        self.begin, self.input = self.memory.put(begin), self.memory.put(begin)
        self.output = self.memory.put(
            np.zeros(count * ranks if point.collective == "gather" else len(self.wanted), point.dtype)
        )
        self.own = slice(0, len(self.wanted))
        if point.in_place and point.collective == "reduce_scatter":
            self.own = slice(rank * count, (rank + 1) * count)

    def _wanted(self, inputs: list[Any], rank: int, count: int) -> Any:
        part = slice(rank * count, (rank + 1) * count)
        match self.point.collective:
            case "all_reduce":
                return np.sum(inputs, axis=0, dtype=self.point.dtype)
            case "reduce":
                return np.sum(inputs, axis=0, dtype=self.point.dtype)
            case "reduce_scatter":
                return np.sum(inputs, axis=0, dtype=self.point.dtype)[part]
            case "all_gather" | "gather":
                return np.concatenate(inputs)
            case "all_to_all":
                return np.concatenate([given[part] for given in inputs])
            case "broadcast":
                return inputs[0]
            case "scatter":
                return inputs[0][part]
        raise AssertionError(self.point.collective)

    def arguments(self) -> tuple[Any, Any]:
        if not self.point.in_place:
            return self.input, self.output
        return (None, self.input) if self.point.collective == "all_gather" else (self.input, None)

    def renew(self) -> None:
        self.input[:] = self.begin
        self.output[:] = 0
        self.memory.settle()

    def right(self, rank: int) -> bool:
        if self.point.collective in ("reduce", "gather") and rank != 0:
            return True
        found = self.memory.get(self.input if self.point.in_place else self.output)
        return bool(np.array_equal(found[self.own], self.wanted))


@dataclass
class _Visited:
    """A point whose candidates have been checked. calls: of a sample."""

    work: Work
    calls: dict[str, int]
    samples: Samples
    finalists: list[Candidate] = field(default_factory=list)


class _Rank:
    """One rank's side. ``choices``: communicators of the same ranks, by the candidate that runs on it."""

    def __init__(self, comm: Communicator, effort: Effort, tables: dict[str, str]) -> None:
        self.comm, self.effort, self.memory = comm, effort, Memory(comm.context.device)
        self.added: set[str] = set()
        self.others: dict[str, Communicator] = {}
        for name, path in tables.items():
            other = comm.subgroup(range(comm.size), name)
            assert other is not None
            other.use_table(path)
            self.others[name] = other
        if effort.again:
            twin = comm.subgroup(range(comm.size), AGAIN)
            assert twin is not None
            self.others[AGAIN] = twin
        self.added_again: set[str] = set()

    def time_us(self, candidate: Candidate, buffers: Buffers, calls: int, warmups: int = 1) -> float:
        comm = self.others.get(candidate.name, self.comm)
        kind = NUMBERS[buffers.point.collective]
        step = _core.Step(
            comm._core, kind, *buffers.arguments(), algorithm=candidate.algorithm, **self.memory.start
        )
        return _core.time_calls(warmups, calls, [step]) / calls * 1e6

    def agreed_calls(self, candidate: Candidate, buffers: Buffers) -> int:
        longest = self.memory.put(np.array([self.time_us(candidate, buffers, 3)]))
        self.memory.settle()
        self.comm.all_reduce(longest, op="max").wait(60)
        return int(
            min(self.effort.most_calls, max(2, self.effort.slice_s * 1e6 / self.memory.get(longest)[0]))
        )

    def measure(self, works: list[Work], done: Callable[[], None]) -> list[Samples]:
        """``done`` is called after each visit to a point."""
        visited: list[_Visited] = []
        for sweep in range(self.effort.sweeps):
            for k, work in enumerate(works):
                buffers = Buffers(work.point, self.comm.rank, self.comm.size, self.memory)
                if sweep == 0:
                    visited.append(self._checked(work, buffers))
                self._visit(visited[k], buffers, sweep)
                done()
        for one in visited:
            if AGAIN in one.samples:
                one.samples[ITSELF] = one.samples[one.finalists[0].name]
        return [one.samples for one in visited]

    def _checked(self, work: Work, buffers: Buffers) -> _Visited:
        for candidate in work.candidates:
            if candidate.text and candidate.text not in self.added:
                self.comm.add_plan(candidate.text)
                self.added.add(candidate.text)
        calls = {}
        for candidate in work.candidates:
            buffers.renew()
            self.comm.barrier().wait(60)
            self.time_us(candidate, buffers, 1, warmups=0)  # in place, a second call would have other input
            if not buffers.right(self.comm.rank):
                raise AssertionError(
                    f"plan {candidate.name} gives a wrong {work.point.collective} of {work.point.size_bytes} bytes"
                )
            calls[candidate.name] = self.agreed_calls(candidate, buffers)
        return _Visited(work, calls, {candidate.name: [] for candidate in work.candidates})

    def _visit(self, one: _Visited, buffers: Buffers, sweep: int) -> None:
        effort, candidates = self.effort, one.work.candidates
        buffers.input[:] = 0  # in place, sums of sums would leave the type's range, which may cost
        self.memory.settle()

        def part(samples: int, visit: int) -> range:
            return range(samples * visit // effort.visits, samples * (visit + 1) // effort.visits)

        if sweep < effort.visits:
            self._in_turns(one, candidates, buffers, part(effort.repetitions, sweep))
        finals = sweep - effort.visits + 1
        if effort.finals and finals == 0:
            best, *others = self._best(candidates, one.samples)
            twins = [self._twin(best)] if effort.again else []
            one.calls[AGAIN] = one.calls[best.name]
            one.finalists = [best, *others, *twins]
            one.samples |= {candidate.name: [] for candidate in one.finalists}
        if effort.finals and finals >= 0:
            self._in_turns(one, one.finalists, buffers, part(effort.finals, finals))

    def _twin(self, candidate: Candidate) -> Candidate:
        if candidate.text and candidate.text not in self.added_again:
            self.others[AGAIN].add_plan(candidate.text)
            self.added_again.add(candidate.text)
        return dataclasses.replace(candidate, name=AGAIN)

    def _in_turns(
        self, one: _Visited, candidates: list[Candidate], buffers: Buffers, repetitions: range
    ) -> None:
        for repetition in repetitions:
            # Every other repetition in the reverse order: nobody always runs behind the same neighbour.
            for candidate in candidates if repetition % 2 == 0 else reversed(candidates):
                self.comm.barrier().wait(60)
                us = self.time_us(candidate, buffers, one.calls[candidate.name])
                one.samples[candidate.name].append(us)

    def _best(self, candidates: list[Candidate], samples: Samples) -> list[Candidate]:
        """The best, others that are near, and choices; the same on all ranks."""
        medians = self.memory.put(np.array([statistics.median(samples[one.name]) for one in candidates]))
        self.memory.settle()
        self.comm.all_reduce(medians, op="avg").wait(60)
        us = dict(zip(candidates, self.memory.get(medians), strict=True))
        fixed = sorted((one for one in candidates if one.algorithm), key=lambda one: (us[one], one.name))
        near = [one for one in fixed[: self.effort.finalists] if us[one] <= self.effort.near * us[fixed[0]]]
        return [*near, *(one for one in candidates if not one.algorithm)]


def _rank_main(
    comm: Communicator, works: list[Work], effort: Effort, tables: dict[str, str], counter: str
) -> tuple[str, list[Samples]]:
    def done() -> None:
        if comm.rank == 0:  # one byte a visit: who waits for us sees the file grow
            with open(counter, "ab") as file:
                file.write(b".")

    return comm.topology, _Rank(comm, effort, tables).measure(works, done)


class _Watch:
    """Tells the progress that ranks, in whatever process, write into a file."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path, self.progress, self.seen = path, progress, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self._look()

    def _run(self) -> None:
        while not self.ended.wait(0.2):
            self._look()

    def _look(self) -> None:
        now = self.path.stat().st_size
        self.progress(now - self.seen)
        self.seen = now


def measured(
    works: list[Work],
    ranks: int,
    *,
    processes: bool = False,
    device: str = "cpu",
    blocks: int = 1,
    effort: Effort = Effort(),
    progress: Progress = lambda points: None,
    tables: dict[str, str] | None = None,
    timeout_s: float = 1800,
) -> tuple[str, list[Samples]]:
    """The name of the topology, and for each work the samples of each candidate, in us: of each, the mean over ranks.
    Of a plan that came into no finals, those of the first round.

    tables: files, by names of candidates that run what the file's table says instead of what the library would choose.
    Raises RanksFailedError, with an AssertionError of the rank, where a result is wrong.
    """
    bare = [Work(work.point, [candidate.bare() for candidate in work.candidates]) for work in works]
    with tempfile.TemporaryDirectory(prefix="starling-tune-") as folder:
        counter = Path(folder) / "points"
        counter.touch()
        function = partial(_rank_main, works=bare, effort=effort, tables=tables or {}, counter=str(counter))
        launch = run_processes if processes else run_threads
        with _Watch(counter, progress):
            by_rank = launch(
                ranks,
                function,
                context={"blocks": blocks, "device": "cpu" if device == "cpu" else device_of},
                timeout=timeout_s,
                operation_timeout=60,
            )
    means = []
    for number in range(len(works)):
        of_ranks = [found[number] for _, found in by_rank]
        means.append(
            {
                name: [
                    statistics.fmean(values)
                    for values in zip(*(found[name] for found in of_ranks), strict=True)
                ]
                for name in of_ranks[0]
            }
        )
    return by_rank[0][0], means
