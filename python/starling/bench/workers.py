"""Groups of benchmark processes that sleep until they are told what to measure.

Every rank reads commands from a named pipe of its own and answers into one that all share (``bench/worker.h``). The
groups of several libraries are alive together and are measured in turns, so what disturbs the machine disturbs all.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Reply = dict[str, Any]
LEAVE_S = 5  # all ranks together, before they are ended


class WorkerError(RuntimeError):
    """A worker died, failed or did not answer in time."""


@dataclass(frozen=True)
class Launch:
    """One process to start; `environment` is added to ours."""

    command: Sequence[str]
    environment: dict[str, str]


class WorkerGroup:
    """N ranks of one library, reachable by commands. Use as a context manager."""

    def __init__(
        self,
        name: str,
        size: int,
        launches: Callable[[Path], list[Launch]],
        *,
        folder: Path | None = None,
        timeout_s: float = 60,
    ) -> None:
        """`launches` gets the folder of the pipes. One launch may start all ranks (mpirun). `folder`: an agreed
        place, where ranks that others start find the pipes; else a new one."""
        self.name = name
        self.size = size
        self.timeout_s = timeout_s
        self._own_folder = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix=f"starling-bench-{name.replace(':', '-')}-"))
        self._buffer = b""
        self._commands: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._replies = -1
        self._log = (self._folder / "log").open("w+b")
        try:
            self._open_pipes()
            for launch in launches(self._folder):
                self._processes.append(
                    subprocess.Popen(
                        launch.command,
                        env={**os.environ, **launch.environment},
                        stdin=subprocess.DEVNULL,
                        stdout=self._log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            self._collect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def ask(self, verb: str, *, timeout_s: float | None = None, **values: object) -> list[Reply]:
        """Sends one command to all ranks; their replies by rank. A reply ``error`` raises."""
        self.send(range(self.size), verb, **values)
        return self.collect(timeout_s)

    def send(self, ranks: Sequence[int], verb: str, **values: object) -> None:
        line = " ".join([verb, *(f"{key}={value}" for key, value in values.items())]) + "\n"
        for rank in ranks:
            os.write(self._commands[rank], line.encode())

    def collect(self, timeout_s: float | None = None) -> list[Reply]:
        return self._collect(timeout_s)

    def close(self) -> None:
        """Asks all to leave, then ends those that did not."""
        with contextlib.suppress(OSError):
            self.send(range(len(self._commands)), "quit")
        until = time.monotonic() + LEAVE_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(until - time.monotonic(), 0))
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for descriptor in [*self._commands, self._replies]:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._commands = []
        self._log.close()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open_pipes(self) -> None:
        # Opened for both directions, so that opening waits for nobody.
        replies = self._folder / "replies"
        for path in [replies, *(self._folder / f"commands.{rank}" for rank in range(self.size))]:
            if not path.exists():
                os.mkfifo(path)
        self._replies = os.open(replies, os.O_RDWR | os.O_NONBLOCK)
        self._commands = [
            os.open(self._folder / f"commands.{rank}", os.O_RDWR | os.O_CLOEXEC) for rank in range(self.size)
        ]

    def _collect(self, timeout_s: float | None = None) -> list[Reply]:
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        replies: dict[int, Reply] = {}
        while len(replies) < self.size:
            line = self._line(deadline, replies)
            reply = json.loads(line)
            if "error" in reply:
                raise WorkerError(f"{self.name}, rank {reply['rank']}: {reply['error']}")
            replies[reply["rank"]] = reply
        return [replies[rank] for rank in range(self.size)]

    def _line(self, deadline: float, replies: dict[int, Reply]) -> bytes:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                missing = sorted(set(range(self.size)) - set(replies))
                raise WorkerError(f"{self.name}: no answer from ranks {missing} in time{self._last_words()}")
            readable, _, _ = select.select([self._replies], [], [], min(left, 0.5))
            if readable:
                self._buffer += os.read(self._replies, 1 << 16)
            elif any(process.poll() is not None for process in self._processes):
                codes = [process.poll() for process in self._processes]
                raise WorkerError(f"{self.name}: a process left, exit codes {codes}{self._last_words()}")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _last_words(self) -> str:
        self._log.flush()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return f"; its last words: {text[-1500:]}" if text else ""
