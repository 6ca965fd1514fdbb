"""Goal: a group of one rank costs its streams a copy, or nothing, and no kernel: the results are right, and everything
that comes behind an operation, in its own stream, in others and on the CPU, comes behind that copy.

Method: one rank on one GPU. A kernel that takes long stands before the operation, so who does not wait sees old
bytes; torch's profiler (CUPTI) lists what ran on the GPU.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest

from gpu import gpus
from starling import Communicator
from starling.errors import OperationTimeoutError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]
COUNTS = (1, 3, 65537, (4 << 20) + 1)
LONG = 200_000_000  # cycles; some 100 ms
WAIT_S = 20
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
)


@pytest.fixture(autouse=True)
def a_gpu() -> None:
    if gpus.count() < 1:
        pytest.skip("needs a GPU")


def run(function: Callable[..., Any], **more: Any) -> Any:
    return gpus.MACHINES["processes"].run(1, function, timeout=50, operation_timeout=10, **more)[0]


def right_bytes(comm: Communicator) -> int:
    import torch

    device = torch.device(comm.context.device)
    stream = torch.cuda.Stream(device)
    for dtype in (torch.float32, torch.bfloat16, torch.uint8):
        for count in COUNTS:
            for turn, collective in enumerate(COLLECTIVES):
                wrong = []
                for in_place in (False, True):
                    with torch.cuda.stream(stream):
                        expected = (torch.arange(count, device=device) % 101).to(dtype) + turn
                        data = torch.full_like(expected, 99)
                        out = data if in_place else torch.full_like(expected, 98)
                        torch.cuda._sleep(LONG // 100)
                        data.copy_(expected)
                        getattr(comm, collective)(data, out, stream=stream, hold=in_place)
                        wrong.append((out != expected).sum())
                stream.synchronize()
                assert [int(one) for one in wrong] == [0, 0], (collective, dtype, count)
    return comm.context.statistics().launches


def test_right_bytes() -> None:
    """No daemon was launched for them."""
    assert run(right_bytes) == 0


def reductions(comm: Communicator) -> None:
    import torch

    device = torch.device(comm.context.device)
    stream = torch.cuda.current_stream(device)
    data = torch.arange(1, 4097, device=device).float()
    for op in ("sum", "prod", "min", "max", "avg"):
        out = torch.zeros_like(data)
        comm.all_reduce(data, out, op=op, stream=stream)
        assert torch.equal(out, data), op
    out = torch.zeros_like(data)
    comm.all_reduce(data, out, op="premul_sum", scalar=3.0, stream=stream).wait(WAIT_S)
    assert torch.equal(out, 3 * data), "scaled by a kernel"
    out = torch.zeros(8000, device=device)
    comm.all_gather(data, out, counts=[4096], offsets=[1000], stream=stream).wait(WAIT_S)
    assert torch.equal(out[1000:5096], data)
    assert not out[:1000].any() and not out[5096:].any()
    out = torch.zeros(500, device=device)
    comm.reduce_scatter(data, out, counts=[500], offsets=[17], stream=stream).wait(WAIT_S)
    assert torch.equal(out, data[17:517])


def test_reductions_and_parts() -> None:
    run(reductions)


def waited_for(comm: Communicator) -> None:
    import torch

    device = torch.device(comm.context.device)
    stream, other = torch.cuda.Stream(device), torch.cuda.Stream(device)
    data = torch.ones(1 << 20, device=device)
    for turn in range(3):
        out = torch.zeros_like(data)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
            request = comm.all_reduce(data, out, stream=stream, lane=f"lane {turn}")
        with torch.cuda.stream(other):
            request.wait_on_stream(other)
            seen = (out == 1).all()
        assert not request.done, "the stream had not come to it"
        request.wait(WAIT_S)
        pinned = torch.empty(4, pin_memory=True)
        with torch.cuda.stream(torch.cuda.Stream(device)):  # behind nothing: the CPU has waited
            pinned.copy_(out[-4:], non_blocking=True)
            torch.cuda.current_stream(device).synchronize()
        assert pinned.tolist() == [1.0] * 4
        other.synchronize()
        assert bool(seen)


def test_everybody_waits_for_the_copy() -> None:
    run(waited_for)


def many(comm: Communicator, operations: int) -> None:
    """More than the lane has words for, from two streams, while the GPU is behind; and others in between."""
    import torch

    device = torch.device(comm.context.device)
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    sums = [torch.zeros(64, device=device) for _ in streams]
    ones = torch.ones(64, device=device)
    torch.cuda.synchronize()
    requests = []
    for turn in range(operations):
        which = turn % 2
        with torch.cuda.stream(streams[which]):
            if turn < 2:
                torch.cuda._sleep(LONG)
            out = torch.empty_like(ones)
            requests.append(comm.all_reduce(ones, out, stream=streams[which], hold=turn % 3 == 0))
            sums[which] += out
        if turn % 100 == 50:
            requests.append(comm.all_reduce(ones.clone()))  # without a stream: by a kernel
            torch.cuda.synchronize()
    for request in requests:
        request.wait(WAIT_S)
    torch.cuda.synchronize()
    assert [one.tolist() for one in sums] == [[operations / 2] * 64] * 2


def test_many_in_a_row() -> None:
    run(functools.partial(many, operations=2000))


def late(comm: Communicator) -> str:
    import torch

    device = torch.device(comm.context.device)
    stream = torch.cuda.Stream(device)
    data = torch.ones(64, device=device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20 * LONG)  # some 2 s
        request = comm.all_reduce(data, stream=stream, timeout=0.3)
    with pytest.raises(OperationTimeoutError) as raised:
        request.wait(WAIT_S)
    torch.cuda.synchronize()
    with pytest.raises(OperationTimeoutError):
        comm.all_reduce(data, stream=stream).wait(WAIT_S)
    return str(raised.value)


def test_a_stream_that_does_not_come() -> None:
    """The lane ends by the timeout, and everything goes on and ends."""
    assert "did not finish within 0.3 s" in run(late)


def captured(comm: Communicator) -> None:
    """A graph captures kernels, as ever."""
    import torch

    device = torch.device(comm.context.device)
    stream = torch.cuda.Stream(device)
    data, out = torch.ones(64, device=device), torch.zeros(64, device=device)
    comm.all_reduce(data, out, stream=stream).wait(WAIT_S)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        comm.all_reduce(data, out, stream=stream, hold=True)
    for value in range(3):
        data.fill_(value)
        graph.replay()
        comm.all_reduce(data, stream=torch.cuda.current_stream(device))
        torch.cuda.synchronize()
        assert out.tolist() == [float(value)] * 64
    del graph


def test_beside_a_graph() -> None:
    run(captured)


def profiled(comm: Communicator) -> dict[bool, list[str]]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    device = torch.device(comm.context.device)
    stream = torch.cuda.Stream(device)
    data = torch.ones(1 << 20, device=device)
    out = torch.empty_like(data)
    seen = {}
    for in_place in (False, True):
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for collective in COLLECTIVES:
                getattr(comm, collective)(data, data if in_place else out, stream=stream).wait(WAIT_S)
            torch.cuda.synchronize()
        seen[in_place] = [
            event.name for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA
        ]
    return seen


def test_no_kernel_runs() -> None:
    seen = run(profiled, environment={"STARLING_JOB": f"alone-{os.getpid()}"})
    assert len(seen[False]) == len(COLLECTIVES)
    assert all(name.startswith("Memcpy") for name in seen[False])
    assert seen[True] == []
