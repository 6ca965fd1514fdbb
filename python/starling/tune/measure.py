"""Measuring plans on this machine: the best few by the model run on ranks that are threads, and are checked."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from starling import ir
from starling.comm import Communicator
from starling.launch import run_threads
from starling.tune.model import CPU, Machine, cost_us
from starling.tune.table import Row, Table, ranges

Report = Callable[[str], None]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True)
class Candidate:
    """A plan that takes part; its name is unique."""

    name: str
    plan: ir.Plan


def candidates(collective: str, ranks: int, blocks: int, in_place: bool) -> list[Candidate]:
    """The library's plans and the programs of plans/, in one and several instances, as far as they fit the daemon."""
    from starling import plans

    found: dict[str, ir.Plan] = {}
    for name in ir.algorithms(collective):
        for count in sorted({1, blocks}):
            try:
                found[f"{name}-{count}"] = ir.builtin(
                    collective, name, ranks, blocks=count, in_place=in_place
                )
            except ValueError:
                continue  # not for so many ranks
    for name, make in plans.ALGORITHMS.get(collective, {}).items():
        for instances in sorted({1, blocks}):
            options: dict[str, Any] = {"instances": instances}
            if collective != "all_to_all":
                options["in_place"] = in_place
            try:
                plan = make(ranks, **options).compile(blocks=blocks)
            except ValueError:
                continue  # the nodes would not be equally large
            found[f"{name}-program-{instances}"] = plan
    # A program that compiles to the very plan of a generator is measured once.
    unique: dict[str, Candidate] = {}
    for name, plan in found.items():
        plan.name = name
        body = ir.to_text(plan).split("\n", 2)[2]
        unique.setdefault(body, Candidate(name, plan))
    return [candidate for candidate in unique.values() if candidate.plan.protocol != "pull"]


def pruned(all_: Iterable[Candidate], group_bytes: int, machine: Machine, most: int) -> list[Candidate]:
    """The best few by the cost model."""
    costs = {candidate.name: cost_us(candidate.plan, group_bytes, machine) for candidate in all_}
    return sorted(all_, key=lambda candidate: (costs[candidate.name], candidate.name))[:most]


def _expected(collective: str, ranks: int, rank: int, count: int) -> Any:
    parts = [
        np.arange(count * (ranks if collective in ("reduce_scatter", "all_to_all") else 1)) + r
        for r in range(ranks)
    ]
    if collective == "all_reduce":
        return np.sum(parts, axis=0)
    if collective == "reduce_scatter":
        return np.sum(parts, axis=0)[rank * count : (rank + 1) * count]
    if collective == "all_gather":
        return np.concatenate(parts)
    return np.concatenate([part[rank * count : (rank + 1) * count] for part in parts])


def _measure_rank(
    comm: Communicator, work: list[tuple[Candidate, int]], collective: str, repetitions: int
) -> list[float]:
    """Median us of each piece of work, on this rank; every first result is checked."""
    for candidate in {candidate.name: candidate for candidate, _ in work}.values():
        comm.add_plan(candidate.plan)
    times = []
    for candidate, count in work:
        parts = comm.size if collective in ("reduce_scatter", "all_to_all") else 1
        given = (np.arange(count * parts) + comm.rank).astype(np.float32)
        wanted = _expected(collective, comm.size, comm.rank, count).astype(np.float32)
        result = np.zeros_like(wanted)
        comm.run_plan(candidate.name, given, result).wait(60)
        if not np.array_equal(result, wanted):
            raise AssertionError(f"plan {candidate.name} gives a wrong {collective} of {count} elements")
        taken = []
        for _ in range(repetitions):
            comm.barrier().wait(60)
            start = time.perf_counter()
            comm.run_plan(candidate.name, given, result).wait(60)
            taken.append((time.perf_counter() - start) * 1e6)
        times.append(statistics.median(taken))
    return times


def _own_candidates(own: Iterable[ir.Plan], ranks: int, blocks: int) -> list[Candidate]:
    """Plans of the user's. Raises ValueError for one that could not be run or checked here."""
    found: dict[str, Candidate] = {}
    for plan in own:
        widest = max(len(rank.blocks) for rank in plan.ranks)
        if plan.rank_count != ranks:
            wrong = f"is for {plan.rank_count} ranks, not {ranks}"
        elif plan.collective not in COLLECTIVES:
            wrong = f"computes {plan.collective}; what can be tuned is {', '.join(COLLECTIVES)}"
        elif plan.in_place:
            wrong = "is in place; plans are tuned out of place"
        elif widest > max(blocks, 1):
            wrong = f"has {widest} blocks, the daemon {blocks}: give --blocks {widest}"
        elif plan.name in found:
            wrong = "has the name of another one"
        else:
            found[plan.name] = Candidate(plan.name, plan)
            continue
        raise ValueError(f"plan {plan.name} {wrong}")
    return list(found.values())


def tune(
    collectives: Iterable[str],
    ranks: int,
    sizes: list[int],
    *,
    own: Iterable[ir.Plan] = (),
    blocks: int = 1,
    most: int = 4,
    repetitions: int = 15,
    machine: Machine = CPU,
    report: Report = lambda line: None,
) -> Table:
    """Measures out of place, in float32, on ranks that are threads of this process; gives the table of choices.

    sizes: in bytes of the larger of a rank's buffers. own: plans that are measured beside the best few, at every size,
    whatever the cost model says. Raises ValueError for own plans that cannot take part, AssertionError if a plan
    computes something else than its collective.
    """
    table = Table(f"{platform.processor() or platform.machine()}, {ranks} threads, {blocks} blocks")
    own_candidates = _own_candidates(own, ranks, blocks)
    for collective in collectives:
        mine = [candidate for candidate in own_candidates if candidate.plan.collective == collective]
        taken = {candidate.name for candidate in mine}
        everything = [c for c in candidates(collective, ranks, blocks, False) if c.name not in taken]
        work: list[tuple[Candidate, int]] = []
        sized: list[int] = []
        for size in sizes:
            parts = 1 if collective == "all_reduce" else ranks
            count = max(1, size // parts // 4)
            for candidate in [*pruned(everything, count * 4, machine, most), *mine]:
                work.append((candidate, count))
                sized.append(size)
        function = partial(_measure_rank, work=work, collective=collective, repetitions=repetitions)
        by_rank = run_threads(ranks, function, context={"blocks": blocks}, timeout=600, operation_timeout=60)
        times: dict[int, dict[str, float]] = {}
        for number, (candidate, _) in enumerate(work):
            times.setdefault(sized[number], {})[candidate.name] = max(rank[number] for rank in by_rank)
        plans = {candidate.name: candidate.plan for candidate in [*everything, *mine]}
        for smallest, largest, name in ranges(times.items()):
            key = f"{collective}-{ranks}-{name}"
            table.plans[key] = ir.to_text(plans[name])
            measured = times[max(size for size in times if size <= largest)]
            table.rows.append(Row(collective, ranks, False, smallest, largest, key, round(measured[name], 2)))
            report(f"{collective:15} {smallest:>10} to {largest:>10} B  {name:24} {measured[name]:10.1f} us")
        for size, measured in times.items():
            for name in taken:
                report(f"{collective:15} {'':>10} at {size:>10} B  {name:24} {measured[name]:10.1f} us")
    return table
