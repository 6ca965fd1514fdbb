"""Checks of collectives that CUDA graphs capture and replay; each runs on every rank of a group of processes.

``python graph_checks.py RANKS [name ...]`` runs them, or those that are named (``batches.py``). A check raises where
something is wrong.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import graph_domains
import torch
import torch.distributed as dist
from torch_checks import Place, _reference, expect, keep_busy

CHECKS: dict[str, Callable[[Place], None]] = {}


def check(function: Callable[[Place], None]) -> Callable[[Place], None]:
    CHECKS[function.__name__] = function
    return function


def captured(body: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def replay_and_expect(
    p: Place, graph: torch.cuda.CUDAGraph, tensor: torch.Tensor, times: int, what: str, factor: float = 1
) -> None:
    """``graph`` reduces ``tensor`` in place, and multiplies by ``factor``."""
    for step in range(times):
        tensor.fill_(p.rank + step)
        graph.replay()
        expect(tensor, factor * (p.total(float) + p.size * step), f"{what}, replay {step}")


@check
def one(p: Place) -> None:
    tensor = p.filled(7)
    graph = captured(lambda: dist.all_reduce(tensor))
    torch.cuda.synchronize()
    expect(tensor, 7, "a capture runs nothing")
    replay_and_expect(p, graph, tensor, 5, "one all_reduce")


@check
def work_around(p: Place) -> None:
    """What the graph computes before and behind is ordered with the collective."""
    tensor, result = p.filled(0, 300_000), p.filled(0, 300_000)

    def body() -> None:
        tensor.add_(1)
        dist.all_reduce(tensor)
        torch.mul(tensor, 2, out=result)

    graph = captured(body)
    for step in range(20):
        tensor.fill_(p.rank + step)
        graph.replay()
        expect(result, 2 * (p.total(lambda r: r + 1) + p.size * step), f"replay {step}")


@check
def sizes(p: Place) -> None:
    tensors = [p.filled(0, count) for count in (1, 1000, 300_000, 5_000_000)]

    def body() -> None:
        for tensor in tensors:
            dist.all_reduce(tensor)

    graph = captured(body)
    for step in range(4):
        for tensor in tensors:
            tensor.fill_(p.rank + step)
        graph.replay()
        for tensor in tensors:
            expect(tensor, p.total(float) + p.size * step, f"{tensor.numel()} elements, replay {step}")


@check
def kinds(p: Place) -> None:
    count = 4000
    spread = torch.arange(p.size, device=p.device, dtype=torch.float32).repeat_interleave(count)
    broadcast, reduced = p.filled(0, count), p.filled(0, count)
    gathered, exchanged, scattered = (
        p.filled(0, count * p.size),
        p.filled(0, count * p.size),
        p.filled(0, count),
    )
    own, whole = p.filled(p.rank, count), p.filled(p.rank + 1, count * p.size)

    def body() -> None:
        dist.broadcast(broadcast, 1 % p.size)
        dist.all_gather_into_tensor(gathered, own)
        dist.reduce_scatter_tensor(scattered, whole)
        dist.all_to_all_single(exchanged, whole)
        dist.reduce(reduced, 0)
        dist.barrier()

    graph = captured(body)
    for _ in range(3):
        broadcast.fill_(p.rank)
        reduced.fill_(p.rank + 1)
        for tensor in (gathered, exchanged, scattered):
            tensor.fill_(-1)
        graph.replay()
        expect(broadcast, 1 % p.size, "broadcast")
        expect(gathered, spread, "all_gather_into_tensor")
        expect(scattered, p.total(lambda r: r + 1), "reduce_scatter_tensor")
        expect(exchanged, spread + 1, "all_to_all_single")
        if p.rank == 0:
            expect(reduced, p.total(lambda r: r + 1), "reduce")


@check
def unequal_parts(p: Place) -> None:
    sends = [10 * p.rank + to + 1 for to in range(p.size)]
    receives = [10 * source + p.rank + 1 for source in range(p.size)]
    output, source = p.filled(-1, sum(receives)), p.filled(p.rank, sum(sends))
    wanted = torch.cat([p.filled(rank, count) for rank, count in enumerate(receives)])
    graph = captured(lambda: dist.all_to_all_single(output, source, receives, sends))
    for step in range(3):
        source.fill_(p.rank + step)
        graph.replay()
        expect(output, wanted + step, f"all_to_all_single with splits, replay {step}")


@check
def asynchronous(p: Place) -> None:
    from starling.torch import lane

    tensors = [p.filled(0, 1000 << k) for k in range(8)]

    def body() -> None:
        works = []
        for k, tensor in enumerate(tensors):
            with lane(f"branch {k % 3}"):
                works.append(dist.all_reduce(tensor, async_op=True))
        for work in reversed(works):
            work.wait()
        for tensor in tensors:
            tensor.mul_(2)

    graph = captured(body)
    for step in range(5):
        for tensor in tensors:
            tensor.fill_(p.rank + step)
        graph.replay()
        for k, tensor in enumerate(tensors):
            expect(tensor, 2 * (p.total(float) + p.size * step), f"tensor {k}, replay {step}")


@check
def crossed_waits(p: Place) -> None:
    """One that holds the stream between two of its lane that do not: they take their numbers in the lane's order."""
    tensors = [p.filled(0, 4000 * (k + 1)) for k in range(4)]

    def body() -> None:
        first = dist.all_reduce(tensors[0], async_op=True)
        dist.all_reduce(tensors[1])
        second = dist.all_reduce(tensors[2], async_op=True)
        dist.all_reduce(tensors[3])
        second.wait()
        first.wait()

    graph = captured(body)
    for step in range(10):
        for k, tensor in enumerate(tensors):
            tensor.fill_((k + 1) * (p.rank + step))
        graph.replay()
        for k, tensor in enumerate(tensors):
            expect(tensor, (k + 1) * (p.total(float) + p.size * step), f"tensor {k}, replay {step}")


@check
def side_stream(p: Place) -> None:
    side = torch.cuda.Stream()
    tensor = p.filled(0)

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        tensor.mul_(3)
        torch.cuda.current_stream().wait_stream(side)

    replay_and_expect(p, captured(body), tensor, 3, "a work that another stream waits for", 3)


@check
def strided(p: Place) -> None:
    matrix = p.filled(0, 64 * 64).view(64, 64)
    graph = captured(lambda: dist.all_reduce(matrix.t()[::2]))
    for step in range(3):
        matrix.fill_(p.rank + step)
        graph.replay()
        wanted = torch.full_like(matrix, p.rank + step)
        wanted.t()[::2] = p.total(float) + p.size * step
        expect(matrix, wanted, f"a strided tensor, replay {step}")


@check
def temporaries(p: Place) -> None:
    """Memory of tensors that are dropped in the capture is not another's before the operation is complete."""
    result = p.filled(0, 100_000)

    def body() -> None:
        for k in range(10):
            part = result + k
            work = dist.all_reduce(part, async_op=True)
            other = part.new_full((100_000,), -1000.0)
            work.wait()
            result.copy_(part / p.size)
            del part, other

    graph = captured(body)
    for _ in range(3):
        result.fill_(p.rank)
        graph.replay()
        expect(result, p.total(float) / p.size + 45, "ten means of dropped tensors")


@check
def messages(p: Place) -> None:
    following, before = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    sent, received = p.filled(0, 50_000), p.filled(-1, 50_000)

    def body() -> None:
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, before)]
        )
        for work in works:
            work.wait()

    graph = captured(body)
    for step in range(4):
        sent.fill_(p.rank + step)
        graph.replay()
        expect(received, before + step, f"messages, replay {step}")


@check
def coalesced(p: Place) -> None:
    tensors = [p.filled(0) for _ in range(5)]

    def body() -> None:
        with dist._coalescing_manager(device=p.device):
            for tensor in tensors:
                dist.all_reduce(tensor)

    graph = captured(body)
    for step in range(3):
        for k, tensor in enumerate(tensors):
            tensor.fill_(p.rank + k + step)
        graph.replay()
        for k, tensor in enumerate(tensors):
            expect(tensor, p.total(float) + p.size * (k + step), f"tensor {k}, replay {step}")


@check
def beside_eager(p: Place) -> None:
    """Eager collectives before, between and behind replays, and some under way across them."""
    from starling.torch import lane

    tensor, eager, beside = p.filled(0, 200_000), p.filled(0, 5000), p.filled(0, 70_000)
    dist.all_reduce(eager)
    graph = captured(lambda: dist.all_reduce(tensor))
    for step in range(10):
        tensor.fill_(p.rank + step)
        beside.fill_(p.rank)
        eager.fill_(p.rank)
        with lane("beside"):
            work = dist.all_reduce(beside, async_op=True)
        graph.replay()
        dist.all_reduce(eager)
        dist.all_reduce(tensor)
        work.wait()
        expect(tensor, p.size * (p.total(float) + p.size * step), f"replayed and eager, {step}")
        expect(eager, p.total(float), "eager")
        expect(beside, p.total(float), "under way across a replay")


@check
def several(p: Place) -> None:
    tensors = [p.filled(0, 3000 * (k + 1)) for k in range(3)]
    graphs = [captured(lambda k=k: dist.all_reduce(tensors[k])) for k in range(3)]  # type: ignore[misc]
    chance = random.Random(5)
    for step in range(12):
        k = chance.randrange(3)
        replay_and_expect(p, graphs[k], tensors[k], 1 + step % 2, f"graph {k}")


@check
def any_order(p: Place) -> None:
    """Two graphs in streams of their own, replayed in another order on each rank."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    tensors = [p.filled(0, 20_000 * (k + 1)) for k in range(2)]
    graphs = [captured(lambda k=k: dist.all_reduce(tensors[k])) for k in range(2)]  # type: ignore[misc]
    chance = random.Random(p.rank)
    for step in range(20):
        for k in chance.sample(range(2), 2):
            with torch.cuda.stream(streams[k]):
                tensors[k].fill_(p.rank + step)
                graphs[k].replay()
            if chance.random() < 0.3:
                time.sleep(0.002)
        for k in range(2):
            streams[k].synchronize()
            expect(tensors[k], p.total(float) + p.size * step, f"graph {k}, step {step}")


@check
def late(p: Place) -> None:
    """A rank comes late to a replay: the others park, and their daemons go on."""
    tensor = p.filled(0, 50_000)
    graph = captured(lambda: dist.all_reduce(tensor))
    for step in range(6):
        if step % p.size == p.rank:
            time.sleep(0.05)
        tensor.fill_(p.rank + step)
        graph.replay()
        expect(tensor, p.total(float) + p.size * step, f"replay {step}")


@check
def late_gate(p: Place) -> None:
    """The same, waited for by a gate of its own."""
    tensor = p.filled(0, 50_000)

    def body() -> None:
        dist.all_reduce(tensor, async_op=True).wait()
        tensor.mul_(2)

    graph = captured(body)
    for step in range(6):
        if step % p.size == p.rank:
            time.sleep(0.05)
        replay_and_expect(p, graph, tensor, 1, f"step {step}", 2)


@check
def behind_computation(p: Place) -> None:
    """Replays that the host puts far ahead of the GPU."""
    tensor = p.filled(0)
    graph = captured(lambda: dist.all_reduce(tensor))
    tensor.fill_(1)
    keep_busy(30)
    for _ in range(20):
        graph.replay()
        tensor.div_(p.size)
    expect(tensor, 1, "twenty replays in a row")


@check
def many(p: Place) -> None:
    """More than a lane's ring has places: 150 in one graph, all waited for at its end."""
    tensors = [p.filled(0, 256) for _ in range(150)]

    def body() -> None:
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    graph = captured(body)
    for step in range(3):
        for k, tensor in enumerate(tensors):
            tensor.fill_(p.rank + step + k)
        graph.replay()
        for k, tensor in enumerate(tensors):
            expect(tensor, p.total(float) + p.size * (step + k), f"tensor {k}, replay {step}")


@check
def captured_again(p: Place) -> None:
    """Graphs that are dropped give their lanes back."""
    import starling.torch

    tensor = p.filled(0)
    lanes = []
    for step in range(12):
        graph = captured(lambda: dist.all_reduce(tensor))
        replay_and_expect(p, graph, tensor, 2, f"graph {step}")
        del graph
        torch.cuda.synchronize()
        dist.barrier()
        time.sleep(0.05)
        lanes.append(starling.torch.statistics()["lanes"])
    assert lanes[-1] <= lanes[0] + 1, f"lanes of dropped graphs stay: {lanes}"


@check
def futures(p: Place) -> None:
    tensor, result = p.filled(0), p.filled(0)

    def body() -> None:
        future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
        result.copy_(future.wait())

    graph = captured(body)
    for step in range(3):
        tensor.fill_(p.rank + step)
        graph.replay()
        expect(result, 2 * (p.total(float) + p.size * step), f"a future's callback, replay {step}")


@check
def domain(p: Place) -> None:
    """Kernels are in the domain of remote traffic, whatever the stream says: the program's do not wait for them."""
    tensors = [p.filled(0, count) for count in (1, 300_000, 5_000_000)]
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        graph_domains.map_domains(torch.cuda.current_stream(), 2, 3)
        if graph_domains.mapped_by(torch.cuda.current_stream()) != (2, 3):
            raise AssertionError("the stream has no map of its own")
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        dist.all_reduce(tensors[0])
        for work in works:
            work.wait()
    found = graph_domains.of_kernels(graph)
    if len(found) < 5 or any(one != (1, 0, 1) for one in found):  # starts, and a gate at least
        raise AssertionError(f"domain and map of the captured kernels: {found}")


@check
def ddp(p: Place) -> None:
    """A training step of DDP: forward, backward with its buckets' collectives, and the optimizer's."""
    from torch.nn.parallel import DistributedDataParallel

    wanted = _reference(p)
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers).to(p.device)
    begin = {name: value.clone() for name, value in model.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        wrapped = DistributedDataParallel(model, device_ids=[p.device], bucket_cap_mb=0.3)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        batch = torch.zeros(8, 256, device=p.device)
        for _ in range(11):
            optimizer.zero_grad(set_to_none=True)
            wrapped(batch).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    loss = torch.zeros((), device=p.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = wrapped(batch).square().mean()
        found.backward()
        optimizer.step()
        loss.copy_(found.detach())
        dist.all_reduce(loss)
    model.load_state_dict(begin)
    losses = []
    for step in range(4):
        torch.manual_seed(1 + step)
        whole = torch.randn(8 * p.size, 256, device=p.device)
        batch.copy_(whole[8 * p.rank : 8 * (p.rank + 1)])
        graph.replay()
        losses.append(float(loss) / p.size)
    if any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(losses, wanted, strict=True)):
        raise AssertionError(f"losses {losses} instead of {wanted}")


if __name__ == "__main__":
    import batches

    sys.exit(batches.main("graph_checks", list(CHECKS)))
