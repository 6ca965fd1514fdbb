"""Goal: messages of one stream that begin together may be crossed, whatever their order and number, and what is behind
them in the stream sees them all.

Method: batches in an order of each rank's own, held, on one stream; a kernel in front writes what is sent, one behind
compares what was received. Batches that cannot be one kernel too: more messages than a kernel takes, two of one pair
and tag, one to the rank itself. As part of a CUDA graph: of every size, and a send and a receive of each rank without
its daemon. PyTorch's batch_isend_irecv: torch_checks.py, graph_checks.py.
"""

import functools
import random
import time

import pytest

from gpu import gpus
from starling import Communicator, Recv, Send

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(100)]
COUNTS = (1, 3000, 200_000, 3_000_000)
CAPTURED_BYTES = (8, 1 << 20, 4 << 20, 64 << 20)


@pytest.fixture(autouse=True)
def two_places() -> None:
    if gpus.places() < 2:
        pytest.skip("needs two GPUs")


def tags_of(kind: str) -> list[int]:
    return {"pair": [0], "kernel": [0, 1], "many": list(range(7)), "twice": [0, 0]}.get(kind, [0])


def batches(comm: Communicator, kind: str, rounds: int, seed: int) -> int:
    """How many residencies of the daemon it took."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    wrong = torch.zeros(1, device=device)
    peers = [peer for peer in range(comm.size) if peer != comm.rank] + [comm.rank] * (kind == "self")
    places = [(peer, k) for peer in peers for k in range(len(tags_of(kind)))]
    sent = {place: torch.empty(max(COUNTS), device=device) for place in places}
    received = {place: torch.empty(max(COUNTS), device=device) for place in places}
    stream.wait_stream(torch.cuda.current_stream(device))
    own = random.Random(seed * 100 + comm.rank)

    def value(source: int, destination: int, k: int, number: int) -> float:
        return float(1000 * source + 100 * destination + 10 * k + number % 10)

    def run(count: int, number: int) -> None:
        calls = []
        for peer, k in places:
            sent[peer, k][:count].fill_(value(comm.rank, peer, k, number))
            tag = tags_of(kind)[k]
            calls.append((Send(sent[peer, k][:count], peer, tag), k))
            calls.append((Recv(received[peer, k][:count], peer, tag), k))
        own.shuffle(calls)
        if kind == "twice":  # messages of one pair and tag match in the order of their calls
            calls.sort(key=lambda call: call[1])
        comm.batch([call for call, _ in calls], stream=stream, hold=True)
        for peer, k in places:
            wrong.add_((received[peer, k][:count] != value(peer, comm.rank, k, number)).sum())

    with torch.cuda.stream(stream):
        if kind == "captured":
            run(COUNTS[1], 0)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
                for number, count in enumerate(COUNTS):
                    run(count, number)
            for _ in range(rounds):
                graph.replay()
        else:
            for number in range(rounds):
                run(COUNTS[number % 4], number)
    stream.synchronize()
    assert float(wrong) == 0
    return comm.context.statistics().launches


@pytest.mark.parametrize("machine", gpus.MACHINES)
@pytest.mark.parametrize("kind", ["pair", "kernel", "many", "twice", "self"])
def test_crossed(machine: str, kind: str) -> None:
    launches = gpus.MACHINES[machine].run(
        2, functools.partial(batches, kind=kind, rounds=60, seed=1), timeout=90, operation_timeout=20
    )
    print("launches of the daemon:", launches)


@pytest.mark.parametrize("machine", ["processes"])
def test_captured(machine: str) -> None:
    gpus.MACHINES[machine].run(
        2, functools.partial(batches, kind="captured", rounds=30, seed=2), timeout=90, operation_timeout=20
    )


def captured_pairs(comm: Communicator, replays: int, attempts: int) -> dict[int, list[tuple[int, int]]]:
    """By size: residencies of the daemon and its parks in each attempt."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    meeting = torch.zeros(1, device=device)
    counts: dict[int, list[tuple[int, int]]] = {}
    for size_bytes in CAPTURED_BYTES:
        sent = torch.full((size_bytes // 4,), float(comm.rank), device=device)
        received = torch.full_like(sent, -1)
        replay, wrong = torch.zeros(1, device=device), torch.zeros(1, device=device)
        stream.wait_stream(torch.cuda.current_stream(device))
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
            sent.add_(1)
            replay.add_(1)
            comm.batch([Send(sent, following), Recv(received, before)], stream=stream, hold=True)
            wrong.add_((received != before + replay).sum())

        def run(times: int, graph: torch.cuda.CUDAGraph = graph) -> None:
            # The ranks leave this at the same time: no replay waits long for a peer's.
            comm.all_reduce(meeting, stream=stream, hold=True)
            stream.synchronize()
            for _ in range(times):
                graph.replay()
            stream.synchronize()

        with torch.cuda.stream(stream):
            run(3)  # the ranks meet in the graph's lanes, and open each other's buffers
            counts[size_bytes] = []
            for _ in range(attempts):
                comm.barrier().wait()
                time.sleep(0.02)  # who was late there may have called a daemon: it leaves
                statistics = comm.context.statistics()
                run(replays)
                now = comm.context.statistics()
                counts[size_bytes].append((now.launches - statistics.launches, now.parks - statistics.parks))
            assert float(wrong) == 0, f"{size_bytes} bytes"
            assert float(replay) == 3 + attempts * replays
    return counts


def test_a_captured_pair_needs_no_daemon() -> None:
    """Replays of a send and a receive begin in one kernel, which ends by itself unless a rank is late by 500 us."""
    ranks = gpus.MACHINES["processes"].run(
        2, functools.partial(captured_pairs, replays=50, attempts=12), timeout=90, operation_timeout=20
    )
    for counts in ranks:
        for size_bytes, attempts in counts.items():
            assert (0, 0) in attempts, f"{size_bytes} bytes: residencies and parks of {attempts}"


def test_a_wrong_call_starts_none() -> None:
    gpus.MACHINES["threads"].run(2, one_wrong_call, timeout=60, operation_timeout=20)


def one_wrong_call(comm: Communicator) -> None:
    import torch

    from starling.errors import InvalidArgumentError

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    x, y = torch.full((8,), float(comm.rank), device=device), torch.empty(8, device=device)
    stream.wait_stream(torch.cuda.current_stream(device))
    other = 1 - comm.rank
    with pytest.raises(InvalidArgumentError, match="peer 7"):
        comm.batch([Send(x, other), Recv(y, 7)], stream=stream, hold=True)
    comm.batch([Send(x, other), Recv(y, other)], stream=stream, hold=True)
    stream.synchronize()
    assert y.tolist() == [float(other)] * 8
