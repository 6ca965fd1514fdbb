"""`starling bench gpu-disorder`: DFCCL §6.1's programs on GPUs in all situations of §2.3, beside NCCL.

What hangs, hangs in processes of its own, and is ended after a time without progress.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from . import gpu_devices
from .beside import LIBRARY
from .options import Json, Programs, finish, refuse, speaker, words
from .programs import MissingProgramError, find_program
from .results import document

OURS = ("starling in PyTorch", "starling's API")
START_LIMIT_S = 100.0  # importing PyTorch, joining, connecting eight lanes: many processes at once
LEAVE_LIMIT_S = 20.0  # of processes that were killed
POLL_S = 0.05
OF_CUDA = ("free", "free host", "default stream")  # what cases do beside, and no CPU can
LEAVING = "leaving"  # in the place of a case, where all were reported and the processes did not end


@dataclass
class Job:
    """The processes of one library, which run cases one after the other until one hangs or fails."""

    library: str
    cases: list[str]
    connections: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._dying: list[subprocess.Popen[bytes]] = []
        self._seen: tuple[Any, ...] = ()
        self._changed_at = 0.0
        self._started_at = 0.0

    @property
    def ended(self) -> bool:
        return not self.cases and not self._processes

    def start(self, run: Run) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="starling-programs-"))
        command = [sys.executable, "-m", "starling.bench.gpu_programs", "--size", str(run.ranks)]
        command += ["--folder", str(self._folder), "--library", self.library, "--device", run.device]
        command += ["--cases", ";".join(self.cases), "--iterations", str(run.iterations)]
        command += [
            "--timeout",
            str(run.timeout_s or run.limit_of(self.library) * 0.8),
        ]
        command += ["--programs", str(run.programs)] if run.programs else []
        environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"}
        if self.library in OURS:  # the first launch of a kernel that is not loaded waits for the whole GPU
            environment.setdefault("CUDA_MODULE_LOADING", "EAGER")
        if self.connections:
            environment["CUDA_DEVICE_MAX_CONNECTIONS"] = str(self.connections)
        self._started_at = self._changed_at = time.monotonic()
        self._seen = ()
        for rank in range(run.ranks):
            with (self._folder / f"log.{rank}").open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        [*command, "--rank", str(rank)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def look(self, run: Run) -> None:
        """Takes what was reported; ends who made no progress for the limit."""
        seen = tuple(
            self._text(f"{name}.{rank}") for name in ("progress", "results") for rank in range(run.ranks)
        )
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        codes = [process.poll() for process in self._processes]
        left = all(code is not None for code in codes)
        failed = any(code not in (None, 0) for code in codes)
        self._collect(run)
        if left or (failed and now - self._changed_at > 3):  # peers may notice by themselves, and say what
            if not left:  # who did not notice shows where it stands
                self._ask_for_stacks()
            self.end()
            if self.cases and not self._told_failure():
                self._give_up("failed", f"exit codes {codes}", run)
        elif now - self._changed_at > (START_LIMIT_S if self._begun() < 0 else run.limit_of(self.library)):
            self._ask_for_stacks()
            self.end()
            if not self.cases:
                if self.library not in OURS:  # how others leave is not the question
                    return
                self.cases = [LEAVING]
            self._give_up("hung", f"no iteration ended for {now - self._changed_at:.0f} s", run)

    def _ask_for_stacks(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGUSR1)
        time.sleep(0.3)  # for the stacks to be written

    def _text(self, name: str) -> str:
        assert self._folder is not None
        with suppress(OSError):
            return (self._folder / name).read_text()
        return ""

    def _begun(self) -> int:
        """Iterations that the slowest rank has ended of the case at hand; -1: still starting."""
        counts = [text.strip() or "-1" for text in self._seen[: len(self._seen) // 2]]
        return min(int(count) for count in counts)

    def _collect(self, run: Run) -> None:
        """Cases that all ranks have reported."""
        reports = [
            [json.loads(line) for line in self._text(f"results.{rank}").splitlines()]
            for rank in range(run.ranks)
        ]
        done = len([row for row in self.rows if row.get("folder") == str(self._folder)])
        for of_case in list(zip(*reports, strict=False))[done:]:
            worst = max(of_case, key=lambda one: ("right", "freed", "wrong", "failed").index(one["outcome"]))
            times = [one["us_per_iteration"] for one in of_case if "us_per_iteration" in one]
            row = {
                "iterations": max(self._begun(), 0),
                **worst,
                "library": self.library,
                "folder": str(self._folder),
            }
            if times:
                row["us_per_iteration"] = max(times)
            self._take(row, run)

    def _told_failure(self) -> bool:
        """The processes left because of a case that is in the rows."""
        return any(row["folder"] == str(self._folder) and row["outcome"] == "failed" for row in self.rows)

    def _take(self, row: dict[str, Any], run: Run) -> None:
        self.cases.remove(row["case"])
        self.rows.append(row)
        run.say_row(row)

    def _give_up(self, outcome: str, why: str, run: Run) -> None:
        """The case at hand has no report of all ranks; the next ones get new processes."""
        assert self._folder is not None
        iterations = max(self._begun(), 0) if self._seen else 0
        stacks = "\n".join(
            f"[rank {rank}] {self._text(f'results.{rank}')[-600:]}{self._text(f'log.{rank}')[-1800:]}"
            for rank in range(run.ranks)
        )
        row = {
            "case": self.cases[0],
            "library": self.library,
            "outcome": outcome,
            "iterations": iterations,
            "text": why,
            "stacks": stacks,
            "folder": "",
        }
        self._take(row, run)

    def end(self) -> None:
        """Kills the processes. A GPU may keep one that hung for many seconds: who waits for them, waits in `close`."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        self._dying += self._processes
        self._processes = []

    def _await_dying(self, until: float) -> None:
        for process in self._dying:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(until - time.monotonic(), 0))
        self._dying = [process for process in self._dying if process.poll() is None]

    def step(self, run: Run) -> None:
        if time.monotonic() > run.deadline:
            self.end()
            for case in list(self.cases):
                self._take(
                    {"case": case, "library": self.library, "outcome": "not run", "iterations": 0}, run
                )
        if self._processes:
            self.look(run)
        if not self._processes:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
            if self.cases:
                if self.library in OURS:  # what comes now is timed
                    self._await_dying(time.monotonic() + LEAVE_LIMIT_S)
                self.start(run)

    def close(self, until: float) -> None:
        self.end()
        self._await_dying(until)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@dataclass
class Run:
    """What is run, and how."""

    ranks: int
    iterations: int = 200
    limit_s: float = 30.0
    our_limit_s: float = (
        12.0  # an iteration takes milliseconds: what hangs should not cost the other cases their time
    )
    timeout_s: float = 0.0  # of an operation; 0: before the limit, for an error that says who waits for whom
    device: str = "cuda"
    programs: Path | None = None
    say: Callable[[str], None] = print
    deadline: float = math.inf  # of time.monotonic(): what is left then is not run

    def limit_of(self, library: str) -> float:
        return min(self.limit_s, self.our_limit_s) if library in OURS else self.limit_s

    def together(self, jobs: list[Job]) -> list[dict[str, Any]]:
        """Runs the jobs beside each other; the rows."""
        if self.device == "cuda":
            find_program(LIBRARY, self.programs)  # once, not in every rank of every case
        try:
            while not all(job.ended for job in jobs):
                for job in jobs:
                    if not job.ended:
                        job.step(self)
                time.sleep(POLL_S)
        finally:
            for job in jobs:
                job.end()
            until = time.monotonic() + LEAVE_LIMIT_S
            for job in jobs:
                job.close(until)
        return [row for job in jobs for row in job.rows]

    def say_row(self, row: dict[str, Any]) -> None:
        time_us = f"{row['us_per_iteration']:.0f}" if "us_per_iteration" in row else "-"
        self.say(f"  {row['case']:<54} {row['library']:<30} {row['outcome']:>7} {time_us:>9}")
        if row["library"] in OURS and row["outcome"] != "right":
            self.say(f"    {row.get('text', '')}\n{row.get('stacks', '')}")


def jobs_of(library: str, names: Iterable[str]) -> list[Job]:
    """One for each setting of the driver's hardware queues."""
    from .gpu_programs import CASES

    found: dict[int, Job] = {}
    for name in names:
        connections = CASES[name].connections
        found.setdefault(connections, Job(library, [], connections)).cases.append(name)
    return list(found.values())


def nccl_of(name: str) -> str:
    """The way into NCCL by which the case's situation arises."""
    from .gpu_programs import CASES

    own = CASES[name].streams == "own"
    return "nccl" if own else "nccl on the caller's streams"


def is_control(name: str) -> bool:
    """Whether the case is in one order where resources are depleted: what hangs there does not hang of disorder."""
    from .gpu_programs import CASES

    return CASES[name].ordered and CASES[name].situation == "depleted resources"


def measure(run: Run, cases: list[str], libraries: list[str]) -> list[dict[str, Any]]:
    """Ours one after the other, alone on the GPUs. NCCL's cases beside each other, each in processes of its own, since
    most hang: there times would say nothing."""
    run.say(
        f"# eight all-reduces of 256 B to 1 MB in a random order of each rank's own, {run.ranks} ranks, "
        f"{run.iterations} iterations, every element compared; hung: no iteration ended for {run.limit_s:.0f} s"
    )
    run.say(f"  {'':<54} {'':<30} {'':>7} {'us/iter.':>9}")
    rows = []
    for library in libraries:
        if library != "nccl":
            for job in jobs_of(library, cases):
                rows += run.together([job])
    if "nccl" in libraries:
        # What survives is measured alone, and so is whether depleted resources alone stop it.
        alone = [name for name in cases if name == "disorder alone" or is_control(name)]
        rows += [row for name in alone for row in run.together(jobs_of(nccl_of(name), [name]))]
        jobs = [job for name in cases if name not in alone for job in jobs_of(nccl_of(name), [name])]
        for row in run.together(jobs):
            row.pop("us_per_iteration", None)
            rows.append(row)
    return [{key: value for key, value in row.items() if key != "folder"} for row in rows]


def of_ranks_that_share(cases: list[str], libraries: list[str]) -> tuple[list[str], list[str]]:
    """The cases and libraries that ranks on one GPU can run: not both can occupy its multiprocessors, and NCCL refuses
    them."""
    from .gpu_programs import CASES

    return [name for name in cases if not CASES[name].left_free], [
        name for name in libraries if name != "nccl"
    ]


def described(row: dict[str, Any]) -> dict[str, Any]:
    from .gpu_programs import CASES, Case

    case = CASES.get(row["case"], Case(LEAVING, "none"))
    return {"situation": case.situation, "beside": case.beside, "every": case.every, **row}


def command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, help="processes, one a GPU")] = 2,
    iterations: Annotated[int, typer.Option(min=1, help="of each case")] = 200,
    limit_s: Annotated[float, typer.Option("--limit", min=3, help="seconds without progress")] = 30,
    case: Annotated[
        str,
        typer.Option("--case", "-c", help="some of the cases; default: all. A name that is none lists them"),
    ] = "",
    libraries: Annotated[
        str, typer.Option(help="separated by commas")
    ] = "starling in PyTorch,starling's API,nccl",
    device: Annotated[
        str, typer.Option(help="cuda, or cpu: to try the machinery, but for NCCL and what is of CUDA")
    ] = "cuda",
    total_s: Annotated[float, typer.Option("--timeout", help="seconds for all; the rest is not run")] = 600,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """Programs that deadlock other libraries: DFCCL section 6.1's, in all situations of section 2.3, NCCL beside.

    Exit codes: 0 all of Starling's are right; 1 one is not; 2 options to change.
    """
    from .gpu_programs import CASES, LIBRARIES

    for what, chosen, names in (
        ("case", words(case), list(CASES)),
        ("library", words(libraries), list(LIBRARIES)),
    ):
        for name in chosen:
            if name not in names:
                refuse(f"no {what} '{name}'; choose from {', '.join(names)}")
    cases, tried = words(case) or list(CASES), words(libraries)
    if device == "cuda":
        gpu_devices.require(ranks, fewest=2)
        if gpu_devices.visible()[0] < ranks:
            asked = len(cases) * len(tried)
            cases, tried = of_ranks_that_share(cases, tried)
            speaker(json_path)(
                f"# ranks share a GPU, as RANKS_PER_GPU says: {asked - len(cases) * len(tried)} of {asked} cases need "
                "one each"
            )
            if not cases or not tried:
                refuse(
                    "none of these can be run by ranks that share a GPU; choose others with -c and --libraries"
                )
    else:  # what is of CUDA cannot be tried there
        cases = [name for name in cases if case or CASES[name].beside not in OF_CUDA]
        tried = [library for library in tried if library != "nccl"]
        if not tried:
            refuse("NCCL is for GPUs alone; choose another library, or --device cuda")
    run = Run(ranks, iterations, limit_s, device=device, programs=programs, say=speaker(json_path))
    run.deadline = time.monotonic() + total_s
    try:
        rows = measure(run, cases, tried)
    except MissingProgramError as error:
        refuse(error)
    settings = {"ranks": ranks, "iterations": iterations, "limit_s": limit_s}
    finish(document("gpu_disorder", settings, [described(row) for row in rows]), json_path)
    bad = [row for row in rows if row["library"] in OURS and row["outcome"] != "right"]
    if bad:
        refuse(f"{len(bad)} of Starling's cases are not right", 1)
