"""Ranks for tests: processes that stay, so that a test costs no import of torch.

``run(function, *arguments)`` calls ``function(*arguments)`` on every rank at once and raises what any rank raised.
The default group is ``starling``; ``reference_group()`` is gloo over the same ranks (backend None: no groups). A call
that takes longer than its bound, or kills a rank, ends the pool: the next call starts a new one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

# Far above what anything takes: they end what hangs.
GROUP_TIMEOUT_S = 200
CALL_TIMEOUT_S = 250
AFTER_FAILURE_S = 15


class RankError(AssertionError):
    pass


class RankPool:
    def __init__(self, size: int, backend: str | None = "starling") -> None:
        self.size = size
        self._backend = backend
        self._ranks: list[tuple[Any, Connection]] = []

    def run(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float = CALL_TIMEOUT_S
    ) -> list[Any]:
        """The results of all ranks."""
        if not self._ranks:
            self._start()
        place = (sys.modules[function.__module__].__file__, function.__qualname__)
        for _, pipe in self._ranks:
            pipe.send((place, arguments))
        results = self._collect(timeout_s)
        failed = [f"rank {rank}: {text}" for rank, (good, text) in enumerate(results) if not good]
        if failed:
            self.close()
            raise RankError("\n".join(failed))
        return [value for _, value in results]

    def close(self) -> None:
        for _, pipe in self._ranks:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process, _ in self._ranks:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
        self._ranks = []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        folder = tempfile.mkdtemp(prefix="starling-test-")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            arguments = (rank, self.size, self._backend, f"{folder}/store", theirs)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    def _collect(self, timeout_s: float) -> list[tuple[bool, Any]]:
        """One answer a rank. After a failure the others, which may wait for that rank, get a short while only."""
        deadline = time.monotonic() + timeout_s
        results: dict[int, tuple[bool, Any]] = {}
        while len(results) < self.size:
            waiting = {pipe: rank for rank, (_, pipe) in enumerate(self._ranks) if rank not in results}
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = waiting[pipe]  # type: ignore[index]
                try:
                    results[rank] = pipe.recv()  # type: ignore[union-attr]
                except (EOFError, ConnectionResetError):
                    process = self._ranks[rank][0]
                    process.join(timeout=5)
                    results[rank] = (False, f"died with exit code {process.exitcode}")
                if not results[rank][0]:
                    deadline = min(deadline, time.monotonic() + AFTER_FAILURE_S)
        for rank, (process, _) in enumerate(self._ranks):
            if rank not in results:
                results[rank] = (
                    False,
                    f"no answer within {timeout_s:.0f} s, or {AFTER_FAILURE_S} s of a failure",
                )
                process.kill()
        return [results[rank] for rank in range(self.size)]


_reference: Any = None


def reference_group() -> Any:
    """gloo over all ranks, to compare with."""
    return _reference


def serve(rank: int, size: int, backend: str | None, store_path: str, pipe: Connection) -> None:
    """The life of one rank."""
    global _reference
    import torch
    import torch.distributed as dist

    import starling.torch  # noqa: F401 - registers the backend

    faulthandler.enable()
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    if backend is not None:
        store = dist.FileStore(store_path, size)
        timeout = timedelta(seconds=GROUP_TIMEOUT_S)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        _reference = dist.new_group(backend="gloo", timeout=timeout)
    modules: dict[str, Any] = {}
    while (call := pipe.recv()) is not None:
        (path, name), arguments = call
        try:
            if path not in modules:
                modules[path] = _load(path)
            function = modules[path]
            for part in name.split("."):
                function = getattr(function, part)
            pipe.send((True, function(*arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    if dist.is_initialized():
        dist.destroy_process_group()


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"on_ranks_{Path(path).stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
