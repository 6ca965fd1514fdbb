"""Ranks of a measurement as processes, one a GPU: started, watched, ended, and their last words told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def run(command: list[str], ranks: int, folder: Path, timeout_s: float, look: Callable[[], None]) -> str:
    """Runs ``command --rank R`` for each rank; ``look`` is called meanwhile, and at the end.

    What went wrong, "" if nothing did: one that fails, or the end of the time, ends all.
    """
    processes: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + timeout_s
    try:
        _start(command, ranks, folder, processes)
        while True:
            codes = [process.poll() for process in processes]
            look()
            if all(code is not None for code in codes):
                break
            if any(code not in (None, 0) for code in codes) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        codes = [process.poll() for process in processes]
    finally:
        _end(processes)
    if all(code == 0 for code in codes):
        return ""
    texts = [(folder / f"log.{rank}").read_text(errors="replace")[-1500:] for rank in range(ranks)]
    return f"exit codes {codes}: " + " | ".join(
        f"rank {rank}: {text.strip()}" for rank, text in enumerate(texts)
    )


def _start(command: list[str], ranks: int, folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Into ``processes``, one by one: who is told to end meanwhile has those that are there."""
    environment = {
        **os.environ,
        "CUDA_MODULE_LOADING": "EAGER",
        "NCCL_NVLS_ENABLE": "0",
        "OMP_NUM_THREADS": "1",
    }
    for rank in range(ranks):
        with (folder / f"log.{rank}").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [*command, "--rank", str(rank)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)


def reported(folder: Path, ranks: int) -> Iterator[tuple[dict[str, Any], ...]]:
    """Of each line that all ranks have written whole to their `results.RANK`: what it says, by rank."""
    reports = []
    for rank in range(ranks):
        path = folder / f"results.{rank}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        reports.append([json.loads(text) for text in lines])
    return zip(*reports, strict=False)
