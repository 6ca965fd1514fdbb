"""A model small enough to train twice in a test: under DDP over one group, then over another, from the same start."""

from collections.abc import Callable

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 8
BUCKET_MB = 0.02  # several buckets


def losses(
    group: object, register_hook: Callable[[DistributedDataParallel], None] = lambda parallel: None
) -> list[float]:
    """The loss of every step on this rank; `register_hook` gets the model before the first."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    )
    parallel = DistributedDataParallel(model, process_group=group, bucket_cap_mb=BUCKET_MB)
    register_hook(parallel)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank())
    history = []
    for _ in range(STEPS):
        inputs = torch.randn(16, 64, generator=data)
        loss = torch.nn.functional.cross_entropy(parallel(inputs), inputs[:, :10].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def assert_same(ours: list[float], theirs: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
