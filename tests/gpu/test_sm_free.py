"""Goal: with sm_free messages between GPUs are right and no kernel of ours moves them, in order and out of it, with
device synchronizations in between; and what goes wrong releases streams and is told on both ranks.

Method: two ranks on two GPUs, threads and processes; kernels write what is sent right before and compare what was
received right behind, in the streams; torch's profiler (CUPTI) lists what ran on the GPU.
"""

import ctypes
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comm.test_sm_free import collective_cases, moving_cases
from conformance.test_conformance import check
from gpu import gpus
from starling import Communicator, Recv, Send
from starling.errors import MismatchError, OperationTimeoutError, PeerFailedError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(100)]
SIZES = [1, 3, 4096, 65537, 1 << 20, (8 << 20) + 5, 64 << 20, 256 << 20]
MIB = 1 << 20
WAIT_S = 20


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if gpus.places() < 2:
        pytest.skip("needs two GPUs")


def run(function: Callable[..., Any], machine: str = "processes", **more: Any) -> list[Any]:
    if gpus.count() < 2 and machine == "processes":
        pytest.skip("within a GPU copy engines serve one process")
    arguments = {"timeout": 90, "operation_timeout": 10, "communicator": {"sm_free": True}, **more}
    return list(gpus.MACHINES[machine].run(2, function, **arguments))


def device_of(comm: Communicator) -> Any:
    import torch

    assert comm.sm_free is True
    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    return device


def pattern(rank: int, tag: int, count: int, device: Any) -> Any:
    import torch

    return ((torch.arange(count, dtype=torch.int32, device=device) * 7 + rank * 31 + tag) % 251).to(
        torch.uint8
    )


class Exchange:
    """One message each way, each in a stream of its own, that is written right before and compared right behind."""

    def __init__(self, comm: Communicator, count: int, tag: int, streams: list[Any]) -> None:
        self.comm, self.count, self.tag, self.streams = comm, count, tag, streams
        self.device = device_of(comm)
        self.requests: list[Any] = []

    def send(self, hold: bool) -> None:
        import torch

        with torch.cuda.stream(self.streams[0]):
            self.sent = pattern(self.comm.rank, self.tag, self.count, self.device)
            self.requests.append(
                self.comm.send(self.sent, 1 - self.comm.rank, tag=self.tag, stream=self.streams[0], hold=hold)
            )

    def receive(self, hold: bool) -> None:
        import torch

        with torch.cuda.stream(self.streams[1]):
            self.received = torch.zeros(self.count, dtype=torch.uint8, device=self.device)
            request = self.comm.recv(
                self.received, 1 - self.comm.rank, tag=self.tag, stream=self.streams[1], hold=hold
            )
            self.requests.append(request)
            self.reception = None if hold else request

    def compare(self) -> None:
        import torch

        with torch.cuda.stream(self.streams[1]):
            if self.reception is not None:
                self.reception.wait_on_stream(self.streams[1])
            expected = pattern(1 - self.comm.rank, self.tag, self.count, self.device)
            self.wrong = (self.received != expected).sum()

    def check(self) -> None:
        for request in self.requests:
            request.wait(WAIT_S)
        assert int(self.wrong) == 0, f"{self.count} bytes, tag {self.tag}"


def streams_of(comm: Communicator) -> list[Any]:
    import torch

    return [torch.cuda.Stream(device_of(comm)) for _ in range(2)]


def right_bytes(comm: Communicator) -> int:
    import torch

    streams = streams_of(comm)
    for tag, count in enumerate(SIZES):
        for hold in (False, True):
            exchange = Exchange(comm, count, tag, streams)
            exchange.send(hold)
            exchange.receive(hold)
            exchange.compare()
            torch.cuda.synchronize()
            exchange.check()
    return comm.context.statistics().launches


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_right_bytes(machine: str) -> None:
    """No daemon was launched either."""
    gpus.skip_if_shared(machine)
    assert run(right_bytes, machine) == [0, 0]


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_collectives_that_only_move(machine: str) -> None:
    outcomes = run(functools.partial(collective_cases, taken=moving_cases(2, 200)), machine)
    check([results for results, _ in outcomes])


def in_a_row(comm: Communicator, messages: int) -> None:
    """More than the lane has places for, the host far ahead of its streams."""
    import torch

    device = device_of(comm)
    stream = streams_of(comm)[0]
    peer = 1 - comm.rank
    wrong = torch.zeros(1, device=device, dtype=torch.int64)
    torch.cuda.synchronize()
    requests = []
    with torch.cuda.stream(stream):
        value = torch.zeros(100_000, dtype=torch.int32, device=device)
        for number in range(messages):
            if comm.rank == 0:
                value.fill_(number)
                requests.append(comm.send(value, peer, stream=stream, hold=True))
            else:
                requests.append(comm.recv(value, peer, stream=stream, hold=True))
                wrong.add_((value != number).sum())
    for request in requests:
        request.wait(WAIT_S)
    torch.cuda.synchronize()
    assert int(wrong) == 0


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_in_a_row(machine: str) -> None:
    run(functools.partial(in_a_row, messages=700), machine)


def disorder(comm: Communicator, rounds: int, tags: int) -> None:
    """Each rank in an order of its own, with device synchronizations: nothing holds a stream until it is waited for."""
    import torch

    chance = random.Random(comm.rank + 1)
    streams = [streams_of(comm) for _ in range(tags)]
    for _ in range(rounds):
        exchanges = [Exchange(comm, chance_count(tag), tag, streams[tag]) for tag in range(tags)]
        calls = [call for one in exchanges for call in (one.send, one.receive)]
        chance.shuffle(calls)
        for call in calls:
            call(False)
            if chance.random() < 0.5:
                torch.cuda.synchronize()
        for one in chance.sample(exchanges, tags):
            one.compare()
        torch.cuda.synchronize()
        for one in exchanges:
            one.check()


def chance_count(tag: int) -> int:
    return [1, 1000, 70_000, 3 * MIB][tag % 4] + tag


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_disorder_with_synchronization(machine: str) -> None:
    gpus.skip_if_shared(machine)
    run(functools.partial(disorder, rounds=15, tags=8), machine)


def behind_copies(comm: Communicator, kind: str) -> float:
    """Copies of the program stand behind receives that are held, on both ranks, when both send."""
    import torch

    device = device_of(comm)
    first = Exchange(comm, 4 * MIB, 1, streams_of(comm))
    pinned = torch.empty(4 * MIB, dtype=torch.uint8, pin_memory=True)
    others = [torch.cuda.Stream(device) for _ in range(4)] if kind == "of five streams" else []
    torch.cuda.synchronize()
    begin = time.monotonic()
    first.receive(True)
    with torch.cuda.stream(first.streams[1]):
        pinned.copy_(first.received, non_blocking=True)
    for other in others:  # and of streams that wait for that one
        other.wait_stream(first.streams[1])
        with torch.cuda.stream(other):
            first.received.clone()
            pinned.copy_(first.received, non_blocking=True)
    time.sleep(0.2)
    first.send(True)
    first.compare()
    torch.cuda.synchronize()
    first.check()
    return time.monotonic() - begin


@pytest.mark.parametrize("kind", ["of one stream", "of five streams"])
@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_copies_of_the_program_behind_a_receive(machine: str, kind: str) -> None:
    for took in run(functools.partial(behind_copies, kind=kind), machine):
        assert took < 5


def pageable(comm: Communicator, sends: bool) -> float:
    """One rank comes to its side, and at once to a copy to pageable memory, 0.5 s before the other rank."""
    import torch

    early = comm.rank == (0 if sends else 1)
    device = device_of(comm)
    stream = streams_of(comm)[0]
    value = torch.full((4 * MIB,), comm.rank, dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    if not early:
        time.sleep(0.5)
    begin = time.monotonic()
    with torch.cuda.stream(stream):
        request = (
            comm.send(value, 1, stream=stream, hold=True)
            if comm.rank == 0
            else comm.recv(value, 0, stream=stream, hold=True)
        )
        assert int(value.cpu().sum()) == 0
    request.wait(WAIT_S)
    return time.monotonic() - begin


@pytest.mark.parametrize("sends", [False, True], ids=["receives", "sends"])
def test_copy_to_pageable_memory_behind_it(sends: bool) -> None:
    for took in run(functools.partial(pageable, sends=sends)):
        assert took < 5


def killed(comm: Communicator) -> str:
    import torch

    exchange = Exchange(comm, MIB, 0, streams_of(comm))
    exchange.send(False)
    exchange.receive(False)
    exchange.compare()
    torch.cuda.synchronize()
    exchange.check()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    exchange.requests.clear()
    exchange.send(True)
    exchange.receive(True)
    texts = []
    for request in exchange.requests:
        with pytest.raises(PeerFailedError) as caught:
            request.wait(WAIT_S)
        texts.append(str(caught.value))
    torch.cuda.synchronize()  # both streams go on
    return " | ".join(texts)


def test_killed_peer() -> None:
    outcome = run(killed, check=False)[0]
    assert outcome.error is None, outcome.trace
    assert outcome.value.count("rank 1") >= 2
    assert outcome.value.count("died") == 2


def mismatched(comm: Communicator) -> tuple[str, str]:
    import torch

    device = device_of(comm)
    stream = streams_of(comm)[0]
    value = torch.full((1000 + comm.rank,), comm.rank, dtype=torch.int32, device=device)
    request = (
        comm.send(value, 1, stream=stream, hold=True)
        if comm.rank == 0
        else comm.recv(value, 0, stream=stream, hold=True)
    )
    with pytest.raises(MismatchError) as caught:
        request.wait(WAIT_S)
    torch.cuda.synchronize()
    assert bool((value == comm.rank).all()), "written after the error"
    # Never joined: a lane of its own.
    if comm.rank == 1:
        time.sleep(1.5)
        return str(caught.value), ""
    alone = comm.send(value, 1, tag=7, stream=stream, hold=True, timeout=0.5)
    with pytest.raises(OperationTimeoutError) as late:
        alone.wait(WAIT_S)
    torch.cuda.synchronize()
    return str(caught.value), str(late.value)


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_mismatch_and_timeout(machine: str) -> None:
    texts = run(mismatched, machine)
    for text, _ in texts:
        assert "rank 0 calls" in text
        assert "rank 1 calls" in text
    assert "rank 1 has not called it" in texts[0][1]


def captured(comm: Communicator) -> None:
    """What a graph captures goes by kernels: messages in a graph, between eager ones."""
    import torch

    device = device_of(comm)
    stream = streams_of(comm)[0]
    value = torch.zeros(1000, dtype=torch.int32, device=device)
    source = torch.zeros(1000, dtype=torch.int32, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        if comm.rank == 0:
            comm.send(source, 1, stream=stream, hold=True)
        else:
            comm.recv(value, 0, stream=stream, hold=True)
    for number in range(5):
        with torch.cuda.stream(stream):
            source.fill_(number)
            graph.replay()
            if comm.rank == 0:
                comm.send(source, 1, stream=stream, hold=True).wait(WAIT_S)
            else:
                wrong = (value != number).sum()
                comm.recv(value, 0, stream=stream, hold=True).wait(WAIT_S)
                assert int(wrong) == 0
                assert bool((value == number).all())
    torch.cuda.synchronize()


def test_a_graph_falls_back_to_kernels() -> None:
    run(captured)


def profiled(comm: Communicator, messages: int) -> dict[str, list[str]]:
    """What runs on the GPU during messages, and collectives that only move, with no kernel of the program's."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    device = device_of(comm)
    streams = streams_of(comm)
    by_kernels = Communicator(
        comm.context, rank=comm.rank, size=2, name="kernels", sm_free=False, timeout=WAIT_S
    )
    sent = torch.full((8 * MIB,), comm.rank + 1, dtype=torch.uint8, device=device)
    received = torch.zeros_like(sent)
    peer, root = 1 - comm.rank, comm.rank == 0
    gathered, at_root = (torch.zeros(2 * len(sent), dtype=torch.uint8, device=device) for _ in range(2))
    exchanged, spread, part = (torch.zeros_like(sent) for _ in range(3))

    def exchange(group: Communicator, hold: bool) -> None:
        options: dict[str, Any] = {"stream": streams[0], "hold": hold}
        requests = [
            group.send(sent, peer, **options),
            group.recv(received, peer, stream=streams[1], hold=hold),
            group.all_gather(sent, gathered, **options),
            group.all_to_all(sent, exchanged, **options),
            group.broadcast(sent, spread, **options),
            group.gather(sent, at_root if root else None, **options),
            group.scatter(gathered if root else None, part, **options),
        ]
        for request in requests:
            request.wait_on_stream(streams[1])
        torch.cuda.synchronize()
        for request in requests:
            request.wait(WAIT_S)

    seen = {}
    for name, group in (("kernels", by_kernels), ("sm_free", comm)):
        exchange(group, False)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for number in range(messages):
                exchange(group, number % 2 == 0)
        seen[name] = [
            event.name for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA
        ]
    assert bool((received == peer + 1).all())
    parts = [(gathered, (1, 2)), (exchanged, (1, 2)), (spread, (1, 1)), (part, (comm.rank + 1,) * 2)]
    for found, halves in parts + [(at_root, (1, 2))] * root:
        assert all(bool((half == value).all()) for half, value in zip(found.chunk(2), halves, strict=True))
    by_kernels.destroy()
    return seen


def test_no_kernel_runs() -> None:
    messages = 6
    for seen in run(
        functools.partial(profiled, messages=messages), environment={"STARLING_JOB": f"profile-{os.getpid()}"}
    ):
        print({name: sorted(set(names)) for name, names in seen.items()})
        copies = [name for name in seen["sm_free"] if name.startswith("Memcpy")]
        kernels = [name for name in seen["sm_free"] if not name.startswith(("Memcpy", "Memset"))]
        assert any("start_kernel" in name for name in seen["kernels"]), "the profiler sees no kernels"
        assert kernels == []
        assert len(copies) >= messages


@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize(
    "names",
    [
        ("messages", "coalesced", "streams_are_waited_for", "side_streams", "tensors_are_kept", "futures"),
        ("pipelining", "disorder_with_synchronization"),
        ("killed",),
    ],
    ids=lambda names: names[0],
)
def test_torch(names: tuple[str, ...], ranks: int) -> None:
    gpus.skip_unless(ranks)
    script = Path(__file__).with_name("torch_checks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(ranks), *names],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "STARLING_SM_FREE": "1"},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]


class Modules:
    """Kernels that the driver has never seen: a library's, at their first use."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.count = 0

    def load(self) -> None:
        self.count += 1
        text = (
            ".version 8.0\n.target sm_90\n.address_size 64\n"
            f".visible .global .align 4 .b8 g{os.getpid()}_{self.count}[65536];\n"
            f".visible .entry f{os.getpid()}_{self.count}() {{ ret; }}\n"
        )
        module = ctypes.c_void_p()
        assert self.cuda.cuModuleLoadData(ctypes.byref(module), text.encode()) == 0


def loading(comm: Communicator, rounds: int) -> float:
    """A message each way in one stream, held, and kernels loaded behind it; now one rank is late, now the other."""
    import torch

    device = device_of(comm)
    stream = streams_of(comm)[0]
    sent = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
    received = torch.empty_like(sent)
    wrong = torch.zeros(1, dtype=torch.int64, device=device)
    modules = Modules()
    requests: list[Any] = []
    torch.cuda.synchronize()
    begin = time.monotonic()
    with torch.cuda.stream(stream):
        for k in range(rounds):
            if k % 2 == comm.rank:
                torch.cuda._sleep(20_000_000)
            sent.fill_((comm.rank + k) % 251)
            calls = [Send(sent, 1 - comm.rank), Recv(received, 1 - comm.rank)]
            requests += comm.batch(calls if k % 3 else calls[::-1], stream=stream, hold=True)
            modules.load()
            wrong.add_((received != (1 - comm.rank + k) % 251).sum())
    stream.synchronize()
    for request in requests:
        request.wait(WAIT_S)
    assert int(wrong) == 0
    return time.monotonic() - begin


@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_kernels_that_are_loaded_behind_a_receive(machine: str) -> None:
    """The driver waits for the stream then, and keeps the proxy from the copy that the peer waits for."""
    for took in run(functools.partial(loading, rounds=24), machine):
        assert took < 8
