"""One rank of ``starling demo train``; torchrun starts it.

It trains twice from the same weights on the same batches: over backend starling, every rank launching its buckets'
all-reduces in a random order of its own with device synchronizations in between; then over gloo, in order.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import starling.cpu
import starling.torch
from starling import timeline
from starling.demo.digits import Digits, VisionTransformer, load_digits

PROGRESS = "@progress "  # how a line for the launcher begins


@dataclass(frozen=True)
class Settings:
    steps: int
    batch: int
    synchronize_every: int
    bucket_mib: float
    seed: int


@dataclass(frozen=True)
class Training:
    """What one training gave."""

    losses: list[float]
    step_s: list[float]
    accuracy: float


def tell(phase: str, step: int, loss: float) -> None:
    if dist.get_rank() == 0:
        print(PROGRESS + json.dumps({"phase": phase, "step": step, "loss": loss}), flush=True)


def train(
    settings: Settings,
    digits: Digits,
    group: dist.ProcessGroup | None,
    prepare: Callable[[DistributedDataParallel], None],
    phase: str,
) -> Training:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(settings.seed)
    model = DistributedDataParallel(
        VisionTransformer(),
        process_group=group,
        bucket_cap_mb=settings.bucket_mib,
        gradient_as_bucket_view=True,
    )
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    shuffled = torch.Generator().manual_seed(settings.seed)
    losses, step_s = [], []
    order = torch.randperm(len(digits.train_labels), generator=shuffled)
    for step in range(settings.steps):
        # Every rank shuffles alike and takes its own part of the batch.
        if len(order) < size * settings.batch:
            order = torch.randperm(len(digits.train_labels), generator=shuffled)
        chosen, order = order[: size * settings.batch][rank::size], order[size * settings.batch :]
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(digits.train_images[chosen]), digits.train_labels[chosen])
        loss.backward()
        optimizer.step()
        step_s.append(time.perf_counter() - start)
        mean = loss.detach() / size
        dist.all_reduce(mean, group=group)
        losses.append(float(mean))
        tell(phase, step + 1, losses[-1])
    model.eval()
    with torch.no_grad():
        right = model.module(digits.test_images).argmax(dim=1) == digits.test_labels
    return Training(losses, step_s, float(right.float().mean()))


def disordered(settings: Settings) -> tuple[starling.torch.ShuffledBuckets, Callable[[Any], None]]:
    state = starling.torch.ShuffledBuckets(
        seed=settings.seed * 1000 + dist.get_rank(),
        synchronize_every=settings.synchronize_every,
        synchronize=starling.cpu.synchronize,
    )

    def prepare(model: DistributedDataParallel) -> None:
        model.register_comm_hook(state, starling.torch.shuffled_ddp_hook)

    return state, prepare


def run(settings: Settings, folder: Path) -> None:
    digits = load_digits()
    rank = dist.get_rank()
    state, prepare = disordered(settings)
    ours = train(settings, digits, None, prepare, "starling")
    counters = starling.torch.statistics()
    events = timeline.of_torch(rank)
    dist.barrier()
    reference = train(settings, digits, dist.new_group(backend="gloo"), lambda model: None, "gloo")
    timeline.save(folder / f"events.{rank}.jsonl", events)
    (folder / f"rank.{rank}.json").write_text(
        json.dumps(
            {
                "rank": rank,
                "starling": ours.__dict__,
                "gloo": reference.__dict__,
                "statistics": counters,
                "orders": state.launched,
            }
        )
    )
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--synchronize-every", type=int, required=True)
    parser.add_argument("--bucket-mib", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    values = vars(parser.parse_args())
    folder = values.pop("folder")
    torch.set_num_threads(1)
    # In float32 the last bits, which depend on the order of a sum, grow to some percent of the loss in 150 steps.
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("starling")
    run(Settings(**values), folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
