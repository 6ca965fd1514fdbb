"""Checks of the PyTorch backend on CUDA tensors; each runs on every rank of a group of processes, one a GPU.

``python torch_checks.py RANKS [name ...]`` runs them, or those that are named, and prints a line for each; with HOSTS=n
the ranks take themselves for those of n hosts. A check raises where something is wrong. What should not block the
host is measured against a kernel that runs much longer.

long: one check a feature, read one by one.
"""

from __future__ import annotations

import copy
import datetime
import faulthandler
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = datetime.timedelta(seconds=20)
KILLED_TIMEOUT_S = 4
CHECKS: dict[str, Callable[[Place], None]] = {}


@dataclass
class Place:
    rank: int
    size: int
    device: torch.device

    def filled(self, value: float, count: int = 1000, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((count,), value, device=self.device, dtype=dtype)

    def total(self, of: Callable[[int], float]) -> float:
        return sum(of(rank) for rank in range(self.size))


def check(function: Callable[[Place], None]) -> Callable[[Place], None]:
    CHECKS[function.__name__] = function
    return function


def expect(seen: torch.Tensor, value: float | torch.Tensor, what: str) -> None:
    wanted = value if isinstance(value, torch.Tensor) else torch.full_like(seen, value)
    if not torch.equal(seen, wanted):
        raise AssertionError(
            f"{what}: {seen.flatten()[:8].tolist()} instead of {wanted.flatten()[:8].tolist()}"
        )


def keep_busy(ms: float) -> None:
    """The current stream computes for about so long."""
    torch.cuda._sleep(int(ms * 1.7e6))


@check
def collectives(p: Place) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for count in (1, 1000, 300_000):
            tensor = p.filled(p.rank + 1, count, dtype)
            dist.all_reduce(tensor)
            expect(tensor, p.total(lambda r: r + 1), f"all_reduce {dtype} {count}")
            tensor = p.filled(p.rank, count, dtype)
            dist.broadcast(tensor, 1 % p.size)
            expect(tensor, 1 % p.size, "broadcast")
            parts = [p.filled(-1, count, dtype) for _ in range(p.size)]
            dist.all_gather(parts, p.filled(p.rank, count, dtype))
            for rank, part in enumerate(parts):
                expect(part, rank, f"all_gather {dtype} {count}")
            whole = p.filled(-1, count * p.size, dtype)
            dist.all_gather_into_tensor(whole, p.filled(p.rank, count, dtype))
            expect(
                whole,
                torch.arange(p.size, device=p.device, dtype=dtype).repeat_interleave(count),
                "all_gather_into",
            )
            own = p.filled(-1, count, dtype)
            dist.reduce_scatter_tensor(own, p.filled(p.rank + 1, count * p.size, dtype))
            expect(own, p.total(lambda r: r + 1), "reduce_scatter_tensor")
            dist.all_to_all_single(whole, p.filled(p.rank, count * p.size, dtype))
            expect(
                whole,
                torch.arange(p.size, device=p.device, dtype=dtype).repeat_interleave(count),
                "all_to_all_single",
            )


@check
def unequal_parts(p: Place) -> None:
    sends = [10 * p.rank + to + 1 for to in range(p.size)]
    receives = [10 * source + p.rank + 1 for source in range(p.size)]
    output = p.filled(-1, sum(receives))
    dist.all_to_all_single(output, p.filled(p.rank, sum(sends)), receives, sends)
    wanted = torch.cat([p.filled(source, count) for source, count in enumerate(receives)])
    expect(output, wanted, "all_to_all_single with splits")


@check
def strided(p: Place) -> None:
    matrix = p.filled(p.rank + 1, 64 * 64).view(64, 64)
    dist.all_reduce(matrix.t()[::2])
    wanted = torch.full_like(matrix, p.rank + 1)
    wanted.t()[::2] = p.total(lambda r: r + 1)
    expect(matrix, wanted, "all_reduce of a strided tensor")


@check
def messages(p: Place) -> None:
    following, before = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for count in (1, 1000, 1_000_000):
        received = p.filled(-1, count)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, p.filled(p.rank, count), following),
                dist.P2POp(dist.irecv, received, before),
            ]
        )
        for work in works:
            work.wait()
        expect(received, before, "batch_isend_irecv")
        if p.rank % 2 == 0:
            dist.send(p.filled(p.rank, count), following)
            dist.recv(received, before)
        else:
            dist.recv(received, before)
            dist.send(p.filled(p.rank, count), following)
        expect(received, before, "send and recv")
    if p.rank == 0:
        dist.send(p.filled(7), 1, tag=5)
    elif p.rank == 1:
        received = p.filled(-1)
        assert dist.recv(received, tag=5) == 0
        expect(received, 7, "recv from any source")


@check
def messages_waited_for_or_not(p: Place) -> None:
    """A send or receive is kept back until its caller waits, goes on with the group, or does neither for a moment."""
    following, before = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    stream = torch.cuda.Stream()

    def pair(step: int) -> tuple[torch.Tensor, dist.Work, dist.Work]:
        received = p.filled(-1, 5000)
        arrives = dist.irecv(received, before)
        return received, arrives, dist.isend(p.filled(100 * step + p.rank, 5000), following)

    for step in range(12):
        received, arrives, leaves = pair(step)
        if step % 6 == 0:
            torch.cuda.synchronize()
        elif step % 6 == 1:
            time.sleep(0.002)
        elif step % 6 == 2:
            torch.cuda._sleep(100_000)
            leaves.wait()
        elif step % 6 == 3:
            while not (leaves.is_completed() and arrives.is_completed()):
                pass
        elif step % 6 == 4:
            with torch.cuda.stream(stream):  # not the one that was current at the call
                leaves.wait()
                arrives.wait()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            total = p.filled(1)
            dist.all_reduce(total)
            expect(total, p.size, "an all_reduce amid messages")
        arrives.wait()
        leaves.wait()
        expect(received, 100 * step + before, f"isend and irecv, way {step % 6}")
    value = p.filled(0, 3000)
    for _ in range(200):  # one behind the other in a stream: each adds 1
        for sender in range(2):
            if p.rank == sender:
                value.add_(1)
                dist.send(value, 1 - sender)
            elif p.rank == 1 - sender:
                dist.recv(value, sender)
    if p.rank < 2:
        expect(value, 400, "sends and receives in a row")
    works = [dist.isend(p.filled(k), following) for k in range(8)]
    tensors = [p.filled(-1) for _ in range(8)]
    for k, tensor in enumerate(tensors):
        dist.recv(tensor, before)
        expect(tensor, k, "messages of one pair in their order")
    for work in works:
        work.wait()
    everything = p.filled(-1).view(10, 100).t()
    arrives = dist.irecv(everything, before)
    future = dist.isend(p.filled(p.rank).view(10, 100).t(), following).get_future()
    arrives.wait()
    future.wait()
    expect(everything, before, "messages of strided tensors")


@check
def streams_are_waited_for(p: Place) -> None:
    """The current stream's work comes before, its later work after, and the host waits for neither."""
    tensor = p.filled(0)
    torch.cuda.synchronize()
    begin = time.monotonic()
    keep_busy(60)
    tensor.fill_(p.rank + 1)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    doubled = tensor * 2
    dist.all_reduce(doubled)
    tripled = doubled * 3
    took_ms = 1e3 * (time.monotonic() - begin)
    total = p.total(lambda r: r + 1)
    expect(tripled, 6 * total * p.size, "work behind the collectives")
    assert took_ms < 40, f"the host was blocked: {took_ms:.0f} ms"


@check
def side_streams(p: Place) -> None:
    stream = torch.cuda.Stream()
    tensor = p.filled(p.rank)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        keep_busy(5)
        tensor.add_(1)
        work = dist.all_reduce(tensor, async_op=True)
    work.wait()  # the other stream's
    expect(tensor, p.total(lambda r: r + 1), "a work that another stream waits for")


@check
def tensors_are_kept(p: Place) -> None:
    """Memory of dropped tensors is not used again before the collective has ended: what is gathered from a tensor that
    nobody else holds, nor the operation, is what was in it, though as many of its size are filled with something else
    meanwhile."""
    import starling.torch

    gathered, count = [], 1_000_000
    for step in range(20):
        keep_busy(1 + 3 * ((step + p.rank) % p.size))  # so that some read what others gave long ago
        gathered.append(p.filled(0, p.size * count))
        dist.all_gather_into_tensor(gathered[-1], p.filled(100 * step + p.rank, count), async_op=True)
        others = [p.filled(-1000, count) for _ in range(3)]
        del others
    until = time.monotonic() + 10
    while (counted := starling.torch.statistics())["completions"] < counted["submissions"]:
        assert time.monotonic() < until, counted  # nobody has a work to wait for
        time.sleep(0.001)
    for step, seen in enumerate(gathered):
        parts = torch.arange(p.size, device=p.device).repeat_interleave(count)
        expect(seen, (100.0 * step + parts).to(seen.dtype), f"what was dropped at step {step}")


@check
def futures(p: Place) -> None:
    from starling.torch import lane

    tensor = p.filled(p.rank)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    expect(future.wait(), 2 * p.total(float), "a future of the default lane")
    tensors = [p.filled(p.rank + k) for k in range(8)]
    order = list(range(8)) if p.rank % 2 else list(reversed(range(8)))
    chained = {}
    for k in order:
        with lane(f"future {k}"):
            chained[k] = (
                dist.all_reduce(tensors[k], async_op=True).get_future().then(lambda done: done.value()[0] + 1)
            )
    for k in range(8):
        expect(chained[k].wait(), 1 + p.total(float) + p.size * k, "futures of named lanes")


@check
def futures_asked_for_late(p: Place) -> None:
    """What rank 0 sends waits for the first all-reduce alone; the others need what comes behind that on rank 1."""
    tensors, message = [p.filled(p.rank + k) for k in range(3)], p.filled(-1 if p.rank == 1 else 7)
    works = [dist.all_reduce(tensors[0], async_op=True)]
    if p.rank == 1:
        dist.recv(message, 0)
        torch.cuda.synchronize()
    works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors[1:]]
    futures = [work.get_future() for work in reversed(works)]  # the last one's first
    if p.rank == 0:
        futures[2].wait()
        dist.send(message, 1)
    for k, future in enumerate(futures):
        future.wait()
        expect(tensors[2 - k], p.total(float) + p.size * (2 - k), "futures in reverse order")
    expect(message, 7.0, "what was sent behind the first")


@check
def futures_need_no_daemon(p: Place) -> None:
    import starling.torch

    tensor = p.filled(0, 6 << 20)
    dist.all_reduce(tensor)
    launches = []
    for _ in range(5):
        dist.barrier()
        torch.cuda.synchronize()
        time.sleep(0.05)  # a daemon of before has left
        before = starling.torch.statistics()["launches"]
        for _ in range(6):
            if p.rank == 1:
                time.sleep(0.002)  # the others wait at their places
            dist.all_reduce(tensor, async_op=True).get_future()
        torch.cuda.synchronize()
        launches.append(starling.torch.statistics()["launches"] - before)
    if 0 not in launches:
        raise AssertionError(f"daemons launched for operations that streams stand for: {launches}")


@check
def waited_messages_need_no_daemon(p: Place) -> None:
    import starling.torch

    tensor = p.filled(0, 16)

    def there_and_back() -> None:
        for sender in (0, 1):
            if p.rank == sender:
                dist.send(tensor, 1 - p.rank)
            elif p.rank == 1 - sender:
                dist.recv(tensor, sender)
        torch.cuda.synchronize()

    for _ in range(3):
        there_and_back()
    launches = []
    for _ in range(5):
        time.sleep(0.05)  # a daemon of before has left
        before = starling.torch.statistics()["launches"]
        for _ in range(6):
            there_and_back()
        launches.append(starling.torch.statistics()["launches"] - before)
    if 0 not in launches:
        raise AssertionError(f"daemons launched for messages that their caller waits for: {launches}")


def _disordered(p: Place, synchronize: bool) -> None:
    import random

    from starling.torch import lane

    order = random.Random(p.rank)
    tensors = [p.filled(0, 64 << k) for k in range(8)]
    for iteration in range(20):
        for tensor in tensors:
            tensor.fill_(p.rank + iteration)
        works = {}
        for k in order.sample(range(8), 8):
            with lane(f"disorder {k}"):
                works[k] = dist.all_reduce(tensors[k], async_op=True)
            if synchronize:
                torch.cuda.synchronize()
        for work in works.values():
            work.wait()
        for tensor in tensors:
            expect(tensor, p.total(float) + p.size * iteration, "disordered lanes")


def _held_group() -> dist.ProcessGroup:
    from starling.torch import Options

    group = dist.new_group(pg_options=Options(hold_streams=True))
    connected = torch.zeros(1, device="cuda")
    dist.all_reduce(connected, group=group)
    torch.cuda.synchronize()
    return group


@check
def synchronization_waits_for_held_streams(p: Place) -> None:
    """With hold_streams a device synchronization returns when what was issued before is complete, as NCCL's do."""
    from starling.torch import lane

    group = _held_group()
    following, before = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for step in range(6):
        tensor, received = p.filled(p.rank + step), p.filled(-1)
        dist.barrier(group=group)
        if p.rank == step % p.size:
            time.sleep(0.2)  # the others synchronize meanwhile
        works = [dist.all_reduce(tensor, group=group, async_op=True)]
        named = p.filled(p.rank)
        with lane("held"):
            works.append(dist.all_reduce(named, group=group, async_op=True))
        if step % 2 == 0:
            works.append(dist.irecv(received, before, group=group))
            works.append(dist.isend(p.filled(p.rank), following, group=group))
        else:
            messages = [
                dist.P2POp(dist.irecv, received, before, group=group),
                dist.P2POp(dist.isend, p.filled(p.rank), following, group=group),
            ]
            works += dist.batch_isend_irecv(messages)
        torch.cuda.synchronize()
        # Copies in a stream that waits for nobody: nothing but the synchronization has waited.
        with torch.cuda.stream(torch.cuda.Stream()):
            seen = [one.cpu() for one in (tensor, named, received)]
        expect(seen[0], p.total(float) + p.size * step, f"synchronized, default lane, step {step}")
        expect(seen[1], p.total(float), f"synchronized, named lane, step {step}")
        expect(seen[2], before, f"synchronized, message, step {step}")
        for work in works:
            work.wait()
    dist.destroy_process_group(group)


@check
def lanes_of_held_streams_in_any_order(p: Place) -> None:
    """What one rank waits for before it issues the other finishes, whatever order the other rank has."""
    from starling.torch import lane

    group = _held_group()
    for step in range(10):
        default, named = p.filled(p.rank + step), p.filled(p.rank)

        def in_lane(tensor: torch.Tensor = named) -> dist.Work:
            with lane("other"):
                return dist.all_reduce(tensor, group=group, async_op=True)

        if p.rank % 2 == 0:
            works = [dist.all_reduce(default, group=group, async_op=True), in_lane()]
        else:
            works = [in_lane()]
            works[0].wait()
            works.append(dist.all_reduce(default, group=group, async_op=True))
        future = works[0].get_future() if step % 2 else None
        for work in works:
            work.wait()
        if future is not None:
            future.wait()
        expect(default, p.total(float) + p.size * step, "the default lane's")
        expect(named, p.total(float), "the named lane's")
    dist.destroy_process_group(group)


@check
def disorder(p: Place) -> None:
    _disordered(p, synchronize=False)


@check
def disorder_with_synchronization(p: Place) -> None:
    _disordered(p, synchronize=True)


@check
def groups_in_any_order(p: Place, synchronize: bool = False) -> None:
    groups = [dist.new_group(range(p.size)) for _ in range(4)]
    for group in groups:
        dist.all_reduce(p.filled(1), group=group)  # all connect in one order
    tensors = [p.filled(p.rank + k) for k in range(4)]
    order = range(4) if p.rank % 2 else reversed(range(4))
    works = {}
    for k in order:
        works[k] = dist.all_reduce(tensors[k], group=groups[k], async_op=True)
        if synchronize:
            torch.cuda.synchronize()
    for k in range(4):
        works[k].wait()
        expect(tensors[k], p.total(float) + p.size * k, "groups in any order")
    for group in groups:
        dist.destroy_process_group(group)


@check
def groups_in_any_order_with_synchronization(p: Place) -> None:
    groups_in_any_order(p, synchronize=True)


@check
def coalesced(p: Place) -> None:
    tensors = [p.filled(p.rank + k) for k in range(5)]
    with dist._coalescing_manager(device=p.device):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for k, tensor in enumerate(tensors):
        expect(tensor, p.total(float) + p.size * k, "a coalescing block")


@check
def barriers(p: Place) -> None:
    begin = time.monotonic()
    if p.rank == 1:
        time.sleep(0.2)
    dist.barrier()
    assert time.monotonic() - begin > 0.19 or p.rank == 1, "barrier returned before the last rank came"


def _trained(p: Place, wrap: Callable[[torch.nn.Module], torch.nn.Module], steps: int = 4) -> list[float]:
    torch.manual_seed(0)
    model = wrap(
        torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.Tanh())]).to(
            p.device
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(1 + step)
        batch = torch.randn(8 * p.size, 256, device=p.device)[8 * p.rank : 8 * (p.rank + 1)]
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / p.size)
    return losses


def _reference(p: Place, steps: int = 4) -> list[float]:
    whole = Place(0, 1, p.device)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *[m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
    ).to(p.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(1 + step)
        loss = model(torch.randn(8 * p.size, 256, device=whole.device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _same_losses(p: Place, losses: list[float]) -> None:
    wanted = _reference(p)
    if any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(losses, wanted, strict=True)):
        raise AssertionError(f"losses {losses} instead of {wanted}")


@check
def ddp(p: Place) -> None:
    from torch.nn.parallel import DistributedDataParallel

    _same_losses(
        p, _trained(p, lambda m: DistributedDataParallel(m, device_ids=[p.device], bucket_cap_mb=0.3))
    )


@check
def ddp_with_lanes_and_synchronization(p: Place) -> None:
    from torch.nn.parallel import DistributedDataParallel

    import starling.torch

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        wrapped = DistributedDataParallel(model, device_ids=[p.device], bucket_cap_mb=0.3)
        wrapped.register_comm_hook(None, starling.torch.ddp_hook)
        return wrapped

    _same_losses(p, _trained(p, wrap))


@check
def ddp_in_orders_of_ranks_own(p: Place) -> None:
    """Buckets that are held back until the last, of which two wait for each other, and with synchronizations."""
    from torch.nn.parallel import DistributedDataParallel

    import starling.torch

    for held_back, synchronize_every in ((0, 0), (2, 0), (2, 1)):
        state = starling.torch.ShuffledBuckets(
            *(p.rank, synchronize_every), synchronize=torch.cuda.synchronize, held_back=held_back
        )

        def wrap(model: torch.nn.Module, state: starling.torch.ShuffledBuckets = state) -> torch.nn.Module:
            wrapped = DistributedDataParallel(model, device_ids=[p.device], bucket_cap_mb=0.1)
            wrapped.register_comm_hook(state, starling.torch.shuffled_ddp_hook)
            return wrapped

        _same_losses(p, _trained(p, wrap))
        orders: list[list[list[int]]] = [[] for _ in range(p.size)]
        dist.all_gather_object(orders, state.launched)
        assert len(orders[0][-1]) > 2, "too few buckets: nothing was shuffled"
        assert orders[0] != orders[1], f"both ranks launched in the order {orders[0]}"


@check
def fsdp2(p: Place) -> None:
    from torch.distributed.fsdp import fully_shard

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        return fully_shard(model)

    _same_losses(p, _trained(p, wrap))


@check
def no_context_on_another_gpu(p: Place) -> None:
    """What ends on threads of ours, as the events of messages do, makes no context on GPU 0, another rank's."""
    from starling.torch import lane

    following, before = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for _ in range(2):
        send = dist.P2POp(dist.isend, p.filled(1, 1_000_000), following)
        receive = dist.P2POp(dist.irecv, p.filled(0, 1_000_000), before)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
        del work
        staged = p.filled(1, 64 * 64).view(64, 64).t()[::2]  # copied to a tensor whose elements lie in a row
        dist.all_reduce(staged, async_op=True).wait()
        torch.cuda.synchronize()
        with lane("behind"):  # callbacks run in the order of completion: those before have returned
            dist.all_reduce(p.filled(0), async_op=True).get_future().wait()
    made = [k for k in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(k)]
    assert made == [p.device.index], made


@check
def tensor_parallel(p: Place) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).to(
        p.device
    )
    batch = torch.randn(16, 64, device=p.device, requires_grad=True)  # its gradient is a sum over the ranks
    alone = copy.deepcopy(model)
    wanted = alone(batch)
    wanted.square().sum().backward()
    gradients = [batch.grad, *(one.grad for one in alone.parameters())]
    batch.grad = None
    mesh = init_device_mesh("cuda", (p.size,))
    parallel = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    seen = parallel(batch)
    torch.testing.assert_close(seen, wanted, rtol=1e-4, atol=1e-5)
    seen.square().sum().backward()
    own = [batch.grad, *(one.grad.full_tensor() for one in parallel.parameters())]
    for gradient, whole in zip(own, gradients, strict=True):
        torch.testing.assert_close(gradient, whole, rtol=1e-4, atol=1e-4)


@check
def pipelining(p: Place) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64).to(p.device) for _ in range(p.size)]
    batch = torch.randn(16, 64, device=p.device)
    alone = torch.nn.Sequential(*copy.deepcopy(layers))
    wanted = alone(batch)
    wanted.square().mean().backward()
    stage = PipelineStage(layers[p.rank], p.rank, p.size, p.device)
    schedule = Schedule1F1B(
        stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean()
    )
    losses: list[torch.Tensor] = []
    target = torch.zeros_like(batch)
    if p.size == 1:
        torch.testing.assert_close(schedule.step(batch, target=target, losses=losses), wanted)
    elif p.rank == 0:
        schedule.step(batch)
    elif p.rank == p.size - 1:
        seen = schedule.step(target=target, losses=losses)
        torch.testing.assert_close(seen, wanted, rtol=1e-4, atol=1e-5)
    else:
        schedule.step()
    torch.cuda.synchronize()
    for own, whole in zip(layers[p.rank].parameters(), alone[p.rank].parameters(), strict=True):
        torch.testing.assert_close(own.grad, whole.grad, rtol=1e-4, atol=1e-6)
    if p.rank == p.size - 1:
        of_parts = torch.stack([part.square().mean() for part in wanted.chunk(4)])
        torch.testing.assert_close(torch.stack(losses), of_parts, rtol=1e-4, atol=1e-6)


def _run(rank: int, size: int, folder: str, names: list[str], killed: bool) -> None:
    faulthandler.dump_traceback_later(45)  # what a rank that hangs was doing
    if hosts := int(os.environ.get("HOSTS", "0")):
        os.environ["STARLING_HOST_ID"] = f"host {rank * hosts // size}"
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    import starling.torch

    timeout = datetime.timedelta(seconds=KILLED_TIMEOUT_S) if killed else TIMEOUT
    dist.init_process_group(
        "starling",
        store=dist.FileStore(f"{folder}/store", size),
        rank=rank,
        world_size=size,
        timeout=timeout,
        device_id=device,
    )
    place = Place(rank, size, device)
    if killed:
        return _die_and_notice(place)
    failed = []
    for name in names:
        begin = time.monotonic()
        try:
            CHECKS[name](place)
            verdict = "ok"
        except Exception:
            verdict = "FAILED\n" + traceback.format_exc()
            failed.append(name)
        if rank == 0 or verdict != "ok":
            print(f"[{rank}] {name}: {verdict} ({time.monotonic() - begin:.2f} s)", flush=True)
        if failed:
            sys.stdout.flush()
            os._exit(1)  # the others' collectives end with an error that names us
    if rank == 0:
        print({k: v for k, v in starling.torch.statistics().items() if v}, flush=True)
    dist.destroy_process_group()


def error_of(call: Callable[[], object], within_s: float) -> str:
    """What ``call`` raises at last: an operation's error is told by the next one of its group."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            call()
        except RuntimeError as error:
            return str(error)
        time.sleep(0.02)
    raise AssertionError("no error")


@check
def timed_out(p: Place) -> None:
    """A rank that does not call holds the others' streams until the group's timeout, and then their errors name it."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    tensor = p.filled(1, 1_000_000)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    dist.barrier()
    if p.rank != p.size - 1:
        begin = time.monotonic()
        dist.all_reduce(tensor, group=group)  # the stream waits, not we
        torch.cuda.synchronize()
        took = time.monotonic() - begin
        assert 1 < took < 5, f"the stream was released after {took:.2f} s"
        text = error_of(lambda: dist.all_reduce(tensor, group=group), 3)
        assert f"rank {p.size - 1} has not called it" in text, text
    dist.barrier()


@check
def aborted(p: Place) -> None:
    """An abort releases the streams of all ranks, long before any timeout, and the others' errors say what it was."""
    group = dist.new_group()
    tensor = p.filled(1, 1_000_000)
    dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.monotonic()
    if p.rank == p.size - 1:
        time.sleep(0.5)  # the others' operation is under way
        dist.distributed_c10d._abort_process_group(group)
    else:
        dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()
        took = time.monotonic() - begin
        assert took < 5, f"the stream was released after {took:.2f} s"
        text = error_of(lambda: dist.all_reduce(tensor, group=group), 3)
        assert "abort" in text, text
    dist.barrier()


def _die_and_notice(p: Place) -> None:
    """The last rank dies; the others' streams go on, and their next look at the work tells why."""
    tensor = p.filled(1, 1_000_000)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if p.rank == p.size - 1:
        os._exit(7)
    begin = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()  # the stream's wait, not ours
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    try:
        for _ in range(200):
            dist.all_reduce(tensor)
            time.sleep(0.02)
        raise SystemExit("no error though a rank is dead")
    except Exception as error:
        if "died" not in str(error):
            raise
        told = time.monotonic() - begin
        # Within the timeout; the second is for a host that others use: the error waits for our next call.
        assert told < KILLED_TIMEOUT_S + 1, f"told after {told:.2f} s"
        print(
            f"[{p.rank}] a dead rank: the stream went on after {took:.2f} s: {str(error)[:120]}", flush=True
        )
    os._exit(0)


def main() -> int:
    size = int(sys.argv[1])
    names = sys.argv[2:] or list(CHECKS)
    killed = names == ["killed"]
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("fork")  # with PyTorch imported; no CUDA call was made yet
        ranks = [
            context.Process(target=_run, args=(rank, size, folder, names, killed)) for rank in range(size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    codes = [process.exitcode for process in ranks]
    wanted = [0] * (size - 1) + [7 if killed else 0]
    print("exit codes", codes)
    return 0 if codes == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
