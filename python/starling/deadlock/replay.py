"""Deadlocks of the model, replayed through the real scheduler: does any of them hang, and what does yielding cost?

Every GPU is a rank of the simulator machine with the shipped daemon, every collective a small all-reduce in a lane of
its own, every synchronization the device's: it returns when nothing is resident; nothing is launched before it does.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from rich.table import Table

from starling.write_whole import write_whole

from . import engine
from .configuration import ConfigurationError

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Machine:
    """On what to replay. `wild` lets the seed draw everything that the simulator can: slow fibers, late stores, forced
    preemptions and quits, odd budgets and queues. `pace_ns` is what a GPU computes between two launches, on average."""

    wild: bool = False
    yielding: bool = True
    pace_ns: int = 0
    checks: bool = True
    seed: int = 1


@dataclass
class Hang:
    """A sequence that did not finish, or finished wrongly: the number gives it again (`--first`, `--seed`)."""

    sequence: int
    seed: int  # of the machine's schedule
    failure: str
    state: str
    hangs: bool


@dataclass
class Replays:
    """What all sequences did. Per sequence unless said otherwise."""

    hung: int = 0
    wrong: int = 0
    failures: list[Hang] = field(default_factory=list)  # the first ones
    collectives: list[int] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    synchronizations: list[int] = field(default_factory=list)
    parks: list[int] = field(default_factory=list)
    stuck_quits: list[int] = field(default_factory=list)
    quits: list[int] = field(default_factory=list)
    virtual_us: list[float] = field(default_factory=list)
    parks_of_collectives: dict[int, int] = field(
        default_factory=dict
    )  # preemptions -> collectives with so many
    shapes: set[int] = field(default_factory=set)  # hashes of the events

    @property
    def sequences(self) -> int:
        return len(self.collectives)

    def add(self, number: int, seed: int, program: engine.Program, done: engine.Replayed) -> None:
        if done.failure:
            self.hung += done.hangs
            self.wrong += not done.hangs
            if len(self.failures) < 10:
                self.failures.append(Hang(number, seed, done.failure, done.state, done.hangs))
        events = program.events
        self.shapes.add(hash(tuple(map(tuple, events))))
        self.gpus.append(len(events))
        self.collectives.append(len(program.members))
        self.launches.append(done.launches)
        self.synchronizations.append(done.synchronizations)
        self.parks.append(sum(done.parks))
        self.stuck_quits.append(done.stuck_quits)
        self.quits.append(done.stuck_quits + done.idle_quits + done.limited_quits)
        self.virtual_us.append(done.virtual_us)
        counts, times = numpy.unique(done.parks, return_counts=True)
        for count, time in zip(counts.tolist(), times.tolist(), strict=True):
            self.parks_of_collectives[count] = self.parks_of_collectives.get(count, 0) + time

    def as_dict(self) -> dict[str, Any]:
        collectives = numpy.array(self.collectives)
        return {
            "sequences": self.sequences,
            "distinct_sequences": len(self.shapes),
            "hung": self.hung,
            "wrong": self.wrong,
            "failures": [vars(failure) for failure in self.failures],
            "gpus": _spread(self.gpus),
            "collectives": _spread(self.collectives),
            "total_collectives": int(collectives.sum()),
            "completed_launches": sum(self.launches),
            "synchronizations": sum(self.synchronizations),
            "preemptions": sum(self.parks),
            "quits": sum(self.quits),
            "stuck_quits": sum(self.stuck_quits),
            "preemptions_per_collective": _spread_of_counts(self.parks_of_collectives),
            "preemptions_per_sequence": _spread(self.parks),
            "quits_per_sequence": _spread(self.quits),
            "mean_preemptions_per_collective_of_a_sequence": _spread(self.parks / collectives),
            "mean_quits_per_collective_of_a_sequence": _spread(self.quits / collectives),
            "virtual_us_per_sequence": _spread(self.virtual_us),
        }


def _spread(values: Sequence[float] | numpy.ndarray[Any, Any]) -> dict[str, float]:
    if len(values) == 0:
        return {}
    # An exact sum: the order in which threads deliver must not show in the last digit.
    found = {"mean": math.fsum(values) / len(values)}
    for percent in PERCENTILES:
        found[f"p{percent}"] = float(numpy.percentile(values, percent, method="inverted_cdf"))
    return found | {"max": float(numpy.max(values))}


def _spread_of_counts(times_of_value: dict[int, int]) -> dict[str, float]:
    """The same of many small numbers: value -> how often."""
    values = numpy.array(sorted(times_of_value))
    if len(values) == 0:
        return {}
    times = numpy.array([times_of_value[value] for value in values.tolist()])
    below, total = numpy.cumsum(times), int(times.sum())
    found = {"mean": float((values * times).sum() / total)}
    for percent in PERCENTILES:
        found[f"p{percent}"] = float(values[numpy.searchsorted(below, percent / 100 * total)])
    return found | {"max": float(values[-1])}


def lanes_of(names: Iterable[str]) -> list[int]:
    """A record's collectives are called lane#n: those of one lane stay in it, as in the job that was recorded."""
    number: dict[str, int] = {}
    return [number.setdefault(name.rpartition("#")[0] or name, len(number)) for name in names]


def replay(
    programs: Iterable[engine.Program],
    machine: Machine,
    *,
    first: int = 0,
    lane_of: list[int] | None = None,
    threads: int = 1,
    progress: Callable[[int], bool] | None = None,
) -> Replays:
    """Replays each program once. Program `first + i` runs under seed `machine.seed + first + i`, whatever the threads.

    `lane_of[c]` is the lane of collective c (each its own if not given).
    """
    found = Replays()
    local = threading.local()

    def run(program: engine.Program, seed: int) -> engine.Replayed:
        if not hasattr(local, "replayer"):
            local.replayer = engine.Replayer()
        replayed: engine.Replayed = local.replayer.run(
            program, lane_of or [], seed=seed, wild=machine.wild, checks=machine.checks,
            yielding=machine.yielding, pace_ns=machine.pace_ns,
        )  # fmt: skip
        return replayed

    with ThreadPoolExecutor(threads) as pool:
        waiting: dict[int, tuple[engine.Program, Future[engine.Replayed]]] = {}
        try:
            for number, program in enumerate(programs, first):
                waiting[number] = program, pool.submit(run, program, machine.seed + number)
                if len(waiting) >= 4 * threads:
                    wait([future for _, future in waiting.values()], return_when=FIRST_COMPLETED)
                for done in [n for n, (_, future) in waiting.items() if future.done()]:
                    _take(found, done, machine.seed, waiting, progress)
            for left in sorted(waiting):
                _take(found, left, machine.seed, waiting, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    found.failures.sort(key=lambda failure: failure.sequence)
    return found


def _take(
    found: Replays,
    number: int,
    seed: int,
    waiting: dict[int, tuple[engine.Program, Future[engine.Replayed]]],
    progress: Callable[[int], bool] | None,
) -> None:
    program, future = waiting.pop(number)
    found.add(number, seed + number, program, future.result())
    if progress is not None:
        progress(found.sequences)


def to_table(found: Replays, title: str) -> Table:
    result = found.as_dict()
    table = Table(title=title)
    for heading in ("", "mean", *(f"{percent} %" for percent in PERCENTILES), "max"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, what in (
        ("preemptions_per_collective", "preemptions of a collective, all its ranks"),
        ("mean_preemptions_per_collective_of_a_sequence", "preemptions a collective, by sequence"),
        ("mean_quits_per_collective_of_a_sequence", "quits a collective, by sequence"),
        ("preemptions_per_sequence", "preemptions of a sequence"),
        ("quits_per_sequence", "quits of a sequence, all ranks"),
        ("collectives", "collectives of a sequence"),
        ("gpus", "GPUs of a sequence"),
    ):
        table.add_row(what, *(f"{value:,.4g}" for value in result[name].values()))
    return table


def check_results(path: Path) -> list[dict[str, Any]]:
    """The entries of a results file; none if there is no such file. Other files are refused before they are touched."""
    if not path.is_file():
        return []
    try:
        runs = json.loads(path.read_text())["runs"]
        for run in runs:
            run["provenance"]["command"], run["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no file of results; name another one with --out") from error
    return list(runs)


def add_to_results(path: Path, provenance: dict[str, Any], result: dict[str, Any]) -> None:
    """A results file has one entry a command; the same command again replaces its entry.

    A disk that fills leaves what was there.
    """
    runs = [run for run in check_results(path) if run["provenance"]["command"] != provenance["command"]]
    runs.append({"provenance": provenance, "result": result})
    text = json.dumps({"runs": runs}, indent=1) + "\n"
    if not path.is_file():
        write_whole(path, text)
        return
    beside = path.with_name(path.name + ".new")
    write_whole(beside, text)
    beside.replace(path)
