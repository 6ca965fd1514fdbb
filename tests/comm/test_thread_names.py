"""Goal: whoever looks at a job's threads (top -H, a debugger, `starling bench overlap`) sees which are Starling's.
Method: the system's names of this process's threads while a context is there.
"""

import time
from pathlib import Path

import starling


def names() -> set[str]:
    return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}


def test_threads_have_names() -> None:
    assert "st-poller" not in names()
    with starling.Context():
        end = time.monotonic() + 30
        while "st-poller" not in names():  # it takes its name when it first runs
            assert time.monotonic() < end, names()
            time.sleep(0.01)
    assert "st-poller" not in names(), "it stays"
