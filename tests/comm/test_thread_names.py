"""Goal: whoever looks at a job's threads (top -H, a debugger, `starling bench overlap`) sees which are Starling's.
Method: the system's names of this process's threads while a context is there.
"""

import contextlib
import time
from pathlib import Path

import starling


def names() -> set[str]:
    return set(all_names())


def all_names() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append((task / "comm").read_text().strip())
    return found


def unnamed() -> int:
    """Threads that have the name of the process, which whoever gives none inherits."""
    return all_names().count(Path("/proc/self/comm").read_text().strip())


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
