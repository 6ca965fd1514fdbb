"""Goal: processes read large messages out of each other's buffers if all of them may, and none if one may not; a
sender that dies before its message was read is an error.

Method: two processes that meet through STARLING_JOB; how many instructions an all_gather took tells slots from
buffers, because a tile that is read from a buffer is larger than a slot.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BOUND_S = 200.0
TILE_BYTES = 1 << 18
BARRIER = 2  # instructions: send, receive and reduce

GATHER = """
import numpy as np, starling
comm = starling.Communicator(timeout=150)
part = np.arange(1 << 18, dtype="float32") + comm.rank
whole = np.zeros((2, part.size), "float32")
before = comm.context.statistics().instructions
comm.all_gather(part, whole, algorithm="all_pairs_pull", lane="gather").wait(150)
assert (whole == [part - comm.rank, part - comm.rank + 1]).all()
comm.barrier(lane="end").wait(150)
print(comm.context.statistics().instructions - before)
"""

DEATH = """
import os, time, numpy as np, starling
comm = starling.Communicator(timeout=150)
message = np.ones(1 << 18, "float32")
process = np.array([os.getpid() if comm.rank == 1 else 0], "int64")
if comm.rank == 1:
    comm.send(message, 0)
    comm.all_reduce(process, lane="sent").wait(150)
    os._exit(1)
comm.all_reduce(process, lane="sent").wait(150)
state = "R"
while state not in "ZX":  # until it has no memory any more; its parent waits for it later
    time.sleep(0.01)
    state = open(f"/proc/{process[0]}/stat").read().rpartition(") ")[2][0]
try:
    comm.recv(message, 1).wait(150)
    print("received")
except starling.errors.PeerFailedError as error:
    print(error)
"""


def run(program: str, folder: Path, pulls: tuple[str, str]) -> list[str]:
    """What the two ranks print."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=dict(
                os.environ,
                RANK=str(rank),
                WORLD_SIZE="2",
                STARLING_JOB=f"pulled {folder}",
                STARLING_PULL=pulls[rank],
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [rank.communicate(timeout=BOUND_S)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def may_read_a_sibling() -> bool:
    """What the library asks of the kernel too: Yama's ptrace_scope forbids it, to all but root."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as sibling:
        looks = subprocess.run(
            [sys.executable, "-c", f"open('/proc/{sibling.pid}/mem', 'rb')"], capture_output=True
        )
        assert sibling.stdin is not None
        sibling.stdin.close()
    return looks.returncode == 0


def test_large_parts_are_read_where_they_lie(tmp_path: Path) -> None:
    if not may_read_a_sibling():
        pytest.skip("the kernel lets no process read another one's memory")
    # The own part is copied, the other one offered and read: three instructions a tile.
    tiles = (4 << 18) // TILE_BYTES
    assert run(GATHER, tmp_path, ("1", "1")) == [str(3 * tiles + BARRIER)] * 2


def test_one_rank_that_may_not_is_enough_for_slots(tmp_path: Path) -> None:
    counts = run(GATHER, tmp_path, ("1", "0"))
    assert counts == run(GATHER, tmp_path, ("0", "0"))
    assert int(counts[0]) > 3 * (4 << 18) // TILE_BYTES + BARRIER


def test_a_sender_that_died_is_named(tmp_path: Path) -> None:
    assert "rank 1 (process" in run(DEATH, tmp_path, ("1", "1"))[0]
