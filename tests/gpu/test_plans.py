"""Goal: programs of the language run on GPUs, preempted all the time, and give right results; a program of one's own is
taken by name, by size, out of a table, and from PyTorch.

Method: all programs of plans/ are lanes of one communicator; every rank submits them in an order of its own, from the
CPU and on a stream, with budgets of one poll and device synchronizations between. Two ranks have a GPU each; four and
six are threads that share GPUs.
"""

import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from starling.plans import program

from gpu import gpus
from programs.own import neighbours
from programs.running import HASTY, plans_for, run_all
from starling import Communicator, errors, ir

pytestmark = pytest.mark.gpu
OF_THE_PAPER = {
    "all_reduce_ring_0",
    "all_reduce_two_shot_0",
    "all_reduce_hierarchical_0",
    "all_to_all_two_step_0",
    "all_to_next_spread_0",
}
SCRIPT = Path(__file__).with_name("torch_plans.py")


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("machine", "ranks", "blocks", "protocol"),
    [
        ("processes", 2, 4, "slots"),
        ("threads", 2, 8, "packets"),
        ("threads", 4, 2, "slots"),
        ("threads", 4, 3, "packets"),
        ("threads", 4, 4, "pull"),
        ("threads", 6, 2, "slots"),
    ],
)
def test_preempted_in_any_order(machine: str, ranks: int, blocks: int, protocol: str) -> None:
    if machine == "processes":
        gpus.skip_unless(ranks)
    seed = random.SystemRandom().randrange(2**32)
    names = {plan.name for plan in plans_for(ranks, blocks, protocol)}
    assert names >= OF_THE_PAPER, names
    parks = gpus.MACHINES[machine].run(
        ranks,
        partial(run_all, seed=seed, blocks=blocks, protocol=protocol, rounds=4),
        context={"blocks": blocks, "scheduling": HASTY},
        timeout=120,
        operation_timeout=60,
    )
    assert sum(parks) > 0, "nothing was ever preempted; the test proves little"


def taken(comm: Communicator, lane: str, count: int) -> bool:
    """Whether rank 0 takes a plan here that the others do not know: plans that differ are refused, on all ranks."""
    import torch

    data = torch.ones(count, device=comm.context.device)
    torch.cuda.synchronize()
    try:
        comm.all_reduce(data, torch.empty_like(data), lane=f"{lane} {count}").wait(30)
    except errors.MismatchError:
        return True
    return False


def chosen(comm: Communicator, path: str) -> tuple[list[bool], list[bool]]:
    """By the range of sizes that it was added for, then by a table."""
    if comm.rank == 0:
        comm.add_plan(program("all_reduce", "ring", comm.size), sizes=(64, 4096))
        plan = program("all_reduce", "ring", comm.size, instances=2).compile(blocks=2)
        plan.name = "mine"
        lines = [f"| {line}" for line in ir.to_text(plan).splitlines()]
        rows = ["  to 16384 all_reduce separate plain built_in one_shot_packets 1"]
        rows.append("  to 65536 all_reduce separate plain plan mine")
        text = "\n".join(["starling-table 1", f"topology {comm.topology}", *rows, "plan mine", *lines])
        Path(path).write_text(text + "\n")
    by_size = [taken(comm, "added", count) for count in (4, 16, 1024, 1025)]
    if comm.rank == 0:
        assert comm.use_table(path) == 2
    by_table = [taken(comm, "table", count) for count in (4096, 8192, 16384, 65536)]
    return by_size, by_table


@pytest.mark.timeout(90)
def test_a_plan_is_chosen_by_size_and_by_a_table(tmp_path: Path) -> None:
    rank = partial(chosen, path=str(tmp_path / "table.txt"))
    results = gpus.MACHINES["threads"].run(2, rank, context={"blocks": 8}, timeout=80, operation_timeout=20)
    for by_size, by_table in results:
        assert by_size == [False, True, True, False]
        assert by_table == [
            True,
            True,
            True,
            False,
        ]  # 16 KB: the library takes eight blocks; above 64 KB: no row


def custom(comm: Communicator) -> None:
    """Of a collective of one's own the stream's earlier work is an input, and the later work sees the output."""
    import torch

    torch.cuda.set_device(comm.context.device)
    comm.add_plan(neighbours(comm.size))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for count in (1, 3000, 1_000_000):
            for k in range(20):
                data = torch.arange(count, device=comm.context.device) % 1000 + comm.rank + k
                out = torch.full_like(data, -1)
                comm.run_plan("neighbours", data, out, stream=stream, hold=True)
                seen = out - 2 * k
                wanted = 2 * (data - comm.rank - k) + comm.rank + (comm.rank + 1) % comm.size
                stream.synchronize()  # what copies to pageable memory from a stream that stands stops launches
                assert torch.equal(seen, wanted), (count, k, seen[:8], wanted[:8])


@pytest.mark.timeout(90)
@pytest.mark.parametrize("ranks", (2, 4))
def test_a_custom_collective_on_a_stream(ranks: int) -> None:
    gpus.MACHINES["threads"].run(ranks, custom, context={"blocks": 4}, timeout=80, operation_timeout=20)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("name", ("results", "disorder", "named", "all_to_next"))
def test_through_pytorch(name: str, ranks: int) -> None:
    gpus.skip_unless(ranks)
    command = [sys.executable, str(SCRIPT), str(ranks), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
