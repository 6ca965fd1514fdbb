"""What the threads of a process take of a core while it only communicates, by their names.

Starling's threads have names that begin with `st-`; `caller` is the thread that measures. All others are PyTorch's,
NCCL's, Python's and the driver's; one without a name has that of the process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WINDOW_S = 0.5
TASKS = Path("/proc/self/task")


def finest_clock(tasks: Path = TASKS) -> str:
    """`schedstat` has nanoseconds, of a thread that runs up to its last tick; without it ticks of 10 ms are left."""
    try:
        text = (tasks / str(threading.get_native_id()) / "schedstat").read_text()
    except OSError:
        return "ticks"
    return "schedstat" if int(text.split()[0]) > 0 else "ticks"  # "0 0 0" where the kernel does not count


def threads(clock: str, tasks: Path = TASKS) -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of each thread but the caller's, by its number."""
    found = {}
    for task in tasks.iterdir():
        if int(task.name) == threading.get_native_id():
            continue  # it reads its own clock, which this function's time would be in otherwise
        try:
            found[int(task.name)] = (task / "comm").read_text().strip(), _seconds(clock, task)
        except OSError:
            continue  # it has ended
    return found


def _seconds(clock: str, task: Path) -> float:
    if clock == "schedstat":
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def shares(work: Callable[[], Any], clock: str, window_s: float = WINDOW_S) -> dict[str, float]:
    """Of one core, while the GPU does ``work`` for about ``window_s``: its caller sleeps once all is launched.

    Threads of one name together, the largest share first.
    """
    before, begin_s, own_s = threads(clock), time.monotonic(), time.thread_time()
    work()
    time.sleep(max(begin_s + window_s - time.monotonic(), 0))
    run_s = {"caller": time.thread_time() - own_s}
    seconds = time.monotonic() - begin_s
    for number, (name, until_s) in threads(clock).items():
        run_s[name] = run_s.get(name, 0.0) + until_s - before.get(number, (name, 0.0))[1]
    found = {name: round(value / seconds, 3) for name, value in run_s.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name] > 0}
