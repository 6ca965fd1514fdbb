"""Goal: a plan's tiles are as large as it says, where memory allows, and results are right whatever they are.

Method: a daemon counts its instructions, so tiles are counted by calls on threads and processes, of algorithms by name
and of compiled programs; the simulator and preempted threads check results of many programs in small tiles.
"""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from starling.plans import program

from programs.cases import NAMES, NODED, make
from programs.running import HASTY, run_all
from programs.test_simulated import origins_of
from starling import Communicator, errors, ir
from starling.launch import run_processes, run_threads
from starling.sim import engine

KIB = 1024


def instructions(comm: Communicator, algorithm: str, size_bytes: int) -> int:
    """How many a rank executes for one all_reduce, which must be right."""
    data = np.arange(size_bytes // 4, dtype=np.int32) + comm.rank
    out = np.zeros_like(data)
    before = comm.context.statistics().instructions
    comm.all_reduce(data, out, algorithm=algorithm).wait(60)
    found = comm.context.statistics().instructions - before
    np.testing.assert_array_equal(out, 2 * np.arange(size_bytes // 4) + 1)
    comm.barrier().wait(60)
    return found


def count_tiles(comm: Communicator) -> dict[str, float]:
    made = program("all_reduce", "two_shot", 2)
    made.name, made.tile_bytes = "own", 4 * KIB
    comm.add_plan(made)
    length = len(made.compile().ranks[0].blocks[0].instructions)
    steps = {name: instructions(comm, name, 4) for name in ("two_shot", "two_shot_packets", "two_shot_pull")}
    found = {"own": instructions(comm, "own", 256 * KIB) / length}
    for name, size in (
        ("two_shot", 256), ("two_shot@4096", 256), ("two_shot@4112", 256), ("two_shot@1048576", 256),
        ("two_shot_packets", 16), ("two_shot_packets@64", 16), ("two_shot_packets@1048576", 16),
        ("two_shot_pull", 4096), ("two_shot_pull@65536", 4096), ("two_shot_pull@1048576", 4096),
    ):  # fmt: skip
        found[name] = instructions(comm, name, size * KIB) / steps[name.split("@")[0]]
    return found


def test_a_chunk_goes_in_tiles_of_the_size_that_is_named() -> None:
    """Two ranks, one block: chunks are half the buffer. Slots have 64 KiB, packets 256 bytes, what is read 256 KiB."""
    for found in run_threads(2, count_tiles, context={"blocks": 1}, timeout=200):
        assert found == {
            "own": 32,
            "two_shot": 2, "two_shot@4096": 32, "two_shot@4112": 32, "two_shot@1048576": 2,
            "two_shot_packets": 32, "two_shot_packets@64": 128, "two_shot_packets@1048576": 32,
            "two_shot_pull": 8, "two_shot_pull@65536": 32, "two_shot_pull@1048576": 2,
        }  # fmt: skip


def gather(comm: Communicator) -> None:
    """Between processes a block copies out of another's memory, in tiles of any size."""
    for tile, length in (("", 300_000), ("@16", 300), ("@4096", 300_000), ("@1048576", 300_000)):
        parts = [np.arange(length, dtype=np.int32) * (r + 1) for r in range(comm.size)]
        whole = np.zeros(comm.size * length, np.int32)
        comm.all_gather(parts[comm.rank], whole, algorithm=f"all_pairs_pull{tile}").wait(60)
        np.testing.assert_array_equal(whole, np.concatenate(parts), err_msg=tile)
    with pytest.raises(errors.InvalidArgumentError, match="multiple of 16"):
        comm.all_gather(parts[comm.rank], whole, algorithm="ring@24")


def test_processes_read_in_tiles() -> None:
    run_processes(3, gather, timeout=200)


def differing(comm: Communicator) -> None:
    data = np.zeros(64, np.float32)
    with pytest.raises(errors.MismatchError, match="all_reduce"):
        comm.all_reduce(data, data.copy(), algorithm=f"ring@{16 << comm.rank}").wait(30)


def test_ranks_whose_tiles_differ_are_told() -> None:
    run_threads(2, differing, timeout=200, check=False)


@pytest.mark.parametrize(
    ("ranks", "blocks", "protocol", "tile_bytes"),
    [(3, 2, "slots", 208), (4, 1, "slots", 528), (4, 3, "packets", 112), (4, 4, "pull", 528)],
)
def test_preempted_in_any_order(ranks: int, blocks: int, protocol: str, tile_bytes: int) -> None:
    parks = run_threads(
        ranks,
        partial(run_all, seed=7, blocks=blocks, protocol=protocol, tile_bytes=tile_bytes),
        context={"blocks": blocks, "scheduling": HASTY},
        timeout=280,
        operation_timeout=250,
    )
    assert sum(parks) > 0, "nothing was ever preempted; the test proves little"


@pytest.mark.parametrize("protocol", ["slots", "packets", "pull"])
def test_in_the_simulator(protocol: str) -> None:
    draw = random.Random(protocol)
    plans = []
    for collective, name in NAMES:
        if name in NODED:
            continue
        made = make(collective, name, 3, 2)
        made.protocol = protocol
        try:
            plans.append(made.compile(blocks=2))
        except ValueError:
            continue  # it cannot travel so
    assert len(plans) > 5

    def runs() -> engine.PlanRuns:
        return engine.PlanRuns([ir.to_text(plan) for plan in plans], [origins_of(plan) for plan in plans])

    whole = runs()
    for plan in plans:
        plan.tile_bytes = draw.choice((16, 48, 208, 1024))
    tiled = runs()
    more = 0
    for seed in range(7_000_000, 7_000_006):
        report = tiled.run(1000, 2, seed)
        assert not report.failure, f"seed {seed}: {report.failure}"
        assert report.operations == 3 * len(plans) * 2
        more += report.instructions - whole.run(1000, 2, seed).instructions
    assert more > 1000, "the tiles were not smaller"


class Counting(random.Random):
    """One instruction at a time; how many, and some attempts more."""

    attempts = 0

    def choice(self, seq: Any) -> int:
        self.attempts += 1
        return 1


def test_interpreted() -> None:
    """The definition of what plans mean knows tiles, too: smaller ones are more messages."""
    plan = program("all_reduce", "ring", 2).compile()
    given = [np.arange(40, dtype=np.int32), np.ones(40, np.int32)]
    counts = []
    for plan.tile_bytes in (0, 32, 16):
        schedule = Counting(1)
        for out in ir.run(plan, given, counts=40, data_type="int32", schedule=schedule):
            np.testing.assert_array_equal(out, given[0] + given[1])
        counts.append(schedule.attempts)
    assert counts[0] < counts[1] < counts[2]
