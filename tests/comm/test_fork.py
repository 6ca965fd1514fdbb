"""Goal: a forked child that uses what it inherited is told so, can make a context of its own, and leaves its parent's
ranks as they were.

Method: a rank with an operation under way forks; the child tries everything, ends in order, and the ranks go on.
"""

import atexit
import os
import signal
import time
from pathlib import Path

import numpy as np

from comm import failures
from starling import Communicator, Context
from starling.launch import run_processes
from starling.stores import InProcessStore


def own_context() -> str:
    with Context() as context:
        communicator = Communicator(context=context, rank=0, size=1, store=InProcessStore())
        value = np.full(4, 3.0, "float32")
        communicator.all_reduce(value).wait()
        communicator.destroy()
        return "" if (value == 3).all() else "wrong sum"


def in_child(communicator: Communicator, request: object, results: int) -> None:
    told = {
        "submit": failures.told(lambda: communicator.all_reduce(np.ones(4, "float32"))),
        "wait": failures.told(lambda: request.wait(1)),  # type: ignore[attr-defined]
        "abort": failures.told(lambda: communicator.abort("in the child")),
        "synchronize": failures.told(communicator.context.synchronize),
        "destroy": failures.told(communicator.destroy),
        "destroy context": failures.told(communicator.context.destroy),
    }
    lines = [f"{what}: {text}" for what, (_, text) in told.items() if "forked" not in text]
    problem = own_context()
    lines += [f"own context: {problem}"] if problem else []
    os.write(results, "\n".join(lines).encode() or b"all told")
    atexit._run_exitfuncs()
    os._exit(0)


def program(communicator: Communicator) -> str:
    segments = failures.segments()
    value = np.ones(1 << 18, "float32")
    request = communicator.all_reduce(value, lane="x") if communicator.rank == 0 else None
    reading, writing = os.pipe()
    if communicator.rank == 0 and os.fork() == 0:
        in_child(communicator, request, writing)
    if communicator.rank == 0 and (terminated := os.fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    os.close(writing)
    told = os.read(reading, 1 << 16).decode() if communicator.rank == 0 else ""
    if communicator.rank == 0:
        while os.wait()[0] != terminated:
            pass
    else:
        time.sleep(0.2)
        request = communicator.all_reduce(value, lane="x")
    assert request is not None
    request.wait()
    assert (value == communicator.size).all()
    assert all(Path(name).exists() for name in segments)
    again = np.ones(4, "float32")
    communicator.all_reduce(again).wait()
    assert (again == communicator.size).all()
    return told


def test_a_forked_child_is_told_and_changes_nothing() -> None:
    assert run_processes(2, program, timeout=250, operation_timeout=200)[0] == "all told"
