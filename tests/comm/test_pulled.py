"""Goal: processes read large messages out of each other's buffers if all of them may and it was faster when they
joined, or all are told to, and none if one may not; a sender that dies before its message was read is an error.

Method: two processes that meet through STARLING_JOB; how many instructions an all_gather took tells slots from
buffers, because a tile that is read from a buffer is larger than a slot.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
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

# Prints how large messages go, and how many instructions one took that was not told its algorithm; for two groups.
CHOICE = """
import numpy as np, starling
context = starling.Context()
for name in ("world", "again"):
    earlier = context.statistics().submissions
    comm = starling.Communicator(context, name=name, timeout=150)
    timing = context.statistics().submissions - earlier
    part, whole = np.ones(1 << 17, "float32"), np.zeros((comm.size, 1 << 17), "float32")
    before = context.statistics().instructions
    comm.all_gather(part, whole, lane="gather").wait(150)
    assert (whole == 1).all()
    comm.barrier(lane="end").wait(150)
    found = comm.large_messages
    instructions = context.statistics().instructions - before
    print(found.read, found.slots_us, found.read_us, timing > 0, instructions)
"""

# Rank 1 dies when it has joined: while the other one waits for it to time how large messages go.
DEATH_AT_TIMING = """
import os, sys, starling
class Store(starling.stores.FileStore):
    def get(self, key, timeout):
        value = super().get(key, timeout)
        if key.endswith("complete/0"):
            os._exit(1)
        return value
try:
    rank = int(os.environ["RANK"])
    starling.Communicator(rank=rank, size=2, store=Store({folder!r}), timeout=150)
    print("joined")
except starling.errors.PeerFailedError as error:
    print(error)
"""

# Addresses of two processes are often the same number, after a fork for one.
SAME_ADDRESS = """
import ctypes, mmap, numpy as np, starling
ANYWHERE, FIXED, BYTES = 0x6A0000000000, 0x100000, 1 << 20  # MAP_FIXED_NOREPLACE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED
at = libc.mmap(ANYWHERE, BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
assert at == ANYWHERE, ctypes.get_errno()
message = np.frombuffer((ctypes.c_uint8 * BYTES).from_address(at), "uint8")
comm = starling.Communicator(timeout=150)
message[:] = np.arange(BYTES) * 3 + comm.rank
before = comm.context.statistics().instructions
(comm.send(message, 1) if comm.rank == 0 else comm.recv(message, 0)).wait(150)
print((message == (np.arange(BYTES) * 3).astype("uint8")).all(), comm.context.statistics().instructions - before)
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


def run(program: str, folder: Path, pulls: Sequence[str]) -> list[str]:
    """What the ranks print, one for each value of STARLING_PULL."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=dict(
                os.environ,
                RANK=str(rank),
                WORLD_SIZE=str(len(pulls)),
                STARLING_JOB=f"pulled {folder}",
                STARLING_PULL=pulls[rank],
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(len(pulls))
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


def test_what_lies_at_the_same_address_is_read_too(tmp_path: Path) -> None:
    if not may_read_a_sibling():
        pytest.skip("the kernel lets no process read another one's memory")
    tiles = (1 << 20) // TILE_BYTES
    assert run(SAME_ADDRESS, tmp_path, ("1", "1")) == [f"True {tiles}"] * 2


def test_one_rank_that_may_not_is_enough_for_slots(tmp_path: Path) -> None:
    counts = run(GATHER, tmp_path, ("1", "0"))
    assert counts == run(GATHER, tmp_path, ("0", "0"))
    assert int(counts[0]) > 3 * (4 << 18) // TILE_BYTES + BARRIER


def ways(folder: Path, pulls: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Of a job: [read, slots_us, read_us, timed now] of its groups, and how many instructions its gathers took."""
    ranks = run(CHOICE, folder, pulls)
    assert ranks == [ranks[0]] * len(pulls)  # all ranks know the same
    lines = [line.split() for line in ranks[0].splitlines()]
    return [line[:4] for line in lines], [line[4] for line in lines]


def test_what_was_faster_when_the_ranks_joined_is_done(tmp_path: Path) -> None:
    if not may_read_a_sibling():
        pytest.skip("the kernel lets no process read another one's memory")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("reading is for ranks that have a core each")
    read_ways, read = ways(tmp_path, ("1", "1"))
    slots_ways, slots = ways(tmp_path, ("0", "0"))
    assert read_ways == [["True", "None", "None", "False"]] * 2
    assert slots_ways == [["False", "None", "None", "False"]] * 2
    assert read[0] != slots[0]
    for pulls in (("auto", "auto"), ("auto", "1"), ("1", "auto")):
        groups, instructions = ways(tmp_path, pulls)
        for (reads, slots_us, read_us, _), count in zip(groups, instructions, strict=True):
            # Where others want the cores nothing can be said: then slots.
            assert (reads == "True") == (slots_us != "None" and float(read_us) < float(slots_us))
            assert count == (read if reads == "True" else slots)[0]
        first, second = groups
        assert first[3] == "True"
        assert second[3] == str(first[1] == "None")  # once it was found out, nobody times again
        assert second[:3] == first[:3] or first[1] == "None"


def test_one_rank_that_never_reads_is_enough_to_time_nothing(tmp_path: Path) -> None:
    for pulls in (("auto", "0"), ("0", "auto"), ("1", "0")):
        assert ways(tmp_path, pulls)[0] == [["False", "None", "None", "False"]] * 2


def test_ranks_that_share_cores_time_nothing(tmp_path: Path) -> None:
    ranks = (os.cpu_count() or 1) + 1
    assert ways(tmp_path, ("auto",) * ranks)[0] == [["False", "None", "None", "False"]] * 2


def test_a_rank_that_dies_before_anything_was_timed_is_named(tmp_path: Path) -> None:
    if not may_read_a_sibling():
        pytest.skip("the kernel lets no process read another one's memory")
    program = DEATH_AT_TIMING.format(folder=str(tmp_path))
    assert "rank 1 (process" in run(program, tmp_path, ("auto", "auto"))[0]


def test_a_sender_that_died_is_named(tmp_path: Path) -> None:
    assert "rank 1 (process" in run(DEATH, tmp_path, ("1", "1"))[0]
