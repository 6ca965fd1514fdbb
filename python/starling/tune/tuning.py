"""From measurements to a table: prune, measure the best few, and cut each kind of operation into ranges of sizes."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starling import ir
from starling.tune.calibrate import Fit, assumed
from starling.tune.candidates import (
    CHOICE,
    REDUCING,
    ROOTED,
    Candidate,
    candidates,
    in_other_tiles,
    own_candidates,
    pruned,
)
from starling.tune.measure import Effort, Point, Progress, Samples, Work, measured
from starling.tune.model import cost_us
from starling.tune.table import Row, Table, ranges

GPU_BLOCKS = 32
TILE_GAIN = 0.03
"""What less is worth no row of its own: of many that are as fast, the least time is that of a lucky one."""
AS_FAST = 0.03
"""Of plans that are so near the best, those whose slow calls are the fastest: which one is first by so little, chance
says, and a plan that feels how far apart two cores lie at the moment has calls that take several times as long."""
DTYPES = ("float32", "float16")
"""One of each class of reductions. Other collectives move bytes, whatever their type."""


@dataclass(frozen=True)
class Tuning:
    """What is to be tuned. sizes: in bytes of the larger of a rank's buffers."""

    collectives: list[str]
    ranks: int
    sizes: list[int]
    processes: bool = False
    device: str = "cpu"
    """Or "cuda": ranks on the GPUs of this host in turn."""
    blocks: int = 1
    most: int = 4
    """So many plans a point are let through by the cost model."""
    tiled: int = 4
    """And so many of them again, in tiles of other sizes."""
    places: tuple[bool, ...] = (False, True)
    """In place or not."""
    dtypes: tuple[str, ...] = DTYPES
    effort: Effort = field(default_factory=Effort)
    timeout_s: float = 1800
    launches: int = 1
    """So often the ranks are launched anew: what is fastest depends on where their memory and threads come to be."""
    fit: Fit | None = None
    """The cost model's machine, as `calibrated` finds it here; None: as it is assumed to be."""

    @property
    def machines(self) -> Fit:
        return self.fit or assumed(self.ranks, os.cpu_count() or 1, self.device != "cpu")


@dataclass
class Result:
    """``table`` has the winners; ``points`` all that was measured, in us: medians of each plan and point, what the
    model says of it, which plan won, and its place in the model's order of those that were measured."""

    table: Table
    points: list[dict[str, Any]] = field(default_factory=list)


def works_of(tuning: Tuning, own: Iterable[ir.Plan] = ()) -> list[Work]:
    """What is measured: at each point the best few by the model, the user's own, and the library's choice.

    Raises ValueError for own plans that cannot take part.
    """
    mine = own_candidates(own, tuning.ranks, tuning.blocks, tuning.sizes)
    works = []
    for collective in tuning.collectives:
        of_mine = [
            candidate for candidate in mine if candidate.plan and candidate.plan.collective == collective
        ]
        for in_place in tuning.places:
            if in_place and collective in ROOTED:
                continue  # the root alone knows: one plan serves both
            ours = [c for c in of_mine if c.plan and c.plan.in_place == in_place]
            taken = {candidate.name for candidate in ours}
            all_ = [
                candidate
                for candidate in candidates(
                    collective,
                    tuning.ranks,
                    tuning.blocks,
                    in_place,
                    tuning.processes,
                    tuning.device != "cpu",
                )
                if candidate.name not in taken
            ]
            for dtype in tuning.dtypes if collective in REDUCING else tuning.dtypes[:1]:
                for size in tuning.sizes:
                    point = Point(collective, in_place, dtype, size)
                    fitting = [c for c in ours if c.plan and c.plan.is_for(size)]
                    works.append(_work(all_, fitting, point, tuning))
    return works


def _work(all_: list[Candidate], ours: list[Candidate], point: Point, tuning: Tuning) -> Work:
    machine = tuning.machines.half if point.types == "half" else tuning.machines.machine
    group_bytes = point.group_bytes(tuning.ranks)
    best = [*pruned(all_, group_bytes, machine, tuning.most), *ours]
    best += in_other_tiles(best, group_bytes, machine, tuning.tiled)
    modelled = {c.name: round(cost_us(c.plan, group_bytes, machine), 3) for c in best if c.plan}
    return Work(point, [*best, CHOICE], modelled)


def place_in_model(work: Work, name: str) -> int:
    """1: the model takes it for the fastest of those that were measured."""
    return 1 + sum(us < work.modelled_us[name] for us in work.modelled_us.values())


def tune(tuning: Tuning, works: list[Work], progress: Progress = lambda points: None) -> Result:
    """Measures what ``works_of`` gave, checks every plan's result, and gives the table.

    Raises RanksFailedError if a plan computes something else than its collective.
    """
    runs = [
        measured(
            works,
            tuning.ranks,
            processes=tuning.processes,
            device=tuning.device,
            blocks=tuning.blocks,
            effort=tuning.effort,
            progress=progress,
            timeout_s=tuning.timeout_s,
        )
        for _ in range(tuning.launches)
    ]
    topology = runs[0][0]
    result = Result(Table())
    groups: dict[tuple[str, bool, str], list[_Measured]] = {}
    for work, *launches in zip(works, *(found for _, found in runs), strict=True):
        times, slow = (_agreed([of(samples) for samples in launches]) for of in (medians, slows))
        # A launch that met a bad moment of a plan keeps it out of its own finals, and has its first samples.
        last = {name for samples in launches for name in finalists(samples)}
        finals = {name: us for name, us in times.items() if name in last}
        groups.setdefault((work.point.collective, work.point.in_place, work.point.types), []).append(
            _Measured(work, finals, slow, times)
        )
        fastest = min((name for name in finals if name != CHOICE.name), key=lambda name: (finals[name], name))
        result.points.append(
            {
                "topology": topology,
                **dataclasses.asdict(work.point),
                "types": work.point.types,
                "us": times,
                "model_us": work.modelled_us,
                "winner": fastest,
                "winners_place": place_in_model(work, fastest),
            }
        )
    for (collective, in_place, types), found in groups.items():
        by_name = {c.name: c for one in found for c in one.work.candidates}
        by_size = {
            one.work.point.size_bytes: _steady(_plain_first(one.finals, by_name, one.times), one.slow)
            for one in found
        }
        rest = {one.work.point.size_bytes: _plain_first(one.times, by_name) for one in found}
        limits = {c.name: c.plan.sizes for c in by_name.values() if c.plan and c.plan.sizes}
        for largest, name, size in ranges(by_size.items(), limits=limits, rest=rest):
            key, blocks = key_of(by_name[name])
            if blocks == 0:
                result.table.plans[key] = by_name[name].text
            time_us = round(_time_of(name, by_size[size], rest[size]), 2)
            result.table.rows.append(
                Row(topology, collective, in_place, types, largest, key, blocks, time_us, size)
            )
    return result


@dataclass(frozen=True)
class _Measured:
    """One point. finals: of the plans that a launch measured to the end; times: of all, and ``slow`` their slow calls.
    In us, by name."""

    work: Work
    finals: dict[str, float]
    slow: dict[str, float]
    times: dict[str, float]


def _plain_first(
    times: dict[str, float], by_name: dict[str, Candidate], rest: Mapping[str, float] = {}
) -> dict[str, float]:
    """Without choices, and without tiles that do not gain ``TILE_GAIN`` over the usual ones.

    rest: where the plan of the usual ones has its time if it was not measured to the end.
    """

    def usual(name: str) -> float:
        origin = by_name[name].origin
        return times.get(origin, rest.get(origin, math.inf))

    return {
        name: us for name, us in times.items() if name != CHOICE.name and us < usual(name) * (1 - TILE_GAIN)
    }


def _steady(times: dict[str, float], slow: Mapping[str, float]) -> dict[str, float]:
    """Without those that are as fast as the best (``AS_FAST``), and whose slow calls are slower than another's."""
    near = [name for name, us in times.items() if us <= min(times.values()) * (1 + AS_FAST)]
    steadiest = min((slow[name] for name in near), default=0.0)
    unsteady = {name for name in near if slow[name] > steadiest * (1 + AS_FAST)}
    return {name: us for name, us in times.items() if name not in unsteady}


def _time_of(name: str, times: Mapping[str, float], rest: Mapping[str, float]) -> float:
    """As it was measured to the end, where it was."""
    return times[name] if name in times else rest[name]


def _agreed(launches: list[dict[str, float]]) -> dict[str, float]:
    """Times of the plans that every launch of the ranks has, in the mean; if there are none, of the first."""
    common = [
        name for name in launches[0] if name != CHOICE.name and all(name in times for times in launches)
    ]
    if not common:
        return launches[0]
    names = [*common, *(name for name in launches[0] if name == CHOICE.name)]
    return {name: round(statistics.geometric_mean([times[name] for times in launches]), 3) for name in names}


def finalists(samples: Samples) -> Samples:
    """Those that were measured to the end."""
    longest = max(map(len, samples.values()))
    return {name: values for name, values in samples.items() if len(values) == longest}


def key_of(candidate: Candidate) -> tuple[str, int]:
    """What a row calls it: the library's algorithm and its blocks, or the name of a plan of the table, and 0."""
    if candidate.built_in:
        return candidate.built_in
    if candidate.blocks:
        return candidate.algorithm, candidate.blocks
    # The same name may mean another plan for other ranks.
    return f"{candidate.name}.{hashlib.sha256(candidate.text.encode()).hexdigest()[:8]}", 0


def medians(samples: Samples) -> dict[str, float]:
    return {name: round(statistics.median(values), 3) for name, values in samples.items()}


def slows(samples: Samples) -> dict[str, float]:
    """Four of five are faster."""
    return {name: round(sorted(values)[len(values) * 4 // 5], 3) for name, values in samples.items()}
