"""Goal: whoever looks at a job's threads (top -H, a debugger, `starling bench overlap`) sees which are Starling's.
Method: the system's names of this process's threads while a context is there.
"""

import time
from pathlib import Path

import starling


def names() -> set[str]:
    return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}


def unnamed() -> int:
    """Threads that have the name of the process, which whoever gives none inherits."""
    own = Path("/proc/self/comm").read_text()
    return sum((task / "comm").read_text() == own for task in Path("/proc/self/task").iterdir())


def test_threads_have_names() -> None:
    assert "st-poller" not in names()
    before = unnamed()
    with starling.Context():
        end = time.monotonic() + 30
        while "st-poller" not in names():  # it takes its name when it first runs
            assert time.monotonic() < end, names()
            time.sleep(0.01)
        while unnamed() > before:
            assert time.monotonic() < end, "a thread of Starling's has no name"
            time.sleep(0.01)
    assert "st-poller" not in names(), "it stays"
