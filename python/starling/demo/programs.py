"""DFCCL section 6.1's two programs, as every rank runs them.

Program 1: eight ranks launch the same eight all-reduces (256 B to 1 MB), each rank in a random order of its own.
Program 2: with a device synchronization between the launches.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from starling import timeline
from starling.comm import Communicator, wait_all

SIZES_BYTES = (256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576)


@dataclass(frozen=True)
class Program:
    """One run. `synchronize_every` 0: program 1. `latin`: at every launch position all ranks have different
    collectives, so the first launches are enough for a deadlock."""

    iterations: int
    synchronize_every: int = 0
    latin: bool = False
    seed: int = 1


@dataclass
class State:
    """Where a rank is; written to its file when it ends, or when the time is up."""

    rank: int
    finished: bool = False
    iterations: int = 0
    wrong: int = 0
    seconds: float = 0
    doing: str = "starting"
    launched: list[str] | None = None  # of the iteration at hand, in order


def lane_of(collective: int) -> str:
    return f"all-reduce {collective}"


def order_of(program: Program, rank: int, iteration: int) -> list[int]:
    """The launch order of a rank's own."""
    count = len(SIZES_BYTES)
    if program.latin:
        return [(rank + iteration + position) % count for position in range(count)]
    order = list(range(count))
    random.Random(f"{program.seed} {rank} {iteration}").shuffle(order)
    return order


def run_rank(program: Program, folder: str, limit_s: float, communicator: Communicator) -> dict[str, Any]:
    """The body of a rank. A watcher writes the rank's state at the limit, as a rank that hangs cannot, and ends the
    process when all ranks have written theirs: an earlier end would be seen by the others."""
    state = State(communicator.rank)
    done = threading.Event()

    def watch() -> None:
        if done.wait(limit_s):
            return
        _write(state, folder, communicator)
        while len(list(Path(folder).glob("rank.*.json"))) < communicator.size:
            time.sleep(0.05)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    start = time.monotonic()
    for iteration in range(program.iterations):
        _iterate(program, state, communicator, iteration)
    state.seconds = time.monotonic() - start
    state.finished = True
    state.doing = "finished"
    done.set()
    _write(state, folder, communicator)
    return asdict(state)


def _iterate(program: Program, state: State, communicator: Communicator, iteration: int) -> None:
    rank, size = communicator.rank, communicator.size
    inputs = [_values(nbytes // 4, rank + iteration) for nbytes in SIZES_BYTES]
    outputs = [np.full_like(values, -1) for values in inputs]
    requests = []
    state.launched = []
    for position, k in enumerate(order_of(program, rank, iteration), start=1):
        state.doing = f"launching {lane_of(k)}"
        requests.append(communicator.all_reduce(inputs[k], outputs[k], lane=lane_of(k)))
        state.launched.append(lane_of(k))
        if program.synchronize_every and position % program.synchronize_every == 0:
            state.doing = f"device synchronization after {lane_of(k)}"
            communicator.context.synchronize()
    state.doing = "waiting for its collectives"
    wait_all(requests)
    for output in outputs:
        expected = sum(_values(output.size, other + iteration) for other in range(size))
        state.wrong += int(np.count_nonzero(output != expected))
    state.iterations += 1


def _values(count: int, seed: int) -> Any:
    return ((np.arange(count) + seed) % 13).astype(np.float32)


def _write(state: State, folder: str, communicator: Communicator) -> None:
    facts = {
        "state": asdict(state),
        "statistics": asdict(communicator.context.statistics()),
        "events": [asdict(event) for event in timeline.of_context(communicator.context, state.rank)],
    }
    path = Path(folder) / f"rank.{state.rank}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(facts))
    draft.rename(path)
