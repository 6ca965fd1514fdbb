"""The side of one rank of bench/train.py: a process that runs all cases in turns, and writes a line for each.

The rank's processes control each other over gloo, so that neither of the libraries that are compared has a part in it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .gradients import BUCKETS_HELD_BACK, Bucketed, Coordinated, Unbucketed
from .models import ALONE, TensorParallel, Workload, parameter_count, workloads
from .profile import profiled, spent, threads
from .sharded import FullySharded

# What is compared: by name, which library it is for ("" any) and of which models it makes sense.
CASES = {
    "bucketed": "DistributedDataParallel",
    "bucketed, own order": "of three buckets that are ready each rank launches a random one (Starling alone)",
    "bucketed, shuffled": "the same in one random order of all ranks: what it costs to hold buckets back",
    "bucketed at the end": "all buckets held back until the last is ready, launched in one random order",
    "bucketed at the end, own order": "the same, in a random order of each rank's own (Starling alone)",
    "unbucketed": "an all-reduce a gradient, in autograd's order, which is the same on all ranks",
    "unbucketed, own order": "gradients launched in a random order of each rank's own (Starling alone)",
    "unbucketed, coordinated": "such orders, made one by a coordinator as Horovod does (what NCCL and gloo need)",
    "tensor parallel": "layers cut over pairs of ranks, bucketed over the rest (transformers)",
    "fully sharded": "FSDP2: a part of each parameter on each rank, gathered layer by layer (transformers)",
    "fully sharded, prefetched": "the same, gathered two layers ahead",
    "pipeline": "1F1B over stages, with microbatches (transformers)",
    "pipeline, sm_free": "the same, messages by copy engines (Starling on GPUs)",
}
MICROBATCHES = 8


@dataclass(frozen=True)
class Case:
    workload: Workload
    way: str
    library: str

    def makes_sense(self, ranks: int, on_gpu: bool) -> bool:
        starling = self.library == "starling"
        if self.way.endswith("own order") and not starling:
            return False
        if self.way == "unbucketed, coordinated" and starling:
            return False
        if self.way == "pipeline, sm_free" and not (starling and on_gpu):
            return False
        if self.way.startswith("fully sharded"):
            return self.workload.layers > 0
        if self.way.startswith(("tensor", "pipeline")):
            return self.workload.layers > 0 and ranks % 2 == 0
        return not (self.way.startswith("unbucketed") and self.workload.layers > 0)


class Clock:
    """Times between marks, in seconds: of the GPU's own where there is one, which nobody has to wait for."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        self._marks.append(
            torch.cuda.current_stream().record_event(torch.cuda.Event(enable_timing=True))
            if self._cuda
            else time.perf_counter()
        )

    def seconds(self) -> list[float]:
        if self._cuda:
            torch.cuda.synchronize()
            pairs = zip(self._marks, self._marks[1:], strict=False)
            return [first.elapsed_time(second) * 1e-3 for first, second in pairs]
        return [second - first for first, second in zip(self._marks, self._marks[1:], strict=False)]


class Rank:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.rank, self.size = options.rank, options.size
        self.half = device.type == "cuda"
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(f"{options.folder}/store", self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=datetime.timedelta(seconds=60),
        )
        self.groups: dict[tuple[str, tuple[int, ...], bool], Any] = {}

    def group(self, library: str, ranks: tuple[int, ...], sm_free: bool = False) -> Any:
        """Of these ranks; all ranks call alike."""
        key = (library, ranks, sm_free)
        if key not in self.groups:
            more: dict[str, Any] = {}
            if sm_free:
                import starling.torch

                more["pg_options"] = starling.torch.Options(sm_free=True)
            self.groups[key] = dist.new_group(list(ranks), backend=library, **more)
        return self.groups[key]

    def world(self, library: str) -> Any:
        return self.group(library, tuple(range(self.size)))

    # ---- one case -------------------------------------------------------------------------------------
    def run(self, case: Case) -> dict[str, Any]:
        torch.manual_seed(self.options.seed)
        step = self._pipeline(case) if case.way.startswith("pipeline") else self._data_parallel(case)
        clock = Clock(self.device)
        losses: list[torch.Tensor] = []
        total = self.options.warmup + self.options.iterations
        dist.barrier()
        for iteration in range(total):
            if iteration == self.options.warmup:
                before = threads()
                clock.mark()
            losses.append(step.one())
            if iteration >= self.options.warmup:
                clock.mark()
        seconds = clock.seconds()
        profile = {}
        if self.options.profile:
            cpu = spent(before, self.options.iterations)
            dist.barrier()
            profile = {"profile": {**profiled(step.one, self._trace_of(case)), "threads": cpu}}
        step.close()
        history = torch.stack([loss.detach().float().cpu() for loss in losses])
        dist.all_reduce(history)
        history /= step.with_loss
        samples = step.samples
        mean = statistics.fmean(seconds)
        return {
            "model": case.workload.name,
            "way": case.way,
            "library": case.library,
            "parameters": step.parameters,
            "gradients": step.gradients,
            "samples": samples,
            "samples_per_s": round(samples / mean, 2),
            "cv": round(statistics.pstdev(seconds) / mean, 4),
            "step_ms": round(mean * 1e3, 4),
            "median_step_ms": round(statistics.median(seconds) * 1e3, 4),
            "steps_ms": [round(each * 1e3, 2) for each in seconds],
            "losses": [round(float(loss), 5) for loss in history],
            **({"coordinator_cycles": round(step.cycles() / total, 1)} if step.cycles else {}),
            **profile,
        }

    def _trace_of(self, case: Case) -> Path | None:
        if not self.options.traces:
            return None
        words = f"{case.workload.name} {case.way} {case.library} {self.rank}".replace(",", "").split()
        return Path(self.options.traces, "_".join(words) + ".json")

    def _batches(
        self, workload: Workload, stream: int, batch: int
    ) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
        """A few batches that come round, on the device already: what is measured is not the CPU's drawing."""
        generator = torch.Generator().manual_seed(1000 * self.options.seed + stream)
        drawn = [tuple(part.to(self.device) for part in workload.draw(generator, batch)) for _ in range(4)]
        if self.half and workload.layers == 0:
            drawn = [
                (images.contiguous(memory_format=torch.channels_last), labels) for images, labels in drawn
            ]
        turn = iter(range(sys.maxsize))
        return lambda: drawn[next(turn) % len(drawn)]  # type: ignore[return-value]

    def _half(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)

    def _way(self, case: Case, model: nn.Sequential, group: Any) -> Any:
        seed, own = 100 * self.options.seed + self.rank, case.way.endswith("own order")
        if case.way.startswith("fully sharded"):
            return FullySharded(model, group, self.half, case.way.endswith("prefetched"))
        if case.way == "unbucketed, coordinated":
            return Coordinated(model, group, seed)
        if case.way.startswith("unbucketed"):
            return Unbucketed(model, group, seed if own else None)
        plain = case.way in ("bucketed", "tensor parallel")
        return Bucketed(
            *(model, group, None if plain else seed if own else self.options.seed),
            held_back=0 if "at the end" in case.way else BUCKETS_HELD_BACK,
            own=own,
        )

    def _data_parallel(self, case: Case) -> Step:
        workload, library = case.workload, case.library
        cut = 2 if case.way == "tensor parallel" else 1
        over, group = ALONE, self.world(library)
        if cut > 1:
            pairs = [tuple(range(first, first + cut)) for first in range(0, self.size, cut)]
            rows = [tuple(range(first, self.size, cut)) for first in range(cut)]
            in_pairs = [self.group(library, ranks) for ranks in pairs]
            in_rows = [self.group(library, ranks) for ranks in rows]
            over = TensorParallel(in_pairs[self.rank // cut], self.rank % cut, cut)
            group = in_rows[self.rank % cut]
        with self.device:  # drawn where it will be: as fast as there, and alike on all ranks
            model = workload.build(over)
        if self.half and workload.layers == 0:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        way = self._way(case, model, group)
        # What is fully sharded has a precision of its own.
        half: Any = contextlib.nullcontext if isinstance(way, FullySharded) else self._half
        parameters = list(model.parameters())  # as the way has them
        optimizer = workload.optimizer(parameters)
        each = self.options.batch or workload.batch
        draw = self._batches(workload, self.rank // cut, each)

        def one() -> torch.Tensor:
            inputs, target = draw()
            way.begin()
            optimizer.zero_grad(set_to_none=True)
            with half():
                loss = workload.loss(way.model(inputs), target)
            loss.backward()
            way.finish()
            optimizer.step()
            return loss

        cycles = (lambda: way.cycles) if isinstance(way, Coordinated) else None
        samples = each * self.size // cut
        return Step(one, way.close, samples, self.size, parameter_count(model), len(parameters), cycles)

    def _pipeline(self, case: Case) -> Step:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        workload, last = case.workload, self.size - 1
        group = self.group(case.library, tuple(range(self.size)), case.way.endswith("sm_free"))
        batch = 2 * (self.options.batch or workload.batch)
        microbatches = min(MICROBATCHES, batch)
        with self.device:
            whole = workload.build(ALONE)
        module = Halved(workload.stage(whole, self.rank, self.size), self._half, self.half)
        stage = PipelineStage(module, self.rank, self.size, self.device, group=group)
        schedule = Schedule1F1B(stage, microbatches, loss_fn=workload.loss)
        optimizer = workload.optimizer(module.parameters())
        draw = self._batches(workload, 0, batch)
        nothing = torch.zeros((), device=self.device)

        def one() -> torch.Tensor:
            inputs, target = draw()
            optimizer.zero_grad(set_to_none=True)
            collected: list[torch.Tensor] = []
            if self.rank == 0:
                schedule.step(inputs)
            elif self.rank == last:
                schedule.step(target=target, losses=collected)
            else:
                schedule.step()
            optimizer.step()
            return torch.stack(collected).mean() if collected else nothing

        parameters = list(module.parameters())
        return Step(one, lambda: None, batch, 1, parameter_count(module), len(parameters), None)


class Halved(nn.Module):
    """A stage, in half precision where the device has it: what crosses to the next one too."""

    def __init__(self, stage: nn.Module, half: Callable[[], Any], is_half: bool) -> None:
        super().__init__()
        self.stage, self._half, self._is_half = stage, half, is_half

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        with self._half():
            output = self.stage(value)
        return output.bfloat16() if self._is_half else output


@dataclass(frozen=True)
class Step:
    one: Callable[[], torch.Tensor]  # its loss
    close: Callable[[], None]
    samples: int  # of all ranks
    with_loss: int  # ranks that have one
    parameters: int  # of this rank
    gradients: int
    cycles: Callable[[], int] | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--rank", "--size", "--iterations", "--warmup", "--seed", "--batch", "--tiny", "--profile"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--folder", "--device", "--models", "--ways", "--libraries"):
        parser.add_argument(name, required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--traces", default="")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)  # a hang ends, and says where
    device = (
        torch.device("cuda", options.rank % torch.cuda.device_count())
        if options.device == "cuda"
        else torch.device("cpu")
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    else:
        torch.set_num_threads(1)
    if "starling" in options.libraries:
        import starling.torch  # noqa: F401  registers the backend
    known = workloads(bool(options.tiny))
    cases = [
        Case(known[model], way, library)
        for model in options.models.split("|")
        for way in options.ways.split("|")
        for library in options.libraries.split("|")
    ]
    with Path(options.folder, f"results.{options.rank}").open("w", buffering=1) as results:
        rank = Rank(options, device)
        for case in cases:
            if case.makes_sense(options.size, device.type == "cuda"):
                results.write(json.dumps(rank.run(case)) + "\n")
                if device.type == "cuda":
                    torch.cuda.empty_cache()
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # several libraries' threads are still there


if __name__ == "__main__":
    sys.exit(main())
