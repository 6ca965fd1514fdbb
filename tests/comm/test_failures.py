"""Goal: whatever goes wrong, every rank gets an error that names it, without a timeout, and nothing is left behind.

Method: small programs with one mistake each (failures.py), as threads and as processes; what each rank was told is
compared. Segments are looked for by the names that the ranks had mapped.
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comm import failures
from conformance.machines import MACHINES
from starling import Context
from starling.launch import Outcome, RankDiedError, run_processes

BOUND_S = 250  # of a whole program
RANKS = 3


@pytest.fixture(params=sorted(MACHINES))
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a program on RANKS ranks; gives each rank's value."""
    machine = MACHINES[request.param]

    def start(function: Any, ranks: int = RANKS, **arguments: Any) -> list[Any]:
        return machine.run(
            ranks, functools.partial(function, **arguments), timeout=BOUND_S, operation_timeout=200
        )

    return start


def check_told(told: failures.Told, kind: str, *fragments: str) -> None:
    error, text = told
    assert error == kind, told
    for fragment in fragments:
        assert fragment in text, told


@pytest.mark.parametrize("late_rank", (0, 1))
@pytest.mark.parametrize("what", sorted(failures.MISMATCHES))
def test_mismatch(run: Any, what: str, late_rank: int) -> None:
    for first, second, other in run(failures.mismatch, what=what, late_rank=late_rank):
        check_told(first, "MismatchError", "lane 'x'", "position 0", "rank 1")
        check_told(second, "MismatchError", "lane 'x'")
        check_told(other, "")


def test_swapped_order(run: Any) -> None:
    for of_rank in run(failures.swapped_order):
        for told in of_rank:
            check_told(told, "MismatchError", "lane 'x'", "rank 1")


def test_send_recv_mismatch(run: Any) -> None:
    for (told,) in run(failures.send_recv_mismatch, ranks=2):
        check_told(told, "MismatchError", "0->1", "remedy: let sender and receiver call the same number")


def test_rank_that_never_calls(run: Any) -> None:
    outcomes = run(failures.never_calls)
    for rank in (0, 2):
        what = ("rank 1 has not called it", "lane 'x'", "`starling diagnose` names it")
        check_told(outcomes[rank][0], "OperationTimeoutError", *what)
    check_told(outcomes[1][0], "OperationTimeoutError")


def test_rank_that_never_sends(run: Any) -> None:
    any_source, from_one = run(failures.never_sends, ranks=2)[0]
    check_told(any_source, "OperationTimeoutError", "tag 5", "remedy: see which rank should send it")
    check_told(from_one, "OperationTimeoutError", "tag 6", "rank 1 has not called it")


def test_cyclic_wait(run: Any) -> None:
    """Rank 0's timeout frees rank 1's first wait; then the lane that was given up fails there."""
    zero, one = run(failures.cyclic_wait, ranks=2)
    what = ("in lane 'A'", "rank 1 has not called it and waits for all_reduce", "in lane 'B'")
    check_told(zero[0], "OperationTimeoutError", *what)
    check_told(zero[1], "")
    check_told(one[0], "")
    check_told(one[1], "OperationTimeoutError", "in lane 'A'")


def test_abort(run: Any) -> None:
    for of_rank in run(failures.abort):
        for told in of_rank:
            check_told(told, "AbortedError", "the test says so")


def test_context_destroyed_with_work_under_way(run: Any) -> None:
    zero, *others = run(failures.leaves_early)
    check_told(zero[0], "AbortedError")
    check_told(zero[1], "")
    for (told,) in others:
        check_told(told, "AbortedError", "rank 0", "destroyed while operations were under way")


@pytest.mark.parametrize("in_the_middle", (False, True))
def test_killed_rank(in_the_middle: bool) -> None:
    outcomes: list[Outcome] = run_processes(
        4,
        functools.partial(failures.killed, in_the_middle=in_the_middle),
        BOUND_S,
        check=False,
        operation_timeout=200,
    )
    assert isinstance(outcomes[1].error, RankDiedError)
    assert "SIGKILL" in str(outcomes[1].error)
    for outcome in outcomes[:1] + outcomes[2:]:
        assert outcome.error is None, outcome
        (big, small), names = outcome.value
        check_told(big, "PeerFailedError", "rank 1", "died")
        check_told(small, "PeerFailedError", "rank 1")
        assert names
        assert [name for name in names if Path(name).exists()] == []


def test_a_survivor_removes_what_all_others_left() -> None:
    survivor, *_ = run_processes(4, failures.survives, BOUND_S, check=False)
    assert len(survivor.value) == 4
    assert [name for name in survivor.value if Path(name).exists()] == []


@pytest.mark.parametrize("context", (False, True))
def test_destroyed_while_a_thread_is_inside(run: Any, context: bool) -> None:
    for _ in range(5):
        inside, *_ = run(failures.destroyed_inside, context=context)
        check_told(inside, "AbortedError", "destroyed")


def test_segments_of_a_dead_job_are_removed(tmp_path: Path) -> None:
    run_processes(3, functools.partial(failures.all_killed, folder=str(tmp_path)), BOUND_S, check=False)
    names = {name for rank in tmp_path.iterdir() for name in rank.read_text().split()}
    assert len(names) >= 3
    with Context():
        assert [name for name in names if Path(name).exists()] == []


@pytest.mark.parametrize("by", (signal.SIGTERM, signal.SIGHUP), ids=lambda by: by.name)
def test_a_terminated_job_leaves_nothing(tmp_path: Path, by: signal.Signals) -> None:
    """As launchers end the ranks of a job that has lost one: nobody is left who could remove segments."""
    outcomes = run_processes(
        3, functools.partial(failures.all_killed, folder=str(tmp_path), by=by), BOUND_S, check=False
    )
    assert all(by.name in str(outcome.error) for outcome in outcomes), outcomes
    names = {name for rank in tmp_path.iterdir() for name in rank.read_text().split()}
    assert len(names) >= 3
    assert [name for name in names if Path(name).exists()] == []


def test_signals_that_a_program_handles_are_its_own() -> None:
    program = (
        "import os, signal, starling\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "with starling.Context():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    signal.signal(signal.SIGHUP, lambda *_: print('mine, too'))\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('ends')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND_S)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["mine", "mine, too", "ends"]), done


def test_process_that_forgets_everything() -> None:
    """Also at the end of a process that destroys nothing, nothing stays; and no callback crashes it."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import starling\n"
        "from comm import failures\n"
        "comm = starling.Communicator(rank=0, size=1, name='x', store=starling.stores.InProcessStore())\n"
        "print(*failures.forgets(comm))\n"
    )
    tests = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", program, tests],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    names = done.stdout.split()
    assert names
    assert [name for name in names if Path(name).exists()] == []


def test_interrupt() -> None:
    """Ctrl-C ends a wait at once, and the process leaves nothing."""
    program = (
        "import sys, os, signal, threading; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, starling\n"
        "from comm import failures\n"
        "comm = starling.Communicator(rank=0, size=1, name='x', store=starling.stores.InProcessStore())\n"
        "request = comm.recv(np.ones(4), tag=9, timeout=1000)\n"
        "print(*failures.segments())\n"
        "try:\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    request.wait()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    tests = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", program, tests],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    names, answer = done.stdout.splitlines()
    assert answer == "interrupted"
    assert names
    assert [name for name in names.split() if Path(name).exists()] == []
