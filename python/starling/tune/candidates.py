"""The plans that are measured beside each other: the library's, the programs of plans/, and the user's own."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starling import ir
from starling.tune.model import Machine, cost_us, sizes_of

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
)
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
OF_PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Whose larger buffer has a part for every rank."""


TILES = tuple(1 << bits for bits in range(10, 26, 2))
"""Most bytes of a chunk that go at once."""
MOST_TILES = 1024
"""Of a chunk."""


@dataclass(frozen=True)
class Candidate:
    """A plan that takes part; its name is unique. What ranks need of it travels between processes."""

    name: str
    algorithm: str  # what a call names; "": nothing, the choice is the library's
    blocks: int = 0  # of a built-in one that is called by name; 0: the plan `text`
    text: str = ""
    built_in: tuple[str, int] | None = (
        None  # the library's algorithm and blocks of a plan `text`, if it is one
    )
    origin: str = ""  # of one in tiles of a size of its own: the same plan in the usual ones
    plan: ir.Plan | None = field(default=None, compare=False, repr=False)

    def bare(self) -> Candidate:
        return dataclasses.replace(self, plan=None)


CHOICE = Candidate("choice", "")
"""What the library takes when it is not told."""


def candidates(
    collective: str, ranks: int, blocks: int, in_place: bool, processes: bool = False, on_gpu: bool = False
) -> list[Candidate]:
    """The library's plans and the programs of plans/, in one and several instances, as far as they fit the daemon."""
    found: dict[str, tuple[ir.Plan, bool]] = {}
    counts = sorted({count for count in ({1, 4, 8, 16} if on_gpu else {1}) if count <= blocks} | {blocks})
    for name in ir.algorithms(collective):
        for count in counts:
            try:
                plan = ir.builtin(collective, name, ranks, blocks=count, in_place=in_place)
            except ValueError:
                continue  # not for so many ranks
            by_name = count == blocks
            if (
                plan.protocol == "pull"
                and processes
                and not on_gpu
                and (collective in REDUCING or not by_name or name.endswith("_put"))
            ):
                continue  # between processes a block copies out of a peer's memory, in the library's plans alone
            if plan.protocol == "pull" and on_gpu and not _may_pull():
                continue
            if plan.protocol == "pull" and collective in ROOTED and not by_name:
                continue  # not as a text: the root may pass one buffer, whose copy onto itself a peer would read
            found[f"{name}-{count}"] = plan, by_name
    protocols = _protocols(collective, on_gpu)
    for name, plan in _programs(collective, ranks, counts, in_place, protocols):
        if plan.protocol == "pull" and processes and any(rank.scratch_chunks for rank in plan.ranks):
            continue  # what others may open is the caller's buffers
        found[name] = plan, False
    # A program that compiles to the very plan of a generator is measured once.
    unique: dict[str, Candidate] = {}
    for name, (plan, by_name) in found.items():
        algorithm = plan.name
        plan.name = f"{collective}-{ranks}-{name}{'-in-place' if in_place else ''}"
        text = ir.to_text(plan)
        if by_name:
            made = Candidate(name, algorithm, blocks, plan=plan)
        else:
            built_in = (algorithm, int(name.rpartition("-")[2])) if "-program-" not in name else None
            made = Candidate(name, plan.name, 0, text, built_in, plan=plan)
        unique.setdefault(text.split("\n", 2)[2], made)
    return list(unique.values())


def _may_pull() -> bool:
    """Ranks on GPUs: processes open each other's buffers, if nobody forbids it."""
    return os.environ.get("STARLING_PULL", "") != "0"


def _protocols(collective: str, on_gpu: bool) -> tuple[str, ...]:
    """Of programs. On CPUs packets are for the smallest messages alone, where slots do as well."""
    if not on_gpu:
        return ("slots",)
    return ("slots", "packets", *(("pull",) if _may_pull() and collective not in ROOTED else ()))


def _programs(
    collective: str, ranks: int, counts: list[int], in_place: bool, protocols: tuple[str, ...]
) -> Iterable[tuple[str, ir.Plan]]:
    from starling import plans

    for name, make in plans.ALGORITHMS.get(collective, {}).items():
        takes_in_place = "in_place" in inspect.signature(make).parameters
        if in_place and not takes_in_place:
            continue
        for protocol, instances in itertools.product(protocols, counts):
            options: dict[str, Any] = {"instances": instances}
            if takes_in_place:
                options["in_place"] = in_place
            try:
                made = make(ranks, **options)
                made.protocol = protocol
                plan = made.compile(blocks=counts[-1])
            except ValueError:
                continue  # the nodes would not be equally large, or it cannot travel so
            yield (
                f"{name}-program-{instances}"
                if protocol == "slots"
                else f"{name}-program-{protocol}-{instances}",
                plan,
            )


def own_candidates(own: Iterable[ir.Plan], ranks: int, blocks: int, sizes: Sequence[int]) -> list[Candidate]:
    """Plans of the user's. Raises ValueError for one that could not be run or checked here."""
    found: dict[tuple[str, bool], Candidate] = {}
    for plan in own:
        widest = max(len(rank.blocks) for rank in plan.ranks)
        if plan.rank_count != ranks:
            wrong = f"is for {plan.rank_count} ranks, not {ranks}"
        elif plan.collective not in COLLECTIVES:
            wrong = f"computes {plan.collective}; what can be tuned is {', '.join(COLLECTIVES)}"
        elif plan.root != 0:
            wrong = f"has root {plan.root}; what can be tuned has root 0"
        elif widest > max(blocks, 1):
            wrong = f"has {widest} blocks, the daemon {blocks}: give --blocks {widest}"
        elif not any(plan.is_for(size) for size in sizes):
            wrong = f"is for sizes of {plan.sizes}; none of them is measured: give --begin and --end"
        elif (plan.name, plan.in_place) in found:
            wrong = "has the name of another one"
        else:
            found[plan.name, plan.in_place] = Candidate(plan.name, plan.name, 0, ir.to_text(plan), plan=plan)
            continue
        raise ValueError(f"plan {plan.name} {wrong}")
    return list(found.values())


def pruned(all_: Iterable[Candidate], group_bytes: int, machine: Machine, most: int) -> list[Candidate]:
    """The best few by the cost model."""

    def cost(candidate: Candidate) -> tuple[float, str]:
        assert candidate.plan is not None
        return cost_us(candidate.plan, group_bytes, machine), candidate.name

    return sorted(all_, key=cost)[:most]


def in_other_tiles(
    all_: Iterable[Candidate], group_bytes: int, machine: Machine, most: int
) -> list[Candidate]:
    """The same plans in tiles of other sizes, the best few by the cost model."""
    others = (other for candidate in all_ for other in _in_other_tiles(candidate, group_bytes, machine))
    return pruned(others, group_bytes, machine, most) if most else []


def _in_other_tiles(candidate: Candidate, group_bytes: int, machine: Machine) -> Iterable[Candidate]:
    """One for each size of TILES that makes a difference: not those of a chunk or more, nor the usual one."""
    assert candidate.plan is not None
    chunk, usual, _ = sizes_of(candidate.plan, group_bytes, machine)
    seen = {min(chunk, usual)}
    for tile in TILES:
        plan = dataclasses.replace(candidate.plan, tile_bytes=tile)
        size = min(chunk, sizes_of(plan, group_bytes, machine)[1])
        if size in seen or chunk > MOST_TILES * size:
            continue
        seen.add(size)
        yield in_tiles(candidate, tile)


def in_tiles(candidate: Candidate, tile_bytes: int) -> Candidate:
    """The same plan, under a name of its own."""
    assert candidate.plan is not None
    behind = f"@{tile_bytes}"
    plan = dataclasses.replace(candidate.plan, name=candidate.plan.name + behind, tile_bytes=tile_bytes)
    built_in = candidate.built_in and (candidate.built_in[0] + behind, candidate.built_in[1])
    return Candidate(
        candidate.name + behind,
        candidate.algorithm + behind,
        candidate.blocks,
        ir.to_text(plan) if candidate.text else "",
        built_in,
        candidate.name,
        plan,
    )
