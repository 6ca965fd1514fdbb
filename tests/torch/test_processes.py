"""Goal: whole programs behave: torchrun finds ranks, a program that forgets to destroy its groups ends, one whose
rank fails or dies takes the others down with an error, and nothing stays behind in /dev/shm. Method: scripts under
torchrun or as plain processes, bounded in time."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, sys, threading, time
from datetime import timedelta
import torch, torch.distributed as dist
import starling.torch
torch.set_num_threads(1)
"""

TORCHRUN = (
    PRELUDE
    + """
dist.init_process_group("starling")
total = torch.ones(1000)
dist.all_reduce(total)
assert total[0].item() == dist.get_world_size()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} done")
"""
)

# torchrun's store outlives the groups, and they have the same names every time. Some groups do nothing at all: nobody
# waits for anybody else between two of them.
AGAIN = (
    PRELUDE
    + """
for generation in range(6):
    dist.init_process_group("starling", timeout=timedelta(seconds=200))
    if generation % 2 == 0:
        total = torch.full((1000,), float(dist.get_rank() + generation))
        dist.all_reduce(total)
        assert total[0].item() == 1 + 2 * generation
        pair = dist.new_group([0, 1])
        dist.all_reduce(total, group=pair)
        assert total[0].item() == 2 + 4 * generation
        dist.group.WORLD.monitored_barrier(timeout=timedelta(seconds=200))
    if generation == 5 and dist.get_rank() == 0:  # the other one does not call it this time
        try:
            dist.group.WORLD.monitored_barrier(timeout=timedelta(seconds=1))
        except RuntimeError as error:
            assert "Rank 1 failed to pass" in str(error), error
        else:
            raise AssertionError("an earlier group's barrier was taken for this one's")
    dist.destroy_process_group()
print(f"rank {os.environ['RANK']} of 2 done")
"""
)

JOIN = (
    PRELUDE
    + """
rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = dist.FileStore(path, size)
dist.init_process_group("starling", store=store, rank=rank, world_size=size, timeout=timedelta(hours=1))
dist.barrier()
maps = open("/proc/self/maps").read().splitlines()
print("segments", *{line.split()[-1] for line in maps if "/dev/shm/starling." in line}, flush=True)
"""
)

FORGETFUL = (
    JOIN
    + """
work = dist.all_reduce(torch.ones(3), async_op=True)
"""
)

# Shards refer to their group until the very end.
SHARDED = (
    JOIN
    + """
from torch.distributed.fsdp import fully_shard

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
fully_shard(model)
model(torch.ones(1, 4)).sum().backward()
"""
)

FAILING = (
    JOIN
    + """
if rank == 1:
    raise ValueError("rank 1 has had enough")
dist.all_reduce(torch.ones(3))
"""
)

KILLED = (
    JOIN
    + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(torch.ones(3))
"""
)


# Rank 1 cannot make its context.
WITHOUT_CONTEXT = (
    """
import os, sys
if sys.argv[1] == "1":
    os.environ["STARLING_BLOCKS"] = "100000"
"""
    + JOIN
)

# Nor can it load the adapter.
WITHOUT_ADAPTER = (
    """
import os, sys
if sys.argv[1] == "1":
    os.environ["XDG_CACHE_HOME"] = "/dev/null"
"""
    + JOIN
)


def left_behind(outputs: list[str]) -> list[str]:
    """Of the segments that the ranks had mapped."""
    lines = [line.split()[1:] for output in outputs for line in output.splitlines() if "segments " in line]
    assert len(lines) == len(outputs) and all(lines), outputs
    return [name for names in lines for name in names if Path(name).exists()]


def run_ranks(tmp_path: Path, script: str, size: int = 3, timeout_s: float = 250) -> list[tuple[int, str]]:
    path = tmp_path / "program.py"
    path.write_text(script)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(path), str(rank), str(size), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    deadline = time.monotonic() + timeout_s
    try:
        outputs = [rank.communicate(timeout=max(1.0, deadline - time.monotonic()))[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


@pytest.mark.parametrize("script", [TORCHRUN, AGAIN], ids=["once", "again and again"])
def test_torchrun(tmp_path: Path, script: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "waitForInput" not in done.stderr  # the store's log of a wait that ended without an answer
    assert "rank 0 of 2 done" in done.stdout
    assert "rank 1 of 2 done" in done.stdout


@pytest.mark.parametrize("script", [FORGETFUL, SHARDED], ids=["under way", "sharded"])
def test_forgotten_group_ends_in_good_order(tmp_path: Path, script: str) -> None:
    results = run_ranks(tmp_path, script)
    for code, output in results:
        assert code == 0, output
    assert left_behind([output for _, output in results]) == []


@pytest.mark.parametrize("script", [FAILING, KILLED], ids=["failing", "killed"])
def test_a_lost_rank_fails_the_others(tmp_path: Path, script: str) -> None:
    """The others do not wait for their timeout, of an hour."""
    results = run_ranks(tmp_path, script)
    assert all(code != 0 for code, _ in results)
    for rank in (0, 2):
        assert "DistBackendError" in results[rank][1], results[rank][1]
        assert "rank 1" in results[rank][1]
    if script is FAILING:
        assert left_behind([output for _, output in results]) == []


# The store is lost with rank 0, which keeps it.
WITHOUT_STORE = (
    PRELUDE
    + """
rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if rank == 0:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with open(path + ".draft", "w") as file:
        file.write(str(store.port))
    os.rename(path + ".draft", path)
    while not store.check(["1 joins", "2 joins"]) or store.num_keys() < 4:  # and where they are
        time.sleep(0.01)
    os._exit(1)
while not os.path.exists(path):
    time.sleep(0.01)
store = dist.TCPStore("127.0.0.1", int(open(path).read()), is_master=False)
store.set(f"{rank} joins", "")
dist.init_process_group("starling", store=store, rank=rank, world_size=size, timeout=timedelta(hours=1))
"""
)


def test_a_lost_store_fails_the_ranks(tmp_path: Path) -> None:
    for code, output in run_ranks(tmp_path, WITHOUT_STORE)[1:]:
        assert code != 0
        assert "the store was lost while this rank waited" in output, output


@pytest.mark.parametrize(
    ("script", "reason"),
    [(WITHOUT_CONTEXT, "100000 blocks"), (WITHOUT_ADAPTER, "/dev/null/.*XDG_CACHE_HOME")],
    ids=["context", "adapter"],
)
def test_a_rank_that_cannot_come_tells_the_others(tmp_path: Path, script: str, reason: str) -> None:
    """They do not wait for their timeout, of an hour."""
    results = run_ranks(tmp_path, script)
    assert all(code != 0 for code, _ in results)
    assert re.search(reason, results[1][1]), results[1][1]
    for rank in (0, 2):
        assert re.search(f"rank 1 cannot join .*{reason}", results[rank][1], re.DOTALL), results[rank][1]


# Interrupts itself when the rank is in the C++ code that waits. Nobody joins it, or its collective.
INTERRUPTED = (
    PRELUDE
    + """
def when(there):
    def interrupt():
        while not there():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()

def submissions():
    return starling.torch.statistics()["submissions"]

def interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        return True
    return False

size = int(sys.argv[2])
store = dist.FileStore(sys.argv[3] + ".nobody", 2)
long = timedelta(hours=1)
when(lambda: "/dev/shm/starling." in open("/proc/self/maps").read())
assert interrupted(
    lambda: dist.init_process_group("starling", store=store, rank=0, world_size=2, timeout=long)
)
store = dist.FileStore(sys.argv[3], 2)
rank = int(sys.argv[1])
dist.init_process_group("starling", store=store, rank=rank, world_size=size, timeout=long)
dist.barrier()
if rank == 0:
    before = submissions()
    when(lambda: submissions() > before)
    assert interrupted(lambda: dist.all_reduce(torch.ones(3)))
    called = threading.Event()
    when(called.is_set)
    assert interrupted(lambda: [called.set(), dist.group.WORLD.monitored_barrier(timeout=long)])
else:
    try:
        dist.recv(torch.ones(3), 0)
    except dist.DistBackendError as error:
        assert "rank 0" in str(error), error
print("right")
"""
)


def test_ctrl_c_ends_every_wait(tmp_path: Path) -> None:
    """Of a rank that joins, waits for a collective, or is in a monitored barrier; with a timeout of an hour."""
    results = run_ranks(tmp_path, INTERRUPTED, size=2)
    for code, output in results:
        assert code == 0 and "right" in output, results


THREADS = """
import threading
from datetime import timedelta
import torch, torch.distributed as dist
from starling.torch import Options, _adapter

store, results = dist.HashStore(), [None] * 3

def rank(me):
    groups = []
    for name in ("first", "second"):
        options = Options()
        options._describe_group(name, [0, 1, 2], timedelta(seconds=200))
        groups.append(_adapter.load().create_backend(dist.PrefixStore(name, store), me, 3, options))
    total = torch.full((1000,), float(me + 1))
    for group in groups:
        group.allreduce([total]).wait()
    results[me] = total[0].item()
    for group in groups:
        group.shutdown()

threads = [threading.Thread(target=rank, args=(me,)) for me in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [18.0] * 3, results
"""


def test_ranks_that_are_threads(tmp_path: Path) -> None:
    """Ranks of one process get a context each; the groups of a rank share it."""
    [(code, output)] = run_ranks(tmp_path, THREADS, size=1)
    assert code == 0, output
