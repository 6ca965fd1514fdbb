"""Checks of plans of one's own on CUDA tensors, through PyTorch: ``python torch_plans.py RANKS [name ...]``.

Each runs on every rank of a group of processes, one a GPU, as those of torch_checks.py.
"""

import random
import sys

import torch
import torch.distributed as dist
from starling.plans import program
from torch_checks import CHECKS, Place, check, expect, keep_busy, main

import starling.torch
from programs.own import collected, everything, neighbours

CHECKS.clear()  # of those that are registered there


@check
def results(p: Place) -> None:
    """Waited for or not, the stream's later work sees the result, and the operation its earlier work."""
    for made in (neighbours(p.size), collected(p.size), everything(p.size)):
        starling.torch.add_plan(made, device=p.device)
    total = p.size * (p.size - 1) // 2
    for count in (1, 777, 500_000):
        base = torch.arange(count, device=p.device) % 1000
        for async_op in (False, True):
            data, out, both = (
                base.clone(),
                torch.empty_like(base),
                torch.empty(2 * count, device=p.device).to(base),
            )
            keep_busy(2)
            data += p.rank
            works = [
                starling.torch.run_plan("neighbours", data, out, async_op=async_op),
                starling.torch.run_plan("collected", data, both, async_op=async_op),
            ]
            for work in works:
                assert (work is not None) == async_op
                if work is not None:
                    work.wait()
            sums = out + 0
            expect(sums, 2 * base + p.rank + (p.rank + 1) % p.size, "neighbours")
            expect(both, torch.cat([base + (p.rank - 1) % p.size, p.size * base + total]), "collected")
            starling.torch.run_plan("everything", data)
            expect(data, p.size * base + total, "everything")


@check
def disorder(p: Place) -> None:
    """Lanes in an order of each rank's own, with synchronizations of the device between."""
    starling.torch.add_plan(neighbours(p.size), device="cuda")
    own = random.Random(p.rank)
    for _ in range(20):
        inputs = [
            torch.full((1000 * (lane + 1),), float(p.rank + lane), device=p.device) for lane in range(6)
        ]
        outputs = [torch.empty_like(tensor) for tensor in inputs]
        works = []
        for lane in own.sample(range(6), 6):
            with starling.torch.lane(f"plan {lane}"):
                works.append(
                    starling.torch.run_plan("neighbours", inputs[lane], outputs[lane], async_op=True)
                )
            if own.random() < 0.2:
                torch.cuda.synchronize()
        for work in works:
            assert work is not None
            work.wait()
        for lane, tensor in enumerate(outputs):
            expect(tensor, float(p.rank + (p.rank + 1) % p.size + 2 * lane), f"lane {lane}")


@check
def named(p: Place) -> None:
    """A program serves the library's own collective; a plan for the CPU does not serve the GPU."""
    made = program("all_reduce", "two_shot", p.size, in_place=True, instances=4)
    starling.torch.add_plan(made, device=p.device)
    for count in (3, 100_000):
        tensor = p.filled(p.rank + 1, count)
        with starling.torch.lane("planned", algorithm="two_shot"):
            dist.all_reduce(tensor)
        expect(tensor, p.total(lambda rank: rank + 1), "all_reduce by a plan")
    starling.torch.add_plan(neighbours(p.size), device="cpu")
    ones = torch.ones(8)
    starling.torch.run_plan("neighbours", ones, out := torch.empty(8))
    expect(out, 2.0, "neighbours on the CPU")
    try:
        starling.torch.run_plan("neighbours", p.filled(1), p.filled(1))
    except RuntimeError as error:
        assert "no plan named 'neighbours' was added to this group for tensors of cuda" in str(error), error
    else:
        raise AssertionError("a plan for the CPU ran on a GPU")


@check
def all_to_next(p: Place) -> None:
    """The library's own needs no plan: small and large, each rank's lanes in an order of its own."""
    counts = (1, 1000, 100_000, 3_000_000)
    inputs = [torch.arange(count, device=p.device) + 7 * p.rank for count in counts]
    outputs = [torch.full_like(tensor, -1) for tensor in inputs]
    works = []
    for lane in random.Random(p.rank).sample(range(len(counts)), len(counts)):
        with starling.torch.lane(f"next {lane}"):
            works.append(
                starling.torch.run_plan(
                    "all_to_next" if lane % 2 else "all_to_next_direct",
                    inputs[lane],
                    outputs[lane],
                    async_op=True,
                )
            )
    torch.cuda.synchronize()
    for work in works:
        assert work is not None
        work.wait()
    for count, tensor in zip(counts, outputs, strict=True):
        before = torch.arange(count, device=p.device) + 7 * (p.rank - 1)
        wanted = before if p.rank else torch.full_like(before, -1)
        assert torch.equal(tensor, wanted), (count, tensor[:8], wanted[:8])


if __name__ == "__main__":
    sys.exit(main())
