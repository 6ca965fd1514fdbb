"""Programs of ranks whose paths break without a word, or whose peer dies, on CPUs and on GPUs.

A path breaks when its sockets are shut down, from outside the library, as when a middlebox forgets it: that needs
neither root nor a network of one's own.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hosts.ranks import touch

BETWEEN_S = 0.3  # a path that was broken is there again: with none a group stands, by design
LEAST = 6  # all-reduces, and breaks, however slow the machine is
PATIENCE_S = 40  # for them

if TYPE_CHECKING:
    import torch

    from starling import Communicator


def synchronize(device: torch.device) -> None:
    """What was put into the device's streams is done: operations here are submitted without one."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def break_a_path(which: int) -> bool:
    """Shuts down one of this process's connections over loopback. False: there is none."""
    established = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                one.getpeername()  # throws where it is not connected
                established.append(one)
                continue
        except OSError:
            pass
        one.close()
    if established:
        established[which % len(established)].shutdown(socket.SHUT_RDWR)
    for one in established:
        one.close()
    return bool(established)


def through_broken_paths(comm: Communicator, folder: str, seconds: float) -> tuple[int, int, float]:
    """All-reduces, every element compared, while rank 0 breaks path after path, for so long and until there were LEAST
    of both: how many, breaks, the longest in s."""
    import torch

    device = torch.device(comm.context.device)
    pattern = torch.arange(300_000, device=device) % 31
    stop, breaks = threading.Event(), [0]

    def disturb() -> None:
        while not stop.wait(BETWEEN_S):
            breaks[0] += break_a_path(breaks[0])

    thread = threading.Thread(target=disturb)
    if comm.rank == 0:
        thread.start()
    leaves, total = torch.zeros(1, dtype=torch.int32, device=device), torch.empty_like(pattern).float()
    end, done, longest = time.monotonic() + seconds, 0, 0.0
    try:
        while not int(leaves):
            values = (pattern + comm.rank + done % 7).float()
            synchronize(device)
            begin = time.monotonic()
            comm.all_reduce(values, total).wait(30)
            longest = max(longest, time.monotonic() - begin)
            expected = comm.size * (pattern + done % 7) + comm.size * (comm.size - 1) // 2
            if not bool((total == expected).all()):
                raise AssertionError(f"all-reduce {done}: a wrong sum")
            done += 1
            enough = min(done, breaks[0]) >= LEAST or time.monotonic() > end + PATIENCE_S
            leaves.fill_(int(comm.rank == 0 and time.monotonic() > end and enough))
            synchronize(device)
            comm.all_reduce(leaves, lane="leave").wait(30)
    finally:
        stop.set()
        if comm.rank == 0:
            thread.join()
    return done, breaks[0], longest


def lose_the_peer(comm: Communicator, folder: str) -> tuple[str, str, float]:
    """Rank 1 is killed; what rank 0's operation ends with, and after how long."""
    import torch

    device = torch.device(comm.context.device)
    values = torch.ones(100_000, device=device)
    synchronize(device)
    for _ in range(20):
        comm.all_reduce(values, torch.empty_like(values)).wait(30)
    if comm.rank == 0:
        touch(folder, "through")
    else:
        # What it has not sent yet dies with it: not before rank 0 is through.
        deadline = time.monotonic() + 30
        while not (Path(folder) / "through").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        touch(folder, "running")
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            comm.all_reduce(values, torch.empty_like(values)).wait(30)
    except Exception as error:
        synchronize(device)  # nothing of ours stands on the GPU
        return type(error).__name__, str(error), time.monotonic() - begin
