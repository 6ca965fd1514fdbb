"""All programs of plans/ on one communicator, in an order of each rank's own, preempted all the time: on CPUs and GPUs.
Results are compared with the mathematics (ir/oracle.py)."""

import contextlib
import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ir.oracle import Case, expected, make_case
from programs.cases import ALWAYS_APART, NAMES, NODED, make
from starling import Communicator, Scheduling, errors, ir
from starling.ir.plan import REDUCING, ROOTED

HASTY = Scheduling(initial_budget_ns=1, minimum_budget_ns=1, success_factor=1, position_shift=1)


# Ranks that are threads share what they compile and compute: one does it, the others wait.
ONE_AT_A_TIME = threading.Lock()


def plans_for(ranks: int, blocks: int, protocol: str = "slots", tile_bytes: int = 0) -> list[ir.Plan]:
    """Those that cannot travel by the protocol are left out."""
    with ONE_AT_A_TIME:
        return _plans_for(ranks, blocks, protocol, tile_bytes)


@functools.lru_cache(maxsize=1)
def _plans_for(ranks: int, blocks: int, protocol: str, tile_bytes: int) -> list[ir.Plan]:
    plans = []
    for collective, name in NAMES:
        if name in NODED and ranks % 2:
            continue
        for in_place in (False, True):
            if in_place and collective in ALWAYS_APART | ROOTED:
                continue
            made = make(collective, name, ranks, 2, in_place)
            made.protocol, made.tile_bytes = protocol, tile_bytes
            with contextlib.suppress(ValueError):
                plan = made.compile(blocks=blocks)
                plan.name = f"{collective}_{name}_{int(in_place)}"
                plans.append(plan)
    return plans


def case_of(plan: ir.Plan, count: int, seed: int) -> Case:
    ops = ["sum"]
    if plan.collective in REDUCING:  # who pulls does not know the other's factor
        ops = ["sum", "max", "avg", *([] if plan.protocol == "pull" else ["premul_sum"])]
    return make_case(plan, count, "int32", random.Random(seed).choice(ops), seed)


def case_and_results(plan: ir.Plan, count: int, seed: int) -> tuple[Case, Any]:
    with ONE_AT_A_TIME:
        if (found := _results.get(key := (plan.name, plan.rank_count, plan.protocol, count, seed))) is None:
            case = case_of(plan, count, seed)
            found = _results[key] = (case, expected(case))
        return found


_results: dict[tuple[Any, ...], tuple[Case, Any]] = {}


class Memory:
    """Where the context's buffers lie."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.stream: Any = None
        if device != "cpu":
            import torch

            torch.cuda.set_device(device)
            self.stream = torch.cuda.Stream(device)

    def put(self, array: np.ndarray) -> Any:
        """A copy."""
        if self.device == "cpu":
            return array.copy()
        import torch

        return torch.from_numpy(array.copy()).to(self.device)

    def get(self, buffer: Any) -> np.ndarray:
        return buffer if self.device == "cpu" else buffer.cpu().numpy()

    def settle(self) -> None:
        """What wrote the buffers has ended."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def how(self, chance: random.Random) -> dict[str, Any]:
        """On a GPU an operation begins on a stream, as a kernel, or from the CPU."""
        return {"stream": self.stream} if self.stream is not None and chance.random() < 0.5 else {}


def buffers_of(plan: ir.Plan, case: Case, rank: int, count: int, put: Callable[[np.ndarray], Any]) -> tuple:
    """Input, output, and where the result will be."""
    mine = case.inputs[rank]
    out = np.full(count * plan.output_groups, -77, np.int32) if plan.exists("output", rank) else None
    if not plan.in_place:
        result = None if out is None else put(out)
        return (None if mine is None else put(mine)), result, result
    assert mine is not None
    if plan.collective == "all_gather":
        assert out is not None
        out[rank * count : (rank + 1) * count] = mine
        whole = put(out)
        return None, whole, whole
    whole = put(mine)
    if plan.collective == "reduce_scatter":
        return whole, None, whole[rank * count : (rank + 1) * count]
    return whole, whole, whole


def run_all(
    comm: Communicator, seed: int, blocks: int, protocol: str = "slots", rounds: int = 2, tile_bytes: int = 0
) -> int:
    """Each program of few and of many elements in turn; gives the parks of this rank."""
    plans = []
    for plan in plans_for(comm.size, blocks, protocol, tile_bytes):
        try:
            comm.add_plan(plan)
            plans.append(plan)
        except errors.InvalidArgumentError as error:  # where a peer reads what the root copies onto itself
            assert plan.protocol == "pull" and "if the root passes one buffer" in str(error), error
    memory = Memory(comm.context.device)
    own = random.Random(seed * 31 + comm.rank)
    for round_ in range(rounds):
        count = (5, 3001)[round_ % 2]
        prepared = []
        for which, plan in enumerate(plans):
            if plan.collective == "custom":
                source = [np.arange(count * plan.input_groups, dtype=np.int32) + r for r in range(comm.size)]
                given, out = memory.put(source[comm.rank]), memory.put(np.zeros_like(source[0]))
                wanted = source[comm.rank - 1] if comm.rank else None
                prepared.append((given, out, out, wanted, {}))
                continue
            case, results = case_and_results(plan, count, seed + which)
            given, out, result = buffers_of(plan, case, comm.rank, count, memory.put)
            wanted = results[comm.rank]
            prepared.append((given, out, result, wanted, {"op": case.reduce_op, "scalar": case.scalar}))
        memory.settle()
        running = []
        for which in own.sample(range(len(plans)), len(plans)):
            name = plans[which].name
            given, out, result, wanted, how = prepared[which]
            running.append(
                (name, comm.run_plan(name, given, out, lane=name, **how, **memory.how(own)), result, wanted)
            )
            if own.random() < 0.1:
                comm.context.synchronize()
        for _, request, _, _ in running:
            request.wait(60)
        for name, _, result, wanted in running:
            if wanted is not None:
                np.testing.assert_array_equal(
                    memory.get(result), wanted, err_msg=f"{name}, rank {comm.rank}, seed {seed}"
                )
    return comm.context.statistics().parks
