"""Ranks that go wrong in one way each, as processes that a test talks to.

A program says what it has done by ``pipe.send``, and waits by ``pipe.recv`` for the test to let it go on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from starling import Communicator, Context, StarlingError
from starling.diagnose import Diagnosis, diagnose, sources
from starling.diagnose.record import NotARecordError, parse
from starling.stores import FileStore

BOUND_S = 200.0  # of everything that is waited for; far above what it takes
AFTER_S = 0.2  # what counts as a hang here
COMPUTES_S = 0.05

Program = Callable[[Communicator, Any], None]


@dataclass
class Ranks:
    job: str
    processes: list[Any]
    pipes: list[Connection]

    def hear(self, *ranks: int) -> list[Any]:
        """What each of the ranks says next."""
        heard = []
        for rank in ranks or range(len(self.pipes)):
            assert self.pipes[rank].poll(BOUND_S), f"rank {rank} said nothing for {BOUND_S} s"
            heard.append(self.pipes[rank].recv())
        return heard

    def tell(self, *ranks: int) -> None:
        for rank in ranks or range(len(self.pipes)):
            self.pipes[rank].send("go on")

    def diagnosis(self) -> Diagnosis | None:
        """None before all ranks have met: until then each is a job."""
        found = diagnose(job=self.job, after_s=AFTER_S, ended=True)
        return found[0] if len(found) == 1 and found[0].size == len(self.pipes) else None

    def until(self, kind: str | None, ranks: tuple[int, ...] | None = None, text: str = "") -> Diagnosis:
        """Looks until the verdict is of this kind, of these ranks and has this text; None: until all is well.

        ranks, text: where another verdict comes before the right one on a busy machine, whose ranks are late in turn.
        """
        deadline = time.monotonic() + BOUND_S
        while True:
            found = self.diagnosis()
            verdict = found.verdict if found else None
            right = verdict is None or (ranks in (None, verdict.ranks) and text in verdict.what)
            if found and right and (verdict.kind if verdict else None) == kind:
                return found
            assert time.monotonic() < deadline, f"not '{kind}' but {found}"
            time.sleep(0.05)


def remove_records(folder: Path) -> None:
    """Of a test's ranks, once they are gone."""
    for path in sources.SHARED.glob(sources.PREFIX + "*"):
        with contextlib.suppress(OSError, NotARecordError):
            if parse(path.read_bytes(), "dead").job == f"test {folder}":
                path.unlink()


@contextlib.contextmanager
def started(
    program: Program,
    size: int,
    folder: Path,
    *,
    timeout: float = 2 * BOUND_S,
    absent: int = -1,
    hosts: str = "",
    **environment: str,
) -> Iterator[Ranks]:
    """Ranks that run the program; killed at the end.

    timeout: of their operations. absent: a rank that is not started. hosts: a letter for each rank's host, if they are
    not of one; then they are linked by TCP.
    """
    spawner = multiprocessing.get_context("forkserver")
    spawner.set_forkserver_preload(["numpy", "starling.launch"])
    ranks = Ranks(f"test {folder}", [], [])
    environment["STARLING_JOB"] = ranks.job
    (folder / "store").mkdir()
    try:
        for rank in set(range(size)) - {absent}:
            if hosts:
                environment = {
                    **environment,
                    "STARLING_HOST_ID": hosts[rank],
                    "STARLING_TCP_INTERFACES": "lo",
                }
            ours, theirs = spawner.Pipe()
            arguments = (program, rank, size, str(folder / "store"), timeout, environment, theirs)
            process = spawner.Process(target=_live, args=arguments, daemon=True)
            process.start()
            theirs.close()
            ranks.processes.append(process)
            ranks.pipes.append(ours)
        yield ranks
    finally:
        for process in ranks.processes:
            process.kill()
        for process in ranks.processes:
            process.join()


def _live(
    program: Program,
    rank: int,
    size: int,
    store: str,
    timeout: float,
    environment: dict[str, str],
    pipe: Connection,
) -> None:
    os.environ.update(environment)
    with (
        Context() as context,
        Communicator(
            context, rank=rank, size=size, name="world", store=FileStore(store), timeout=2 * BOUND_S
        ) as comm,
    ):
        comm.set_timeout(timeout)
        program(comm, pipe)


def ones(count: int = 4) -> np.ndarray:
    return np.ones(count, "float32")


def _told(call: Callable[[], Any]) -> str:
    try:
        call()
    except StarlingError as error:
        return type(error).__name__
    return ""


def does_not_call(comm: Communicator, pipe: Any) -> None:
    """Rank 1 stays away from position 1 until it is told to come."""
    comm.all_reduce(ones(), lane="x", timeout=2 * BOUND_S).wait()
    pipe.send("once")
    if comm.rank == 1:
        pipe.recv()
    pipe.send(_told(comm.all_reduce(ones(), lane="x").wait))
    pipe.recv()


def opens_no_lane(comm: Communicator, pipe: Any) -> None:
    """Rank 1 stays away from a lane that it has never used."""
    comm.barrier(timeout=2 * BOUND_S).wait()
    pipe.send("once")
    if comm.rank == 1:
        pipe.recv()
    comm.all_reduce(ones(), lane="x").wait()


def calls_something_else(comm: Communicator, pipe: Any) -> None:
    """After all have finished the first round: the second breaks the lane."""
    comm.all_reduce(ones(), lane="x").wait()
    pipe.send("once")
    pipe.recv()
    pipe.send(_told(comm.all_reduce(ones(5 if comm.rank == 1 else 4), lane="x").wait))
    pipe.recv()


def waits_crosswise(comm: Communicator, pipe: Any) -> None:
    first, second = ("a", "b") if comm.rank == 0 else ("b", "a")
    comm.barrier(lane="both are there", timeout=2 * BOUND_S).wait()
    pipe.send(_told(comm.all_reduce(ones(), lane=first).wait))
    pipe.send(_told(comm.all_reduce(ones(), lane=second).wait))
    pipe.recv()


def computes_slowly(comm: Communicator, pipe: Any) -> None:
    """Rank 1 takes its time in each round, until it is told to end: then the sum says so."""
    stop = np.zeros(1, "float32")
    while stop[0] == 0:
        if comm.rank == 1:
            time.sleep(COMPUTES_S)
            stop[0] = pipe.poll()
        comm.all_reduce(stop, lane="x").wait()
    pipe.send("ended")


def has_a_slow_stage(comm: Communicator, pipe: Any) -> None:
    """Two stages of two data ranks each; the second computes for longer, until rank 0 is told to end."""
    stage, place = divmod(comm.rank, 2)
    column = comm.subgroup([place, place + 2], f"pipeline {place}")
    row = comm.subgroup([2 * stage, 2 * stage + 1], f"data {stage}")
    assert column is not None and row is not None
    stop, told = np.zeros(1, "float32"), np.zeros(1, "float32")
    while told[0] == 0:
        if stage == 0:
            told[0] = stop[0]
            column.send(told, 1).wait()
            stop[0] = comm.rank == 0 and pipe.poll()
        else:
            column.recv(told, 0).wait()
            time.sleep(COMPUTES_S)
            stop[0] = told[0]
        row.all_reduce(stop, lane="x").wait()
    pipe.send("ended")


def trains(comm: Communicator, pipe: Any, *, row_is: str) -> None:
    """Two stages of two tensor or two data ranks each, four micro-batches a step, until rank 0 is told to end.

    The second rank of each row computes for longer.
    """
    stage, place = divmod(comm.rank, 2)
    column = comm.subgroup([place, place + 2], f"column {place}")
    row = comm.subgroup([2 * stage, 2 * stage + 1], f"row {stage}")
    assert column is not None and row is not None
    values, stop = ones(), np.zeros(1, "float32")

    def compute() -> None:
        if place == 1:
            time.sleep(COMPUTES_S)
        if row_is == "tensor":
            row.all_reduce(values).wait()

    def pass_through(first: int, last: int) -> None:
        for _ in range(4):
            if stage != first:
                column.recv(values, first).wait()
            compute()
            if stage != last:
                column.send(values, last).wait()

    while stop[0] == 0:
        pass_through(0, 1)
        pass_through(1, 0)
        if row_is == "data":
            row.all_reduce(values).wait()
        stop[0] = comm.rank == 0 and pipe.poll()
        comm.all_reduce(stop, lane="stop").wait()
    pipe.send("ended")


def calls_on_command(comm: Communicator, pipe: Any) -> None:
    """Two rounds, and what became of the second; rank 1 is not heard of between them."""
    comm.all_reduce(ones(), lane="x").wait()
    pipe.send("once")
    pipe.recv()
    pipe.send(_told(comm.all_reduce(ones(), lane="x").wait))
    pipe.recv()


def is_busy(comm: Communicator, pipe: Any) -> None:
    """Rounds without a pause, until rank 0 is told to end."""
    stop = np.zeros(1, "float32")
    comm.barrier().wait()
    pipe.send("begins")
    while stop[0] == 0:
        stop[0] = comm.rank == 0 and pipe.poll()
        comm.all_reduce(stop, lane="x").wait()
        ones(1 << 16).sum()
    pipe.send("ended")
    pipe.recv()


def waits_for_anybody(comm: Communicator, pipe: Any) -> None:
    if comm.rank == 0:
        pipe.send("receives")
        comm.recv(ones(), None, tag=7).wait()
    pipe.recv()
