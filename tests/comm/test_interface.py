"""Goal: the Python interface takes what it says, refuses the rest with the remedy, and survives the end of a process.

Method: a group of one rank for arguments; small scripts in processes of their own for the end of the interpreter,
torchrun and mpirun.
"""

import _thread
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import starling
from starling import Communicator, Context, Scheduling, Send, environment, errors, launch
from starling.stores import FileStore, InProcessStore

F32 = np.float32


@pytest.fixture
def comm() -> Iterator[Communicator]:
    with Context() as context, Communicator(context, rank=0, size=1, store=InProcessStore()) as alone:
        yield alone


def read_only() -> np.ndarray:
    array = np.ones(4, F32)
    array.flags.writeable = False
    return array


def add_no_function(comm: Communicator) -> None:
    request = comm.recv(np.zeros(1), 0)
    try:
        request.add_done_callback(5)  # type: ignore[arg-type]
    finally:
        comm.send(np.zeros(1), 0).wait(100)


MISUSES: dict[str, tuple[type[Exception], str, Callable[[Communicator], Any]]] = {
    "no array": (TypeError, "numpy array", lambda c: c.all_reduce([1, 2])),
    "read-only output": (BufferError, "read-only", lambda c: c.all_reduce(np.ones(4, F32), read_only())),
    "read-only in place": (BufferError, "read-only", lambda c: c.all_reduce(read_only())),
    "part of read-only": (BufferError, "read-only", lambda c: c.all_gather(None, b"abc")),
    "bytes in place": (BufferError, "read-only", lambda c: c.reduce_scatter(b"abc")),
    "byte order": (TypeError, "native byte order", lambda c: c.all_reduce(np.ones(4, ">f8"))),
    "gaps": (BufferError, "contiguous", lambda c: c.all_reduce(np.ones(8, F32)[::2])),
    "complex": (ValueError, "data type", lambda c: c.all_reduce(np.ones(4, np.complex64))),
    "two types": (ValueError, "different data types", lambda c: c.all_reduce(np.ones(4), np.ones(4, F32))),
    "dtype name": (ValueError, "not supported", lambda c: c.all_reduce(np.ones(4), dtype="float8")),
    "dtype size": (ValueError, "view", lambda c: c.all_reduce(np.ones(4), dtype="bfloat16")),
    "lengths": (ValueError, "needs 4", lambda c: c.all_reduce(np.ones(4, F32), np.ones(5, F32))),
    "reduction": (ValueError, "use one of", lambda c: c.all_reduce(np.ones(4, F32), op="mean")),
    "band of floats": (NotImplementedError, "band", lambda c: c.all_reduce(np.ones(4, F32), op="band")),
    "avg of bool": (NotImplementedError, "avg", lambda c: c.all_reduce(np.ones(4, bool), op="avg")),
    "algorithm": (ValueError, "ring", lambda c: c.all_reduce(np.ones(4, F32), algorithm="square")),
    "root": (ValueError, "root 3", lambda c: c.broadcast(np.ones(4, F32), np.ones(4, F32), root=3)),
    "peer": (ValueError, "peer 9", lambda c: c.send(np.ones(4, F32), 9)),
    "no buffer": (ValueError, "pass a buffer", lambda c: c.all_reduce(None)),
    "no room for all": (ValueError, "all parts", lambda c: c.gather(np.ones(4))),
    "no parts": (ValueError, "all parts", lambda c: c.scatter(None, np.ones(4))),
    "all_gather into nothing": (ValueError, "all parts", lambda c: c.all_gather(np.ones(4), None)),
    "reduce_scatter of nothing": (ValueError, "all parts", lambda c: c.reduce_scatter(None, np.ones(4))),
    "no output": (ValueError, "output", lambda c: c.recv(None, 0)),
    "counts": (ValueError, "one entry a rank", lambda c: c.all_gather(np.ones(1), np.ones(2), counts=[1, 1])),
    "offsets": (ValueError, "without", lambda c: c.all_gather(np.ones(1), np.ones(1), offsets=[0])),
    "beyond": (
        ValueError,
        "counts and offsets need",
        lambda c: c.scatter(np.ones(2), np.ones(3), counts=[3]),
    ),
    "one side": (
        ValueError,
        "both input_counts and output_counts",
        lambda c: c.all_to_all(np.ones(1), np.ones(1), input_counts=[1]),
    ),
    "run unregistered": (ValueError, "register", lambda c: c.run(5, np.ones(4, F32))),
    "register twice": (ValueError, "already", lambda c: [c.register(1, "barrier") for _ in range(2)]),
    "register a send": (ValueError, "cannot be registered", lambda c: c.register(1, "send", 4)),
    "register elsewhere": (
        ValueError,
        "ranks of the parent",
        lambda c: c.register(2, "barrier", devices=[0, 1]),
    ),
    "timeout": (ValueError, "positive", lambda c: c.set_timeout(-1)),
    "subgroup": (ValueError, "ranks of the parent", lambda c: c.subgroup([0, 4], "x")),
    "no context": (TypeError, "pass a starling.Context", lambda c: Communicator(context=5)),  # type: ignore[arg-type]
    "no function": (TypeError, "is a function", lambda c: c.barrier(callback=5)),  # type: ignore[arg-type]
    "no function for a request": (TypeError, "is a function", add_no_function),
    "trace of too many": (ValueError, "most is", lambda c: c.context.trace(2**63)),
    "trace of less than none": (ValueError, "most is -1", lambda c: c.context.trace(-1)),
    "negative budget": (ValueError, "minimum_budget_ns is -1", lambda c: Scheduling(minimum_budget_ns=-1)),
    "large factor": (ValueError, "success_factor is", lambda c: Scheduling(success_factor=1 << 32)),
    "half a budget": (TypeError, "quit_period_ns is 0.5", lambda c: Scheduling(quit_period_ns=0.5)),  # type: ignore[arg-type]
    "lane": (TypeError, "lane is 5; pass text", lambda c: c.barrier(lane=5)),  # type: ignore[arg-type]
    "half a lane": (ValueError, "zero byte", lambda c: c.barrier(lane="a\0b")),
    "lane of no text": (ValueError, "lane is '.ud800'; pass text", lambda c: c.barrier(lane="\ud800")),
    "priority": (TypeError, "priority is 1.5; pass", lambda c: c.barrier(priority=1.5)),  # type: ignore[arg-type]
    "large priority": (ValueError, "priority is 2147483648; pass", lambda c: c.barrier(priority=1 << 31)),
    "type of numpy": (TypeError, "dtype is .*; pass the name", lambda c: c.all_reduce(np.ones(1), dtype=F32)),  # type: ignore[arg-type]
    "no scalar": (TypeError, "scalar is 'x'", lambda c: c.all_reduce(np.ones(1), scalar="x")),  # type: ignore[arg-type]
    "no root": (TypeError, "root is '0'", lambda c: c.reduce(np.ones(1), root="0")),  # type: ignore[arg-type]
    "no reduction": (ValueError, "use one of", lambda c: c.reduce(np.ones(1), op=["sum"])),  # type: ignore[arg-type]
    "negative counts": (
        TypeError,
        "output_counts is .-4.; pass a list",
        lambda c: c.all_gather(np.ones(4), np.ones(4), counts=[-4]),
    ),
    "tag": (ValueError, "tag is -1; pass a whole number from 0", lambda c: c.send(np.ones(1), 0, tag=-1)),
    "tag of a batch": (ValueError, "tag is -1; pass", lambda c: c.batch([Send(np.ones(1), 0, -1)])),
    "peer of a batch": (TypeError, "peer is 'a'", lambda c: c.batch([Send(np.ones(1), "a")])),  # type: ignore[arg-type]
    "no message": (TypeError, "pass a starling.Send", lambda c: c.batch(["x"])),  # type: ignore[list-item]
    "no stream": (TypeError, "stream is 'x'; pass", lambda c: c.barrier(stream="x")),
    "no color": (TypeError, "color is 'a'; pass", lambda c: c.split("a")),  # type: ignore[arg-type]
    "no ranks": (TypeError, "ranks is 0; pass a list", lambda c: c.subgroup(0, "x")),  # type: ignore[arg-type]
    "name of a subgroup": (TypeError, "name is 7; pass text", lambda c: c.subgroup([0], 7)),  # type: ignore[arg-type]
    "reason": (TypeError, "reason is None", lambda c: c.abort(None)),  # type: ignore[arg-type]
    "register no number": (TypeError, "id is 'a'", lambda c: c.register("a", "barrier")),  # type: ignore[arg-type]
    "register less than none": (ValueError, "count is -4", lambda c: c.register(3, "all_reduce", -4)),
    "register with a root elsewhere": (ValueError, "root 7", lambda c: c.register(3, "broadcast", 4, root=7)),
    "run no number": (TypeError, "id is .1.;", lambda c: c.run([1], np.ones(1))),  # type: ignore[arg-type]
    "no plan": (TypeError, "plan is 5; pass a plan", lambda c: c.add_plan(5)),  # type: ignore[arg-type]
    "operation's timeout": (ValueError, "timeout is 0 s; pass a positive", lambda c: c.barrier(timeout=0)),
    "endless timeout": (ValueError, "timeout is inf", lambda c: c.barrier(timeout=float("inf"))),
    "no time": (ValueError, "timeout is nan", lambda c: c.set_timeout(float("nan"))),
    "text for a timeout": (TypeError, "timeout is '1'", lambda c: c.barrier(timeout="1")),  # type: ignore[arg-type]
    "wait of less than no time": (ValueError, "timeout is -1 s", lambda c: c.barrier().wait(-1)),
    "group's timeout": (
        ValueError,
        "timeout is -1 s",
        lambda c: Communicator(c.context, rank=0, size=1, name="x", store=InProcessStore(), timeout=-1),
    ),
    "rank of text": (TypeError, "rank is '0'", lambda c: Communicator(c.context, rank="0", size=1)),  # type: ignore[arg-type]
    "lane of a trace": (ValueError, "lane is -1", lambda c: c.context.lane_name(-1)),
    "order of text": (TypeError, "order is 'fifo'", lambda c: Scheduling(order="fifo")),  # type: ignore[arg-type]
    "fixed of text": (TypeError, "fixed is 'yes'", lambda c: Scheduling(fixed="yes")),  # type: ignore[arg-type]
    "no scheduling": (TypeError, "scheduling is 5", lambda c: Context(scheduling=5)),  # type: ignore[arg-type]
    "no device": (TypeError, "device is 0", lambda c: Context(device=0)),  # type: ignore[arg-type]
    "negative blocks": (ValueError, "blocks is -1", lambda c: Context(blocks=-1)),
}


@pytest.mark.parametrize("what", sorted(MISUSES))
def test_misuse_names_the_remedy(comm: Communicator, what: str) -> None:
    kind, fragment, call = MISUSES[what]
    with pytest.raises(kind, match=fragment):
        call(comm)
    array = np.ones(3)
    comm.all_reduce(array).wait(100)  # nothing is broken by it


def test_wrong_registered_buffer(comm: Communicator) -> None:
    comm.register(7, "all_reduce", 10, "float32")
    with pytest.raises(ValueError, match="registered with count 10"):
        comm.run(7, np.ones(9, F32))


def test_construction() -> None:
    with pytest.raises(ValueError, match="both or neither"):
        Communicator(rank=0)
    with Context() as context:
        with pytest.raises(ValueError, match="ranks are 0 to size - 1"):
            Communicator(context, rank=2, size=2, store=InProcessStore())
        with pytest.raises(TimeoutError, match="rank 1 did not join"):
            Communicator(context, rank=0, size=2, store=InProcessStore(), timeout=0.2)
    with pytest.raises(ValueError, match="completion"):
        Context(completion_queue="stack")
    with pytest.raises(ValueError, match="scheduling has no field"):
        starling._core.Context(0, 0, 0, {"speed": 1}, None)  # type: ignore[attr-defined]


class LostStore(InProcessStore):
    """Its keeper ends while ranks meet."""

    def get(self, key: str, timeout: float) -> bytes:
        raise ConnectionResetError("no store any more")


class TextStore(InProcessStore):
    def get(self, key: str, timeout: float) -> Any:
        return super().get(key, timeout).decode()


@pytest.mark.parametrize(
    ("store", "kind", "text"),
    [
        (LostStore(), ConnectionResetError, "no store any more"),
        (TextStore(), TypeError, "returned 'starling.* return the bytes"),
        (5, AttributeError, "'set'"),
    ],
    ids=["lost", "text", "none"],
)
def test_a_bad_store_ends_the_joining(store: Any, kind: type[Exception], text: str) -> None:
    """It raises what the store did, and does not wait for the timeout."""
    if isinstance(store, InProcessStore):
        store.set("starling/world/arena/1", b"starling.1.0")
    with Context() as context, pytest.raises(kind, match=text):
        Communicator(context, rank=0, size=2, store=store, timeout=10000)


def test_ranks_of_unequal_blocks() -> None:
    """All are told, also who comes when the others have left already: their lanes would never be connected."""
    blocks = {"blocks": lambda rank: 2 if rank == 4 else 1}
    for outcome in launch.run_threads(5, lambda comm: comm.barrier().wait(), context=blocks, check=False):
        assert isinstance(outcome.error, errors.MismatchError), outcome
        assert "blocks, this rank's has" in str(outcome.error)


def test_the_shortest_residency_finishes() -> None:
    context = Context(scheduling=Scheduling(residency_limit_ns=1))
    with context, Communicator(context, rank=0, size=1, store=InProcessStore()) as alone:
        alone.all_reduce(np.ones(1000)).wait(100)


def test_destroyed_objects_say_so(comm: Communicator) -> None:
    comm.destroy()
    comm.destroy()
    with pytest.raises(ValueError, match="destroyed"):
        comm.barrier()
    comm.context.destroy()
    comm.context.destroy()
    assert comm.context.handle == 0
    for call in (comm.context.synchronize, comm.context.statistics, comm.context.trace, comm.context.profile):
        with pytest.raises(ValueError, match="destroyed"):
            call()


def test_buffers(comm: Communicator) -> None:
    """numpy, the buffer protocol, memoryviews, scalars of no dimension, bool, bfloat16 as uint16."""
    for buffer in (np.arange(6.0).reshape(2, 3), bytearray(b"abc"), memoryview(bytearray(8)), np.array(5)):
        comm.all_reduce(buffer).wait(100)
    for nothing in (np.empty(0), np.empty((0, 5)), np.empty((5, 0, 3)).T):
        comm.all_reduce(nothing).wait(100)
    flags = np.array([True, False])
    comm.all_reduce(flags, op="bor").wait(100)
    assert flags.tolist() == [True, False]
    comm.all_reduce(np.ones(4, np.uint16), dtype="bfloat16").wait(100)
    output = np.zeros(4, F32)
    comm.all_reduce(read_only(), output).wait(100)
    assert output.tolist() == [1, 1, 1, 1]
    comm.broadcast(read_only(), root=0).wait(100)  # nothing is written at the root


def test_torch_tensors(comm: Communicator) -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
        tensor = torch.ones(2, 3, dtype=dtype)
        output = torch.zeros(2, 3, dtype=dtype)
        comm.all_reduce(tensor, output).wait(100)
        assert torch.equal(tensor, output)


def test_requests(comm: Communicator) -> None:
    request = comm.recv(np.zeros(2), 0, tag=4)
    assert not request.done
    assert not request.test()
    assert request.exception() is None
    with pytest.raises(errors.WaitTimeoutError):
        request.wait(0.05)
    called: list[starling.Request] = []
    request.add_done_callback(called.append)
    comm.send(np.ones(2), 0, tag=4).wait(100)
    request.wait(100)
    assert request.test()
    assert request.source == 0
    comm.barrier().add_done_callback(called.append)
    deadline = time.monotonic() + 60  # callbacks run on a thread of their own
    while len(called) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(called) == 2


def test_buffers_live_as_long_as_the_operation(comm: Communicator) -> None:
    """The caller keeps nothing: not the request, not the array."""
    received = np.zeros(1 << 16)
    request = comm.recv(received, 0)
    comm.send(np.full(1 << 16, 3.0), 0)
    request.wait(100)
    assert (received == 3.0).all()


def test_statistics_trace_and_profile(comm: Communicator) -> None:
    comm.all_reduce(np.ones(10), lane="named").wait(100)
    statistics = comm.context.statistics()
    assert statistics.submissions == statistics.completions == 1
    assert statistics.launches >= 1
    records = comm.context.trace()
    assert {"launch", "run", "complete", "publish"} <= {record.event for record in records}
    assert "named" in {comm.context.lane_name(record.lane) for record in records}
    assert [record.time_ns for record in records] == sorted(record.time_ns for record in records)
    assert comm.context.trace(2) == records[-2:] or len(comm.context.trace(2)) == 2
    assert comm.context.lane_name(123456) == ""
    chosen = comm.context.profile()
    assert isinstance(chosen, Scheduling)
    assert chosen.initial_budget_ns > 0
    starling.cpu.synchronize()


def raises_on_rank_1(comm: Communicator) -> int:
    if comm.rank == 1:
        raise ValueError("as planned")
    comm.barrier().wait(100)
    return 1


def never_ends(comm: Communicator) -> None:
    comm.recv(np.zeros(1), (comm.rank + 1) % comm.size).wait()


@pytest.mark.parametrize("run", (launch.run_threads, launch.run_processes))
def test_launch_reports_every_rank(run: Any) -> None:
    from comm import test_interface as importable  # under the name that the processes know

    outcomes = run(3, importable.raises_on_rank_1, check=False)
    assert [type(outcome.error).__name__ for outcome in outcomes] == [
        "AbortedError",
        "ValueError",
        "AbortedError",
    ]
    assert "as planned" in outcomes[1].trace
    assert "as planned" in str(outcomes[0].error)  # rank 1 told them why
    with pytest.raises(launch.RanksFailedError, match="rank 1: ValueError: as planned"):
        run(3, importable.raises_on_rank_1)


@pytest.mark.parametrize("run", (launch.run_threads, launch.run_processes))
def test_launch_ends_at_its_timeout(run: Any) -> None:
    from comm import test_interface as importable

    outcomes = run(2, importable.never_ends, timeout=1.5, check=False, operation_timeout=200)
    for outcome in outcomes:
        assert isinstance(outcome.error, (launch.LaunchTimeoutError, errors.AbortedError)), outcome


def test_ctrl_c_before_all_have_joined() -> None:
    """Rank 0 waits for rank 1 when it comes; rank 1 comes after it. Both end, and so does the call."""

    def interrupted(rank: int) -> int:
        if rank == 1:
            _thread.interrupt_main()
            handled.wait(100)
        return 1

    handled = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Timer(0.2, handled.set).start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch.run_threads(2, never_ends, context={"blocks": interrupted})
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [thread for thread in threading.enumerate() if "(run)" in thread.name]


def test_file_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.set("a/b", b"\0value")
    assert store.get("a/b", 1.0) == b"\0value"
    with pytest.raises(TimeoutError):
        store.get("none", 0.05)


def test_place() -> None:
    assert environment.place({}) is None
    assert environment.place({"RANK": "3", "WORLD_SIZE": "4"}) == environment.Place("torchrun", 3, 4)
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert environment.place(mpi) == environment.Place("Open MPI", 1, 2)


# Finds rank, size and the meeting place by itself.
LAUNCHED = """
import numpy as np, starling
comm = starling.Communicator(timeout=200)
total = np.array([comm.rank + 1])
comm.all_reduce(total).wait()
print(f"rank {comm.rank} of {comm.size}: {total[0]}", flush=True)
"""


def run_script(
    command: list[str], script: Path, text: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    script.write_text(text)
    environment = dict(os.environ, OMP_NUM_THREADS="1", **variables)
    return subprocess.run(
        [*command, str(script)], capture_output=True, text=True, timeout=250, env=environment
    )


def check_launched(done: subprocess.CompletedProcess[str], size: int) -> None:
    assert done.returncode == 0, done.stderr
    total = size * (size + 1) // 2
    for rank in range(size):
        assert f"rank {rank} of {size}: {total}" in done.stdout


def test_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    check_launched(run_script(command, tmp_path / "script.py", LAUNCHED), 3)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_mpirun(tmp_path: Path) -> None:
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable]
    check_launched(run_script(command, tmp_path / "script.py", LAUNCHED), 3)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_mpi4py(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    text = LAUNCHED.replace(
        "starling.Communicator(timeout=200)",
        "starling.Communicator.from_mpi(__import__('mpi4py.MPI').MPI.COMM_WORLD, timeout=200)",
    )
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable]
    check_launched(run_script(command, tmp_path / "script.py", text), 3)


# Callbacks run while the interpreter ends; daemon threads wait; nothing may crash or hang.
ENDING = """
import sys, threading, numpy as np, starling
comm = starling.Communicator(rank=0, size=1, store=starling.stores.InProcessStore())
arrays = [np.ones(100) for _ in range(50)]
def again(array):
    comm.all_reduce(array, lane="x", callback=lambda error: error or again(array))
for array in arrays:
    again(array)
pending = comm.recv(np.ones(1), 0)
threading.Thread(target=pending.wait, daemon=True).start()
pending.add_done_callback(print)
"""


def test_end_of_the_interpreter(tmp_path: Path) -> None:
    for _ in range(3):
        done = run_script([sys.executable], tmp_path / "script.py", ENDING)
        assert done.returncode == 0, done.stderr
        assert "Fatal" not in done.stderr, done.stderr


def test_exception_in_a_callback(comm: Communicator, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no caller: it is printed, and the library goes on."""
    script = """
import numpy as np, starling, sys
comm = starling.Communicator(rank=0, size=1, store=starling.stores.InProcessStore())
comm.barrier(callback=lambda error: 1 / 0).wait()
comm.all_reduce(np.ones(3)).wait()
comm.context.destroy()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr
