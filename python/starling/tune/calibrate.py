"""What the cost model's machine is here: a few small plans, timed on the ranks that are about to be tuned.

    sums     reductions in a row on one rank                    an instruction; with more bytes, a reduction
    copies   copies in a row on one rank                        a copy
    hops     a chunk that goes to and fro, by slots, in packets  a message; with more bytes, what goes over a link
    turns    a chunk that goes round all ranks                  what it takes to give a rank a core
    pulled   a broadcast that reads the root's buffer           how fast a peer's buffer is read

Each with few steps and with many: the difference is the steps' alone, without what a call costs. Where ranks share
GPUs, hops are timed inside a GPU and between two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from starling import _core, ir
from starling.comm import Communicator
from starling.errors import StarlingError
from starling.lang import Collective, Program, leaf, reduction
from starling.launch import run_processes, run_threads
from starling.numbers import COLLECTIVES as NUMBERS
from starling.tune.measure import Memory, device_of
from starling.tune.model import GPUS, Link, Machine, cost_us, cpu

SMALL, LARGE = 16, 1 << 16
REPETITIONS, SLICE_US, MOST_CALLS = 7, 1000.0, 100
WIDEST = 16
MOST_US = 5_000.0  # of a call: ranks that take longer wait for cores that others have, and tell nothing
CUSTOM = 11  # STARLING_CUSTOM


@dataclass(frozen=True)
class Shot:
    """One operation that is timed: ``plan``, or the library's of that name if ``named``."""

    plan: ir.Plan
    bytes: int
    dtype: str = "float32"
    named: bool = False


@dataclass(frozen=True)
class Probe:
    """``steps`` is how many more of what is asked for the second one has."""

    name: str
    first: Shot
    second: Shot
    steps: int = 1

    def us(self, time_us: Callable[[Shot], float]) -> float:
        return (time_us(self.second) - time_us(self.first)) / self.steps


@dataclass(frozen=True)
class Fit:
    """half: for sums of half floats. timed: what was measured, in us a step, by the probes' names."""

    machine: Machine
    half: Machine
    timed: dict[str, float] = field(default_factory=dict)


def assumed(ranks: int, cores: int, on_gpu: bool = False) -> Fit:
    """Figures of machines that were measured once."""
    if on_gpu:
        return Fit(GPUS, GPUS)
    machine = cpu(ranks, cores)
    return Fit(machine, _of_halves(machine))


def _of_halves(machine: Machine) -> Machine:
    """Measured on CPUs: sums of halves take about four times as long."""
    slower = 4 if machine.cores else 1
    return replace(machine, reduce_bytes_per_us=machine.reduce_bytes_per_us / slower)


class _OnRankZero(Collective):
    """Rank 0 gets its own chunk back, so many times over."""

    times = 1

    def expected(self, rank: int, index: int) -> Any:
        if rank != 0:
            return None
        return leaf(0, 0) if self.times == 1 else reduction([(0, 0)] * self.times)


def _sums(ranks: int, count: int) -> ir.Plan:
    collective = _OnRankZero(ranks)
    collective.times = count + 1
    made = Program(f"sums_{count}", collective)
    total = made.chunk(0, "input", 0).copy(0, "output", 0)
    for _ in range(count):
        total = total.reduce(made.chunk(0, "input", 0))
    return made.compile(blocks=1)


def _copies(ranks: int, count: int) -> ir.Plan:
    made = Program(f"copies_{count}", _OnRankZero(ranks))
    chunk = made.chunk(0, "input", 0)
    for k in range(count):
        chunk = chunk.copy(0, "scratch", k % 2)  # few: they stay in the caches
    chunk.copy(0, "output", 0)
    return made.compile(blocks=1)


def _hops(ranks: int, around: list[int], rounds: int, protocol: str = "slots", blocks: int = 1) -> ir.Plan:
    """From rank 0 along ``around``, and back to rank 0 at last; each block takes its part of the chunk."""
    name = f"hops_{'_'.join(map(str, around))}_{rounds}_{protocol}_{blocks}"
    made = Program(name, _OnRankZero(ranks), instances=blocks, protocol=protocol)
    chunk = made.chunk(0, "input", 0)
    for k in range(1, rounds * len(around)):
        chunk = chunk.copy(around[k % len(around)], "scratch", k)
    chunk.copy(0, "output", 0)
    return made.compile(blocks=blocks)


def _instructions(plan: ir.Plan) -> int:
    return sum(len(block.instructions) for block in plan.ranks[0].blocks)


def probes(ranks: int, base: Machine, blocks: int = 1) -> list[Probe]:
    """Of ``base`` it takes how much fits into a packet, how ranks are spread, and whether they outnumber the cores.
    blocks: of a daemon; a link is tried by as many as may fill it."""
    width = min(blocks, WIDEST)
    found = []
    sums, copies = ([make(ranks, count) for count in (2, 26)] for make in (_sums, _copies))
    for name, plans, bytes_, dtype in (
        ("instruction", sums, SMALL, "float32"),
        ("reduce", sums, LARGE, "float32"),
        ("reduce_half", sums, LARGE, "float16"),
        ("copy", copies, LARGE, "float32"),
    ):
        first, second = (Shot(plan, bytes_, dtype) for plan in plans)
        found.append(Probe(name, first, second, _instructions(plans[1]) - _instructions(plans[0])))
    for kind, peer in _kinds(ranks, base).items():
        for name, protocol, bytes_, wide in (
            ("message", "slots", SMALL, 1),
            ("message_large", "slots", LARGE * width, width),
            ("packet", "packets", SMALL, 1),
            ("packet_large", "packets", base.packet_slot_bytes, 1),
        ):
            shots = [Shot(_hops(ranks, [0, peer], rounds, protocol, wide), bytes_) for rounds in (1, 8)]
            found.append(Probe(f"{kind}.{name}", shots[0], shots[1], 14))
    if ranks > 1:
        pulled = ir.builtin("broadcast", "direct_pull", ranks, blocks=1)
        found.append(Probe("pulled", Shot(pulled, SMALL, named=True), Shot(pulled, LARGE, named=True)))
    if base.cores and ranks > base.cores:
        everybody = list(range(ranks))
        shots = [Shot(_hops(ranks, everybody, rounds), SMALL) for rounds in (1, 3)]
        found.append(Probe("turn", shots[0], shots[1], 2 * ranks))
    return found


def _kinds(ranks: int, base: Machine) -> dict[str, int]:
    """A peer of rank 0 for each kind of link that there is."""
    peers: dict[str, int] = {}
    for rank in range(1, ranks):
        peers.setdefault("inside" if base.node(rank) == base.node(0) else "between", rank)
    return peers


def fitted(base: Machine, ranks: int, timed: dict[str, float], blocks: int = 1) -> Fit:
    """``base`` with what was timed. What is missing stays as it is."""

    def rate(name: str, small: str, bytes_: int, usual: float) -> float:
        us = timed[name] - timed[small] if name in timed and small in timed else 0.0
        return bytes_ / us if us > 0 else usual

    more = LARGE - SMALL
    adding = rate("reduce", "instruction", more, base.reduce_bytes_per_us)
    instruction_us = base.instruction_us
    if "instruction" in timed:
        instruction_us = max(timed["instruction"] - SMALL / adding, 0.001)
    machine = replace(
        base,
        instruction_us=instruction_us,
        copy_bytes_per_us=rate("copy", "instruction", more, base.copy_bytes_per_us),
        reduce_bytes_per_us=adding,
        wait_us=0.0,  # of two alone: each has a core
    )
    kinds = [kind for kind in ("inside", "between") if f"{kind}.message" in timed]
    if kinds and f"{kinds[0]}.packet" in timed:
        message, packet = f"{kinds[0]}.message", f"{kinds[0]}.packet"
        rate_ = rate(f"{packet}_large", packet, base.packet_slot_bytes - SMALL, base.packet_bytes_per_us)
        signal_us = max(
            0.0, timed[message] - SMALL / machine.copy_bytes_per_us - timed[packet] + SMALL / rate_
        )
        machine = replace(machine, signal_us=signal_us, packet_bytes_per_us=rate_)
    by_name = {probe.name: probe for probe in probes(ranks, base, blocks)}
    for kind in kinds:
        still = timed[f"{kind}.message"] - machine.instruction_us - machine.signal_us
        there = partial(_with_link, machine, kind, max(still - SMALL / machine.copy_bytes_per_us, 0.001))
        large = f"{kind}.message_large"
        fast = (machine.inside if kind == "inside" else machine.between).bytes_per_us
        if large in timed:
            found = _rate_of(by_name[large], timed[large], there)
            fast = max(fast, by_name[large].second.bytes / timed[large]) if math.isinf(found) else found
        machine = there(fast)
    heard_turn = "turn" in timed and "inside.message" in timed
    waited = max(0.0, timed["turn"] - timed["inside.message"]) if heard_turn else base.wait_us
    machine = replace(machine, wait_us=waited)
    if "pulled" in timed:
        settled = machine
        pulling = _rate_of(
            by_name["pulled"], timed["pulled"], lambda rate: replace(settled, pull_bytes_per_us=rate)
        )
        machine = replace(machine, pull_bytes_per_us=pulling)
    half = _of_halves(machine)
    halves = rate("reduce_half", "instruction", more, half.reduce_bytes_per_us)
    return Fit(machine, replace(half, reduce_bytes_per_us=halves), timed)


def _with_link(machine: Machine, kind: str, latency_us: float, bytes_per_us: float) -> Machine:
    link = Link(latency_us, bytes_per_us)
    return replace(machine, inside=link) if kind == "inside" else replace(machine, between=link)


def _rate_of(probe: Probe, us: float, machine: Callable[[float], Machine]) -> float:
    """At which the model takes as long for the probe as was measured; infinite if something else takes that long."""

    def modelled(rate: float) -> float:
        there = machine(rate)
        return probe.us(lambda shot: cost_us(shot.plan, shot.bytes, there))

    slow, fast = 0.1, 1e7
    if modelled(fast) >= 0.95 * us:
        return math.inf
    for _ in range(40):
        middle = (slow * fast) ** 0.5
        slow, fast = (middle, fast) if modelled(middle) > us else (slow, middle)
    return fast


def _samples(comm: Communicator, memory: Memory, shot: Shot) -> list[float] | None:
    """None: ranks cannot do that here. Empty: they have no cores for it."""
    plan = shot.plan
    given = np.zeros(max(1, shot.bytes // np.dtype(shot.dtype).itemsize), shot.dtype)
    buffers = memory.put(given), memory.put(given)
    memory.settle()
    if plan.collective == "custom":
        kind, groups = CUSTOM, (plan.input_groups, plan.output_groups)
    else:
        kind, groups = NUMBERS[plan.collective], None
    step = _core.Step(comm._core, kind, *buffers, algorithm=plan.name, groups=groups, **memory.start)

    def sample(calls: int) -> float:
        comm.barrier().wait(60)
        return float(_core.time_calls(1, calls, [step])) / calls * 1e6

    for _ in range(2):  # one call may have met something that is over by now
        try:
            longest = memory.put(np.array([sample(1)]))
        except StarlingError:
            return None
        memory.settle()
        comm.all_reduce(longest, op="max").wait(60)  # all ranks call as often
        us = float(memory.get(longest)[0])
        if us <= MOST_US:
            break
    else:
        return []
    calls = int(max(1, min(MOST_CALLS, SLICE_US / us)))
    return [sample(calls) for _ in range(REPETITIONS)]


def _rank_main(comm: Communicator, shots: list[tuple[str, Shot]]) -> list[list[float] | None]:
    memory = Memory(comm.context.device)
    added = set()
    found = []
    for text, shot in shots:
        if text and text not in added:
            comm.add_plan(text)
            added.add(text)
        found.append(_samples(comm, memory, shot) if [] not in found else [])
    return found


def calibrated(
    ranks: int,
    *,
    cores: int,
    processes: bool = False,
    device: str = "cpu",
    blocks: int = 1,
    timeout_s: float = 600,
) -> Fit:
    """The machine that ranks launched like these run on; less than a second on an idle machine."""
    base = assumed(ranks, cores, device != "cpu").machine
    if device != "cpu":
        base = _with_gpus(base, ranks)
    wanted = probes(ranks, base, blocks)
    shots = [shot for probe in wanted for shot in (probe.first, probe.second)]
    launch = run_processes if processes else run_threads
    by_rank = launch(
        ranks,
        partial(_rank_main, shots=[("" if shot.named else ir.to_text(shot.plan), shot) for shot in shots]),
        context={"blocks": blocks, "device": "cpu" if device == "cpu" else device_of},
        timeout=timeout_s,
        operation_timeout=60,
    )
    samples = iter(by_rank[0])
    timed = {probe.name: heard(next(samples), next(samples), probe.steps) for probe in wanted}
    return fitted(base, ranks, {name: us for name, us in timed.items() if us is not None}, blocks)


def _with_gpus(base: Machine, ranks: int) -> Machine:
    """Ranks take the GPUs in turn: those of one meet inside it, if there are such."""
    import torch

    gpus = torch.cuda.device_count()
    return replace(base, nodes_in_turn=gpus, between=base.inside) if 0 < gpus < ranks else base


def heard(first: list[float] | None, second: list[float] | None, steps: int) -> float | None:
    """What a step takes: by the least of the samples, as what disturbs only adds. None where the lower
    third of them differs by more than that, or there are none."""
    if not first or not second:
        return None
    more = min(second) - min(first)
    noise = max(sorted(samples)[len(samples) // 3] - min(samples) for samples in (first, second))
    return more / steps if more > noise else None
