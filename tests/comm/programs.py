"""DFCCL §6.1's two programs: the rank's side, importable by its processes."""

import random

import numpy as np
import numpy.typing as npt

from starling import Communicator

COUNTS = [size // 4 for size in (256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576)]
RANKS = 8

Array = npt.NDArray[np.float32]


def random_order(iteration: int, rank: int, seed: int) -> list[int]:
    """An order of this rank's own."""
    return random.Random(seed * 1_000_003 + iteration * 1009 + rank).sample(range(len(COUNTS)), len(COUNTS))


def latin_order(iteration: int, rank: int, seed: int) -> list[int]:
    """Every launch position has a different collective on each of eight ranks."""
    names = random.Random(seed * 1_000_003 + iteration).sample(range(len(COUNTS)), len(COUNTS))
    return [names[(position + rank) % len(names)] for position in range(len(names))]


ORDERS = {"random": random_order, "latin": latin_order}


def disordered(
    comm: Communicator,
    order: str,
    iterations: int,
    synchronize_every: int,
    seed: int,
    timeout_s: float | None = None,
    first: int = 0,
) -> dict[str, int]:
    """Eight all-reduces an iteration, launched in an order of this rank's own; every element of each is checked.

    synchronize_every: a device synchronization after so many submissions; 0: none. Returns the rank's counters.
    timeout_s: of every operation once all have joined; None: as it is. first: the number of the first iteration.
    """
    if timeout_s is not None:
        comm.set_timeout(timeout_s)
    patterns = [(np.arange(count) % 31).astype(np.float32) for count in COUNTS]
    inputs: list[Array] = [np.empty(count, np.float32) for count in COUNTS]
    outputs: list[Array] = [np.empty(count, np.float32) for count in COUNTS]
    ranks = comm.size
    for iteration in range(first, first + iterations):
        requests = {}
        for submitted, which in enumerate(ORDERS[order](iteration, comm.rank, seed), 1):
            np.add(patterns[which], iteration % 100 + which + comm.rank, out=inputs[which])
            outputs[which].fill(-1)
            requests[which] = comm.all_reduce(inputs[which], outputs[which], lane=f"gradient {which}")
            if synchronize_every and submitted % synchronize_every == 0:
                comm.context.synchronize()
        for which, request in requests.items():
            request.wait(250)
            expected = ranks * (patterns[which] + (iteration % 100 + which)) + ranks * (ranks - 1) // 2
            if not np.array_equal(outputs[which], expected):
                wrong = int(np.flatnonzero(outputs[which] != expected)[0])
                raise AssertionError(
                    f"iteration {iteration}, all-reduce {which}, element {wrong}: {outputs[which][wrong]}, not "
                    f"{expected[wrong]}"
                )
    return vars(comm.context.statistics())
