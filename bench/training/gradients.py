"""How the gradients of a step become the same on all ranks: the ways that bench/train.py compares.

Each way takes a model; ``begin()`` comes before a forward pass, and when ``finish()`` returns, after the backward pass,
all gradients are there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from .held_back import HeldBack, launch_held_back

HELD_BACK = 8  # gradients that wait for each other, where their order is random
BUCKETS_HELD_BACK = 3  # buckets likewise
CYCLE_S = 0.001  # Horovod's, between two rounds of its coordinator


class Way(Protocol):
    model: nn.Module  # what runs forward

    def begin(self) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


class InTheModel:
    """A way that the model itself goes, behind its hooks: nothing is left to do around a step."""

    model: nn.Module

    def begin(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class Bucketed(InTheModel):
    """DistributedDataParallel. ``seed``: buckets in a random order.

    Of ``held_back`` of them that are ready one is launched; 0: they are held back until all are ready. ``own``: each in
    a lane of its own, so that ranks may have orders of their own (Starling alone); else one behind the other, as any
    library can, and all ranks have the same seed.
    """

    def __init__(
        self, model: nn.Module, group: Any, seed: int | None = None, held_back: int = 0, own: bool = False
    ) -> None:
        self.model = nn.parallel.DistributedDataParallel(model, process_group=group, broadcast_buffers=False)
        if seed is None:
            return
        if own:
            import starling.torch

            state = starling.torch.ShuffledBuckets(seed=seed, group=group, held_back=held_back)
            self.model.register_comm_hook(state, starling.torch.shuffled_ddp_hook)
        else:
            self.model.register_comm_hook(HeldBack(group, seed, held_back), launch_held_back)


class Unbucketed:
    """One all-reduce a gradient, launched by a hook as soon as it is there: in autograd's order, which is the same on
    all ranks; or, with a ``seed``, in a random one of this rank's own, each in a lane of its own."""

    def __init__(self, model: nn.Module, group: Any, seed: int | None = None) -> None:
        self.model, self._group, self._size = model, group, dist.get_world_size(group)
        self._works: list[Any] = []
        self._held: list[tuple[int, nn.Parameter]] = []
        self._random = random.Random(seed) if seed is not None else None
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.count = len(parameters)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, parameter in enumerate(parameters)
        ]

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def ready(parameter: Any) -> None:
            parameter.grad.div_(self._size)
            if self._random is None:
                self._works.append(dist.all_reduce(parameter.grad, group=self._group, async_op=True))
                return
            self._held.append((index, parameter))
            if len(self._held) >= HELD_BACK:
                self._launch_one()

        return ready

    def _launch_one(self) -> None:
        import starling.torch

        assert self._random is not None
        index, parameter = self._held.pop(self._random.randrange(len(self._held)))
        with starling.torch.lane(f"gradient {index}"):
            self._works.append(dist.all_reduce(parameter.grad, group=self._group, async_op=True))

    def begin(self) -> None:
        pass

    def finish(self) -> None:
        while self._held:
            self._launch_one()
        for work in self._works:
            work.wait()
        self._works.clear()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


class Coordinated:
    """One all-reduce a gradient, for a library that needs one order, where ranks have gradients ready in random ones.

    As Horovod does: a thread of each rank tells in cycles which are ready (a minimum over a group of CPUs), and all
    launch what all have, by number.
    """

    def __init__(self, model: nn.Module, group: Any, seed: int) -> None:
        self.model, self._group, self._size = model, group, dist.get_world_size(group)
        self._control = dist.new_group(backend="gloo")
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.count = len(self._parameters)
        self._random = random.Random(seed)
        self._held: list[int] = []
        self._ready = torch.zeros(self.count, dtype=torch.uint8)
        self._events: dict[int, Any] = {}
        self._works: list[Any] = []
        self._device = self._parameters[0].device
        self._begin, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self.failure: BaseException | None = None
        self.cycles = 0
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, parameter in enumerate(self._parameters)
        ]
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._thread.start()

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def ready(parameter: Any) -> None:
            parameter.grad.div_(self._size)
            if self._device.type == "cuda":
                self._events[index] = torch.cuda.current_stream().record_event()
            self._held.append(index)
            if len(self._held) >= HELD_BACK:
                self._tell_one()

        return ready

    def _tell_one(self) -> None:
        self._ready[self._held.pop(self._random.randrange(len(self._held)))] = 1

    def _run(self) -> None:
        stream = None
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            stream = torch.cuda.Stream(self._device)
        while True:
            self._begin.acquire()
            if self._closing:
                return
            try:
                self._one_step(stream)
            except BaseException as error:  # told by finish()
                self.failure = error
            self._done.release()

    def _one_step(self, stream: Any) -> None:
        launched = torch.zeros(self.count, dtype=torch.bool)
        while not bool(launched.all()):
            told = self._ready.clone()
            dist.all_reduce(told, op=dist.ReduceOp.MIN, group=self._control)
            self.cycles += 1
            new = torch.nonzero((told == 1) & ~launched).flatten().tolist()
            for index in new:
                launched[index] = True
                gradient = self._parameters[index].grad
                if stream is None:
                    self._works.append(dist.all_reduce(gradient, group=self._group, async_op=True))
                    continue
                stream.wait_event(self._events[index])
                with torch.cuda.stream(stream):
                    self._works.append(dist.all_reduce(gradient, group=self._group, async_op=True))
            if not new:
                time.sleep(CYCLE_S)

    def begin(self) -> None:
        self._begin.release()

    def finish(self) -> None:
        while self._held:
            self._tell_one()
        self._done.acquire()
        if self.failure is not None:
            raise self.failure
        for work in self._works:
            work.wait()
        self._works.clear()
        self._ready.zero_()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._closing = True
        self._begin.release()
        self._thread.join()
        dist.destroy_process_group(self._control)
