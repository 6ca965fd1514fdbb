"""Goal: operations on streams start behind the stream's work, and what comes behind them sees their results, in any
order of lanes on each rank, with device synchronizations and memory given back in between.

Method: eight lanes, each on a stream of its own, in a random order of each rank's own; kernels write the inputs
right before, others compare the outputs right behind, and the CPU looks only at the end.
"""

import ctypes
import functools
import random
import threading

import pytest

from comm.programs import COUNTS, random_order
from gpu import gpus
from starling import Communicator

pytestmark = pytest.mark.gpu


def on_streams(
    comm: Communicator, iterations: int, interference: str, hold: bool, seed: int
) -> dict[str, int]:
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    streams = [torch.cuda.Stream(device) for _ in COUNTS]
    patterns = [(torch.arange(count, device=device) % 31).float() for count in COUNTS]
    inputs = [torch.empty(count, device=device) for count in COUNTS]
    outputs = [torch.empty(count, device=device) for count in COUNTS]
    wrong = torch.zeros(1, device=device)
    torch.cuda.synchronize()
    chance = random.Random(comm.rank)
    for iteration in range(iterations):
        requests = {}
        for which in sorted(range(len(COUNTS))) if hold else random_order(iteration, comm.rank, seed):
            with torch.cuda.stream(streams[which]):
                torch.add(patterns[which], float(iteration % 100 + which + comm.rank), out=inputs[which])
                requests[which] = comm.all_reduce(
                    inputs[which], outputs[which], lane=f"gradient {which}", stream=streams[which], hold=hold
                )
            if interference == "synchronize":
                torch.cuda.synchronize()
            elif interference == "free" and chance.random() < 0.3:
                free_and_allocate(32 << 20)
            elif interference == "default stream":
                wrong.add_(0)
        for which, request in requests.items():
            with torch.cuda.stream(streams[which]):
                if not hold:
                    request.wait_on_stream(streams[which])
                sums = comm.size * (comm.size - 1) // 2 + comm.size * (iteration % 100 + which)
                wrong.add_((outputs[which] != patterns[which] * comm.size + sums).sum())
        for request in requests.values():
            request.wait(30)
        torch.cuda.synchronize()
    assert float(wrong) == 0
    return vars(comm.context.statistics())


def free_and_allocate(size: int) -> None:
    """Of this thread's GPU alone: PyTorch's empty_cache() frees on all GPUs of the process, so ranks that are
    threads would wait for each other's streams by calls of their own."""
    driver = ctypes.CDLL(None)  # PyTorch has loaded libcudart
    memory = ctypes.c_void_p()
    assert driver.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
    assert driver.cudaFree(memory) == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("interference", ("none", "synchronize", "free", "default stream"))
@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_any_order(machine: str, interference: str) -> None:
    if gpus.places() < 2:
        pytest.skip("disorder needs two GPUs")
    gpus.skip_if_shared(machine, gpus.places())
    statistics = gpus.MACHINES[machine].run(
        gpus.places(),
        functools.partial(on_streams, iterations=50, interference=interference, hold=False, seed=7),
        timeout=100,
        operation_timeout=30,
    )
    if interference in ("synchronize", "free"):  # else all that is called may find room on a GPU
        assert sum(of_rank["parks"] for of_rank in statistics) > 0, "nothing ever gave way"


@pytest.mark.timeout(120)
def test_one_order_holds_its_streams() -> None:
    """Results alone: that no daemon is needed is looked at in test_together, and in torch_checks."""
    if gpus.places() < 2:
        pytest.skip("needs two GPUs")
    gpus.MACHINES["processes"].run(
        gpus.places(),
        functools.partial(on_streams, iterations=50, interference="none", hold=True, seed=7),
        timeout=100,
        operation_timeout=30,
    )


def beside_a_capture(comm: Communicator, operations: int) -> int:
    """One thread captures the program's own work, in the mode that other threads' unsafe calls end (PyTorch's
    default); this one has operations on a stream meanwhile."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    value, total = torch.full((64,), 1.0, device=device), torch.empty(64, device=device)
    captured = torch.zeros(1000, device=device)
    began, may_end = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        try:
            torch.cuda.set_device(device)
            with torch.cuda.graph(graph):
                captured.add_(1)
                began.set()
                may_end.wait(60)
                captured.add_(1)
        except BaseException as failure:
            failures.append(failure)
            began.set()

    comm.all_reduce(value, total, stream=stream, hold=True).wait(30)  # what is made for the first is there
    torch.cuda.synchronize()
    thread = threading.Thread(target=capture)
    thread.start()
    assert began.wait(60)
    requests = [comm.all_reduce(value, total, stream=stream, hold=True) for _ in range(operations)]
    for request in requests:
        request.wait(30)
    may_end.set()
    thread.join(60)
    assert not failures, f"the capture ended: {failures[0]}"
    graph.replay()
    torch.cuda.synchronize()
    assert float(captured.sum()) == 2 * 1000
    assert float(total.sum()) == 64 * comm.size
    return len(requests)


@pytest.mark.timeout(120)
def test_beside_a_capture() -> None:
    """In processes: ranks that are threads would have one capture each."""
    if gpus.places() < 2:
        pytest.skip("needs places for two ranks")
    results = gpus.MACHINES["processes"].run(
        2, functools.partial(beside_a_capture, operations=300), timeout=100, operation_timeout=30
    )
    assert results == [300, 300]
