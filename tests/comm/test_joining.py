"""Goal: ranks that start together find each other, ranks that cannot are told why, and no attempt leaves a file behind.

Method: small programs in processes of their own that meet through STARLING_JOB, some of them wrong, killed or
interrupted; what they print, and the files in /dev/shm.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starling import Communicator, Context, errors, launch
from starling.stores import InProcessStore

BOUND_S = 200.0  # far above what it takes, far below the timeouts
SHARED = Path("/dev/shm")

JOIN = """
import sys, time, numpy as np, starling
try:
    for attempt in range({attempts}):
        comm = starling.Communicator(timeout={timeout})
        total = np.array([comm.rank + 1])
        comm.all_reduce(total).wait(1000)
        if {new_context}:
            comm.context.destroy()
    print(comm.size, total[0], flush=True)
    {then}
except (starling.StarlingError, KeyboardInterrupt) as error:
    print(type(error).__name__, error, flush=True)
    {afterwards}
"""

Start = Callable[..., "subprocess.Popen[str]"]


def job_files() -> set[Path]:
    return set(SHARED.glob("starling-job.*"))


def segments() -> set[Path]:
    return set(SHARED.glob("starling.*"))


def mapped(process: "subprocess.Popen[str]") -> set[Path]:
    """The segments that a process has open: its own, and those of the ranks that it has found."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in lines if "/dev/shm/starling." in line}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a rank of a job of this test; ends what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        rank: int,
        size: int,
        timeout: float = 1000,
        afterwards: str = "",
        attempts: int = 1,
        new_context: bool = False,
        then: str = "pass",
    ) -> "subprocess.Popen[str]":
        text = JOIN.format(
            timeout=timeout,
            afterwards=afterwards,
            attempts=attempts,
            new_context=new_context,
            then=then.replace("\n", "\n    "),
        )
        variables = {"RANK": str(rank), "WORLD_SIZE": str(size), "STARLING_JOB": f"test of {tmp_path}"}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", text],
                env=dict(os.environ, **variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=BOUND_S)[0].strip()


def test_a_job_by_name(start: Start) -> None:
    """STARLING_JOB instead of a launcher; nothing stays in /dev/shm."""
    before = job_files()
    ranks = [start(rank, 3) for rank in range(3)]
    assert [said(rank) for rank in ranks] == ["3 6"] * 3
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert not job_files() - before


def test_files_of_a_job_killed_while_joining(start: Start) -> None:
    before = job_files()
    process = start(0, 2)
    wait_until(lambda: job_files() - before)
    segments_left = mapped(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = job_files() - before
    assert left
    assert segments_left
    with Context():
        assert not [path for path in left | segments_left if path.exists()]


def test_a_job_of_the_name_of_a_killed_one(start: Start) -> None:
    """What it left is not taken for the new one's. It may die later than they look for files of dead jobs."""
    before = job_files()
    killed = start(1, 2)
    wait_until(lambda: job_files() - before)
    killed.send_signal(signal.SIGKILL)
    ranks = [start(rank, 2) for rank in range(2)]
    assert [said(rank) for rank in ranks] == ["2 3", "2 3"]
    killed.wait()
    with Context():
        assert not job_files() - before


def test_a_segment_that_was_never_sized() -> None:
    """Its maker was killed between two system calls."""
    path = SHARED / "starling.00000000deadbeef.0"
    path.touch(mode=0o600)
    with Context():
        assert not path.exists()


def test_contexts_that_start_together_remove_nothing_of_each_other(start: Start) -> None:
    """Every context looks for files of dead jobs while others make theirs."""
    before = job_files() | segments()
    ranks = [start(rank, 3, attempts=20, new_context=True) for rank in range(3)]
    assert [said(rank) for rank in ranks] == ["3 6"] * 3
    wait_until(lambda: not (job_files() | segments()) - before)  # others may come and go meanwhile


def test_a_rank_that_does_not_come(start: Start) -> None:
    answer = said(start(0, 3, timeout=0.5))
    assert re.match("OperationTimeoutError.*rank 1 did not join 'world' of 3 ranks within 0.5 s", answer), (
        answer
    )


def queue_of(rank: int) -> str:
    return "stack" if rank == 1 else "slots"


@pytest.mark.parametrize("run", (launch.run_threads, launch.run_processes))
def test_a_rank_that_cannot_come_tells_the_others(run: Callable[..., list[launch.Outcome]]) -> None:
    """Rank 1 has no context to join with; the others do not wait for their timeout."""
    from comm import test_joining as importable  # under the name that the processes know

    outcomes = run(
        3,
        Communicator.barrier,
        check=False,
        timeout=BOUND_S,
        operation_timeout=1000,
        context={"completion_queue": importable.queue_of},
    )
    assert isinstance(outcomes[1].error, errors.InvalidArgumentError), outcomes
    for rank in (0, 2):
        assert isinstance(outcomes[rank].error, errors.PeerFailedError), outcomes
        assert re.search("rank 1 cannot join 'launch': .*stack", str(outcomes[rank].error)), outcomes


def test_declining_by_hand() -> None:
    store = InProcessStore()
    Communicator.decline("no time today", rank=1, size=2, name="party", store=store)
    with Context() as context, pytest.raises(errors.PeerFailedError, match=r"rank 1 .*: no time today"):
        Communicator(context, rank=0, size=2, name="party", store=store, timeout=BOUND_S)
    with pytest.raises(errors.InvalidArgumentError, match="size - 1"):
        Communicator.decline("no such rank", rank=2, size=2, store=store)


def test_ranks_that_disagree_on_the_size(start: Start) -> None:
    # Each stays until both were told.
    ranks = [start(rank, size, afterwards="sys.stdin.read()") for rank, size in ((0, 2), (1, 3))]
    answers = [rank.stdout.readline() for rank in ranks if rank.stdout]
    for answer in answers:
        assert answer.startswith("MismatchError"), answer
        assert "as one of 3" in answer
        assert "as one of 2" in answer


def test_two_processes_of_one_rank(start: Start) -> None:
    """The younger one is told; the job of the older one goes on."""
    before = job_files()
    older = start(0, 2)
    wait_until(lambda: job_files() - before)
    answer = said(start(0, 2))
    assert re.match("MismatchError.*another live process.*STARLING_JOB", answer, re.DOTALL), answer
    partner = start(1, 2)
    assert [said(older), said(partner)] == ["2 3", "2 3"]


def test_two_jobs_of_one_name_that_pair_crosswise(start: Start, tmp_path: Path) -> None:
    """A rank of one job has found a rank of the other: both jobs are told, by those that are left over."""
    before = job_files()
    go = tmp_path / "go"
    stay = f"import os\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    mixed = [start(rank, 2, then=stay) for rank in range(2)]
    assert [process.stdout.readline() for process in mixed if process.stdout] == ["2 3\n"] * 2
    for rank in range(2):
        answer = said(start(rank, 2))
        assert re.match(f"MismatchError.*another live process.*/{rank} .*runs", answer, re.DOTALL), answer
    go.touch()
    assert [process.wait(BOUND_S) for process in mixed] == [0, 0]
    assert not job_files() - before
    assert [said(rank) for rank in [start(rank, 2) for rank in range(2)]] == ["2 3", "2 3"]


def test_a_rank_that_dies_while_others_join(start: Start) -> None:
    before = job_files()
    dying = start(0, 3)
    wait_until(lambda: job_files() - before)
    waiting = start(1, 3)
    wait_until(lambda: len(job_files() - before) == 4)  # each a claim and an introduction
    wait_until(lambda: len(mapped(waiting)) == 2)  # it has found the other one
    dying.send_signal(signal.SIGKILL)
    answer = said(waiting)
    assert re.match(r"PeerFailedError.*rank 0 \(process \d+\) died or gave up", answer), answer


def test_interrupt_while_joining(start: Start) -> None:
    before = job_files()
    process = start(0, 2)
    wait_until(lambda: job_files() - before)
    process.send_signal(signal.SIGINT)
    assert said(process).startswith("KeyboardInterrupt")
    assert not job_files() - before


def test_interrupt_in_a_store_of_python(tmp_path: Path) -> None:
    program = (
        "import starling, sys\n"
        "print('up', flush=True)\n"
        "try:\n"
        "    starling.Communicator(rank=0, size=2, store=starling.stores.FileStore(sys.argv[1]))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(tmp_path.iterdir()))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    assert out.split() == ["up", "interrupted"]
    assert err == ""


def test_interrupt_when_the_group_was_just_made() -> None:
    """Nobody in Python owns it yet: it goes all the same, and its context can."""
    program = """
import os, signal, threading, time, starling

class Store(starling.stores.InProcessStore):
    def __init__(self):
        super().__init__()
        self.held = threading.Lock()
        self.held.acquire()
        self.thread = threading.Thread(target=self.interrupt)
        self.thread.start()
    def interrupt(self):
        self.held.acquire()
        os.kill(os.getpid(), signal.SIGINT)
    def set(self, key, value):
        super().set(key, value)
        if "/complete/" in key:  # the last thing that the group needs Python for
            self.held.release()

interrupted = 0
for attempt in range(100):
    store, context = Store(), starling.Context()
    try:
        starling.Communicator(context, rank=0, size=1, store=store)
        while True:
            time.sleep(0.001)  # CPython 3.11 may overlook a signal while nothing takes the interpreter's lock
    except KeyboardInterrupt:
        interrupted += not context._communicators
    store.thread.join()
    context.destroy()
print("before it had an owner:", interrupted > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("before it had an owner:")
