"""What ranks do while they are watched; importable by them."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hosts.ranks import touch, watched
from starling import Communicator, Context, Request
from starling.diagnose import sources
from starling.diagnose.job import jobs_of
from starling.diagnose.paths import NOTHING, slow_path
from starling.errors import PeerFailedError
from starling.monitor import Anomaly, Sample, Watcher
from starling.monitor import Path as PathView
from starling.stores import FileStore

COUNT = 50_000
SMALL_COUNT = 5_000  # so that a slow rail still answers its probes in time
LANES = 4
UnderWay = tuple[int, int, int]  # path, when a transfer was posted, when it had come
TAKEN_EVERY_S = 0.5  # what a watcher has found
LOOKS_IN_A_ROW = 5
HISTORY = 200  # iterations, until a path's history is long enough to compare with


def all_reduces(rank: int, size: int, folder: str, name: str) -> int:
    """All-reduces in three lanes of a communicator of this name, until the file ``stop`` is there."""
    with (
        Context() as context,
        Communicator(
            context, rank=rank, size=size, name=name, store=FileStore(f"{folder}/store"), timeout=200
        ) as comm,
    ):
        return run_until(comm, folder, lambda: (Path(folder) / "stop").exists())


def run_until(
    comm: Communicator, folder: str, over: Callable[[], bool], count: int = COUNT, running_after: int = 10
) -> int:
    """Rank 0 says when it is over; all leave in the same iteration."""
    values, total = np.ones(count, np.float32), np.empty(count, np.float32)
    leaves = np.zeros(1, np.int32)
    for iteration in range(1_000_000):
        for lane in ("grads", "weights"):
            comm.all_reduce(values, total, lane=lane).wait(200)
            assert total[-1] == comm.size
        leaves[0] = comm.rank == 0 and over()
        comm.all_reduce(leaves, lane="leave").wait(200)
        if leaves[0]:
            return iteration
        if iteration == running_after:
            touch(folder, f"running.{comm.rank}")
    raise AssertionError("nobody said stop")


def name_the_slow_rail(comm: Communicator, folder: str) -> tuple[dict[int, PathView], dict[int, PathView]]:
    """Watches its own paths, until one of them has lost far more time to the network than the others since ``slowed``
    was said. Gives rank 0's paths then, and at that word."""
    if comm.rank != 0:
        run_until(comm, folder, lambda: False, SMALL_COUNT, HISTORY)
        return {}, {}
    watcher = Watcher()
    before: dict[int, PathView] = {}
    now: dict[int, PathView] = {}
    deadline = time.monotonic() + 180

    def look() -> dict[int, PathView]:
        mine = watched(watcher, 0)
        return {path.path: path for path in mine.paths}

    def named() -> bool:
        nonlocal before, now
        now = look()
        if not before:
            if (Path(folder) / "slowed").exists():
                before = now
            return False
        lost = sorted((path.slow_ns - before[number].slow_ns for number, path in now.items()), reverse=True)
        return time.monotonic() > deadline or (lost[0] > 1e9 and lost[0] > 3 * lost[1])

    run_until(comm, folder, named, SMALL_COUNT, HISTORY)
    return before, now


def slow_paths_by_diagnosis(comm: Communicator, folder: str, slow: str) -> list[tuple[str, ...]]:
    """From ``slowed`` on, `starling diagnose` is run on rank 0's host, beside the ranks, again and again. Gives what it
    called slow, until that is this path alone or for as long as there is time."""
    if comm.rank != 0:
        run_until(comm, folder, lambda: False, SMALL_COUNT, HISTORY)
        return []
    found: list[tuple[str, ...]] = []
    running: subprocess.Popen[str] | None = None
    deadline = time.monotonic() + 180

    def over() -> bool:
        nonlocal running
        if running is None and (Path(folder) / "slowed").exists():
            command = [sys.executable, "-m", "starling.cli", "diagnose", "--json"]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if running is not None and running.poll() is not None:
            (job,) = json.loads(running.communicate()[0])["jobs"]
            found.extend(tuple(one["paths"]) for one in job["findings"] if one["kind"] == "slow path")
            running = None
        return (slow,) in found or time.monotonic() > deadline

    run_until(comm, folder, over, SMALL_COUNT, HISTORY)
    if running is not None:
        running.kill()
        running.communicate()
    return found


def slow_paths_after_a_crash(rank: int, size: int, folder: str, slow: str) -> list[dict[str, Any]]:
    """Rank 0 is killed when its flight record has called this path slow, and no other, for some looks in a row. What
    `starling diagnose` then finds on its host; and on the other rank's, once that has got its error and has left."""
    if rank != 0:
        with contextlib.suppress(PeerFailedError):
            all_reduces_for_good(rank, size, folder)
            raise AssertionError("nobody killed rank 0")
        return findings_of_diagnosis()
    child = os.fork()
    if child == 0:
        all_reduces_for_good(rank, size, folder)
        os._exit(1)
    deadline = time.monotonic() + 180
    in_a_row = 0
    try:
        while in_a_row < LOOKS_IN_A_ROW:
            assert time.monotonic() < deadline, "the record does not tell"
            time.sleep(0.5)
            records = [dataclasses.replace(record, state="dead") for record in sources.of_this_host()]
            found = [slow_path(job, NOTHING) for job in jobs_of(records)]
            named = (Path(folder) / "slowed").exists() and [one.finding.paths for one in found if one] == [
                (slow,)
            ]
            in_a_row = in_a_row + 1 if named else 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return findings_of_diagnosis()


def all_reduces_for_good(rank: int, size: int, folder: str) -> None:
    store = FileStore(f"{folder}/store")
    with (
        Context() as context,
        Communicator(context, rank=rank, size=size, name="hosts", store=store, timeout=200) as comm,
    ):
        run_without_rest(comm, folder, lambda: False, lanes=2)  # so that the slow rail is


def findings_of_diagnosis() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "starling.cli", "diagnose", "--json"]
    (job,) = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=200).stdout)[
        "jobs"
    ]
    assert not job["live"]
    findings: list[dict[str, Any]] = job["findings"]
    return findings


def run_without_rest(comm: Communicator, folder: str, over: Callable[[], bool], lanes: int = LANES) -> None:
    """All-reduces of several lanes, so that both rails always have some under way. As `run_until`."""
    values = np.ones(SMALL_COUNT, np.float32)
    totals = [np.empty_like(values) for _ in range(lanes)]
    leaves = np.zeros(1, np.int32)
    works: list[Request] = []
    for iteration in range(1_000_000):
        for lane, total in enumerate(totals):
            if len(works) == lanes:
                works.pop(0).wait(200)
            works.append(comm.all_reduce(values, total, lane=f"lane {lane}"))
        if iteration == HISTORY:
            touch(folder, f"running.{comm.rank}")
        if iteration % 8 == 0:
            leaves[0] = comm.rank == 0 and over()
            comm.all_reduce(leaves, lane="leave").wait(200)
            if leaves[0]:
                for work in works:
                    work.wait(200)
                assert all(total[-1] == comm.size for total in totals)
                return
    raise AssertionError("nobody said stop")


def follow_paths(comm: Communicator, folder: str) -> tuple[list[tuple[int, Anomaly]], list[UnderWay]]:
    """Until ``stop``: what rank 0 found wrong with its own paths, by path; and what was under way on them, as far as
    the watcher came in time."""
    if comm.rank != 0:
        run_without_rest(comm, folder, lambda: False)
        return [], []
    watcher = Watcher(kept_samples=5_000_000)
    anomalies: list[tuple[str, int, Anomaly]] = []
    samples: list[Sample] = []
    taken_at = time.monotonic()

    def take() -> None:  # of more than 4,096 anomalies the watcher keeps the newest
        nonlocal taken_at, samples, anomalies
        more_samples, more_anomalies = watcher.take()
        samples += more_samples
        anomalies += more_anomalies
        taken_at = time.monotonic()

    def over() -> bool:
        if time.monotonic() > taken_at + TAKEN_EVERY_S:
            take()
        return (Path(folder) / "stop").exists()

    run_without_rest(comm, folder, over)
    mine = watched(watcher, 0)
    take()
    paths = {path.ring: path.path for path in mine.paths}
    return (
        [(paths[ring], anomaly) for _, ring, anomaly in anomalies],
        [(paths[sample.ring], sample.posted_ns, sample.completed_ns) for sample in samples],
    )
