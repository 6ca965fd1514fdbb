"""Goal: PyTorch's parallelisms train over Starling as over gloo. Method: each trains a few steps on four ranks over a
group of either backend, from the same seed, and the losses or outputs are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn import functional

STEPS = 5


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.down(functional.relu(self.up(inputs)))


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(Mlp(), Mlp(), torch.nn.Linear(32, 8))


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [
        (torch.randn(8, 32, generator=generator), torch.randint(0, 8, (8,), generator=generator))
        for _ in range(STEPS)
    ]


def train(module: torch.nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    history = []
    for inputs, labels in batches(rank):
        loss = functional.cross_entropy(module(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def mesh_of(backend: str, shape: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """A mesh whose groups are of this backend."""
    override = dict.fromkeys(names, backend)
    return init_device_mesh("cpu", shape, mesh_dim_names=names, backend_override=override)


def fsdp2(backend: str) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    module, mesh = model(), mesh_of(backend, (4,), ("data",))
    for layer in module:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return train(module, dist.get_rank())


def hsdp(backend: str) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    module, mesh = model(), mesh_of(backend, (2, 2), ("replicate", "shard"))
    for layer in module:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return train(module, dist.get_rank())


def fsdp1(backend: str) -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    group = dist.new_group(backend=backend)
    history = train(
        FullyShardedDataParallel(model(), process_group=group, device_id=torch.device("cpu")), dist.get_rank()
    )
    dist.destroy_process_group(group)
    return history


def tensor_parallel(backend: str) -> list[float]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, mesh = model(), mesh_of(backend, (4,), ("model",))
    for layer in (module[0], module[1]):
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(module, 0)  # all ranks see the same batches


def sequence_parallel(backend: str) -> list[float]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, mesh = model(), mesh_of(backend, (4,), ("model",))
    for layer in (module[0], module[1]):
        plan = {
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0)),
        }
        parallelize_module(layer, mesh, plan)
    return [value.sum().item() for value in (module[:2](batches(0)[0][0].chunk(4)[dist.get_rank()]),)]


def two_dimensions(backend: str) -> list[float]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, mesh = model(), mesh_of(backend, (2, 2), ("data", "model"))
    for layer in (module[0], module[1]):
        parallelize_module(layer, mesh["model"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(module, mesh=mesh["data"])
    return train(module, dist.get_rank() // 2)


def redistribution(backend: str) -> list[float]:
    mesh = mesh_of(backend, (4,), ("all",))
    torch.manual_seed(1)
    whole = torch.randn(10, 7)  # divides by nothing
    sums = []
    for source in (Shard(0), Shard(1), Replicate()):
        for target in (Shard(0), Shard(1), Replicate()):
            moved = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
            torch.testing.assert_close(moved.full_tensor(), whole)
            sums.append(moved.to_local().sum().item())
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    product = sharded @ distribute_tensor(torch.ones(7, 3), mesh, [Replicate()])
    return [*sums, product.full_tensor().sum().item(), sharded.sum().full_tensor().item()]


def pipeline(backend: str) -> list[float]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    group = dist.new_group(backend=backend)
    rank = dist.get_rank()
    stages = [*model(), torch.nn.Linear(8, 8)]
    stage = PipelineStage(stages[rank], rank, 4, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=functional.cross_entropy)
    history: list[float] = []
    for inputs, labels in batches(0)[:3]:
        collected: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        elif rank == 3:
            schedule.step(target=labels, losses=collected)
        else:
            schedule.step()
        history.extend(loss.item() for loss in collected)
    history.append(sum(parameter.grad.abs().sum().item() for parameter in stages[rank].parameters()))
    dist.destroy_process_group(group)
    return history


def zero_optimizer(backend: str) -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    group = dist.new_group(backend=backend)
    module = DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.Adam, process_group=group, lr=0.01
    )
    history = []
    for inputs, labels in batches(dist.get_rank()):
        loss = functional.cross_entropy(module(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def uneven_inputs(backend: str) -> list[float]:
    """DDP's join: ranks run out of batches at different times."""
    from torch.nn.parallel import DistributedDataParallel

    group = dist.new_group(backend=backend)
    module = DistributedDataParallel(model(), process_group=group)
    history = []
    with module.join():
        for inputs, labels in batches(dist.get_rank())[: 1 + dist.get_rank()]:
            loss = functional.cross_entropy(module(inputs), labels)
            loss.backward()
            history.append(loss.item())
    history.append(sum(parameter.grad.sum().item() for parameter in module.parameters()))
    return history


def functional_collectives(backend: str) -> list[float]:
    import torch.distributed._functional_collectives as ops

    group = dist.new_group(backend=backend)
    mine = torch.arange(8.0) + dist.get_rank()
    results = [
        ops.all_reduce(mine, "sum", group),
        ops.all_gather_tensor(mine, 0, group),
        ops.reduce_scatter_tensor(mine, "sum", 0, group),
        ops.broadcast(mine, 2, group),
        *ops.all_reduce_coalesced([mine, mine * 2], "avg" if backend == "starling" else "sum", group),
        *ops.all_gather_into_tensor_coalesced([mine, mine[:3].contiguous()], group),
        *ops.reduce_scatter_tensor_coalesced([mine, mine[:4].contiguous()], "sum", [0, 0], group),
    ]
    values = [result.sum().item() for result in results]
    if backend == "starling":  # gloo has no average
        values[4], values[5] = values[4] * 4, values[5] * 4
    dist.destroy_process_group(group)
    return values


def expert_exchange(backend: str) -> list[float]:
    """Equal parts over gloo too; differentiable."""
    import torch.distributed._functional_collectives as ops

    group = dist.new_group(backend=backend)
    mine = (torch.arange(16.0).view(8, 2) * (1 + dist.get_rank())).requires_grad_()
    output = ops.all_to_all_single_autograd(mine, None, None, group)
    (output * (1 + dist.get_rank())).sum().backward()
    values = [output.sum().item(), *mine.grad[:, 0].tolist()]
    dist.destroy_process_group(group)
    return values


def checkpoint(backend: str) -> list[float]:
    """A sharded checkpoint saved and loaded again: gather, scatter and objects."""
    import tempfile

    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.fsdp import fully_shard

    group = dist.new_group(backend=backend)
    module = model()
    fully_shard(module, mesh=mesh_of(backend, (4,), ("data",)))
    train(module, dist.get_rank())
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0, group=group)
    saved = {name: value.full_tensor().clone() for name, value in module.state_dict().items()}
    checkpoint.save(module.state_dict(), checkpoint_id=folder[0], process_group=group)
    state = copy.copy(module.state_dict())
    for value in state.values():
        value.to_local().zero_()
    checkpoint.load(state, checkpoint_id=folder[0], process_group=group)
    for name, value in state.items():
        torch.testing.assert_close(value.full_tensor(), saved[name], rtol=0, atol=0)
    return [value.sum().item() for value in saved.values()]


def check_like_gloo(method: Callable[[str], list[float]]) -> None:
    ours, theirs = method("starling"), method("gloo")
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-4)
    dist.barrier()


def check_by_name(name: str) -> None:
    check_like_gloo(globals()[name])


@pytest.mark.parametrize(
    "method",
    [
        "fsdp2", "hsdp", "fsdp1", "tensor_parallel", "sequence_parallel", "two_dimensions", "redistribution",
        "pipeline", "zero_optimizer", "uneven_inputs", "functional_collectives", "expert_exchange", "checkpoint",
    ],
)  # fmt: skip
def test_like_gloo(ranks: RankPool, method: str) -> None:
    ranks.run(check_by_name, method)
