"""The five conclusions of DFCCL §2.4.3, each measured: sweeps, plots, confirmed or not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starling.write_whole import whole

from .configuration import Configuration, three_d
from .groups import free_groups, overlapping_groups
from .measure import Measurement, measure

DECISIONS = ("exact", "released")
_FEW = 20  # deadlocks counted; with fewer, the exact ratio is estimated by planting
_PLANTED = 10  # planted samples per round


@dataclass
class Sweep:
    """Ratios along one axis, everything else fixed."""

    name: str
    axis: str
    points: list[tuple[float, Measurement]]

    def series(self, decision: str) -> list[tuple[float, float, float, float]]:
        found = []
        for x, measurement in self.points:
            ratio = measurement.ratio(decision)
            if ratio is not None:
                found.append((x, ratio.ratio, ratio.low, ratio.high))
        return found

    def rises(self, decision: str) -> bool:
        """From first to last by more than their intervals, and nowhere falling by more than neighbours' intervals."""
        series = self.series(decision)
        steps = itertools.pairwise(series)
        return series[-1][2] > series[0][3] and all(after[3] >= before[2] for before, after in steps)

    def steepness(self, decision: str) -> float:
        """Slope of log ratio over log x: what a doubling of x does to the ratio, as a power."""
        points = [(math.log(x), math.log(y)) for x, y, *_ in self.series(decision) if x > 0 and y > 0]
        if len(points) < 2:
            return math.nan
        mx = sum(x for x, _ in points) / len(points)
        my = sum(y for _, y in points) / len(points)
        return sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)


@dataclass
class Conclusion:
    number: int
    claim: str
    sweeps: list[Sweep]
    confirmed: dict[str, bool]  # by decision
    finding: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "claim": self.claim,
            "confirmed": self.confirmed,
            "finding": self.finding,
            "sweeps": [
                {"name": s.name, "axis": s.axis, "points": [{"x": x, **m.as_dict()} for x, m in s.points]}
                for s in self.sweeps
            ],
        }


def _stages(
    model: str, disorder: float, sync: float = 0.0, pipeline: int = 4, scale: float = 1.0
) -> Configuration:
    return Configuration(
        groups=three_d(4, 4, pipeline, round(400 * scale), round(1200 * scale)),
        gpus=16 * pipeline,
        model=model,
        disorder_probability=disorder,
        synchronization_probability=sync,
        shape=f"3D (4,4,{pipeline})",
    )


def _free(disorder: float, sync: float) -> Configuration:
    return Configuration(
        groups=free_groups(64), gpus=64, model="synchronization", disorder_probability=disorder,
        synchronization_probability=sync, shape="free 32 × 64",
    )  # fmt: skip


def _overlap(overlap: int, launches: int, probability: float) -> Configuration:
    return Configuration(
        groups=overlapping_groups(overlap, launches=launches),
        gpus=24,
        model="synchronization",
        disorder_probability=probability,
        synchronization_probability=probability,
        shape=f"{overlap} groups a GPU",
    )


Measure = Callable[[Configuration], Measurement]


def _sweep(name: str, axis: str, points: Iterable[tuple[float, Configuration]], run: Measure) -> Sweep:
    return Sweep(name, axis, [(x, run(configuration)) for x, configuration in points])


def conclude(rounds: int, threads: int = 0, seed: int = 1, told: Callable[[str], None] = lambda _: None,
             ) -> list[Conclusion]:  # fmt: skip
    """Runs all sweeps. `told` hears the name of each configuration before it runs."""

    def run(configuration: Configuration) -> Measurement:
        told(f"{configuration.model}, {configuration.shape}")
        configuration = replace(configuration, rounds=rounds, threads=threads, seed=seed)
        found = measure(configuration)
        if any(ratio.decision == "exact" and ratio.hits < _FEW for ratio in found.ratios):
            rare = replace(configuration, sampling="planted", decision="exact", rounds=_PLANTED * rounds)
            planted = measure(rare).ratios
            found = replace(found, ratios=planted + [r for r in found.ratios if r.decision != "exact"])
        return found

    queue = "single_queue"
    powers = (0.5, 1.0, 2.0, 4.0)
    queue_sweep = _sweep(
        "3D (4,4,4), single queue", "disorder probability",
        [(p, _stages(queue, p)) for p in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)], run,
    )  # fmt: skip
    disorder_3d = _sweep(
        "3D (4,4,4), sync 4e-3", "disorder probability",
        [(4e-3 * f, _stages("synchronization", 4e-3 * f, 4e-3)) for f in powers], run,
    )  # fmt: skip
    sync_3d = _sweep(
        "3D (4,4,4), disorder 4e-3", "synchronization probability",
        [(4e-3 * f, _stages("synchronization", 4e-3, 4e-3 * f)) for f in powers], run,
    )  # fmt: skip
    disorder_free = _sweep(
        "free 32 × 64, sync 4e-5", "disorder probability",
        [(4e-5 * f, _free(4e-5 * f, 4e-5)) for f in (0.1, 1.0, 10.0, 100.0)], run,
    )  # fmt: skip
    sync_free = _sweep(
        "free 32 × 64, disorder 4e-5", "synchronization probability",
        [(4e-5 * f, _free(4e-5, 4e-5 * f)) for f in powers], run,
    )  # fmt: skip
    gpus_queue = _sweep(
        "3D (4,4,n), single queue 1e-6", "GPUs",
        [(16 * n, _stages(queue, 1e-6, pipeline=n)) for n in (1, 2, 4, 8, 16)], run,
    )  # fmt: skip
    gpus_sync = _sweep(
        "3D (4,4,n), 4e-3 / 4e-3", "GPUs",
        [(16 * n, _stages("synchronization", 4e-3, 4e-3, pipeline=n)) for n in (1, 2, 4, 8, 16)], run,
    )  # fmt: skip
    collectives_queue = _sweep(
        "3D (4,4,4), single queue 1e-6", "collectives, of the paper's",
        [(s, _stages(queue, 1e-6, scale=s)) for s in (0.25, 0.5, 1.0, 2.0)], run,
    )  # fmt: skip
    collectives_sync = _sweep(
        "3D (4,4,4), 4e-3 / 4e-3", "collectives, of the paper's",
        [(s, _stages("synchronization", 4e-3, 4e-3, scale=s)) for s in (0.25, 0.5, 1.0, 2.0)], run,
    )  # fmt: skip
    overlap_launches = _sweep(
        "24 GPUs, 1200 launches a GPU, 4e-3 / 4e-3",
        "groups a GPU belongs to",
        [(k, _overlap(k, 1200, 4e-3)) for k in range(1, 7)],
        run,
    )
    overlap_collectives = _sweep(
        "24 GPUs, 400 collectives a group, 4e-3 / 4e-3",
        "groups a GPU belongs to",
        [(k, _overlap(k, 400 * k, 4e-3)) for k in range(1, 7)],
        run,
    )
    return [
        _extremely_low(queue_sweep, sync_free),
        _positive([queue_sweep, disorder_3d, sync_3d, disorder_free, sync_free]),
        _more_sensitive([(disorder_3d, sync_3d), (disorder_free, sync_free)]),
        _all_rise(4, "The ratio correlates positively with the number of GPUs and of collectives.",
                  [gpus_queue, gpus_sync, collectives_queue, collectives_sync]),
        _all_rise(5, "In the synchronization model the ratio correlates positively with the overlap of groups.",
                  [overlap_launches, overlap_collectives]),
    ]  # fmt: skip


def _extremely_low(queue: Sweep, free: Sweep) -> Conclusion:
    def magnified(sweep: Sweep, decision: str) -> float:
        return max(low / x for x, _, low, _ in sweep.series(decision))

    confirmed = {d: magnified(queue, d) >= 1e4 and magnified(free, d) >= 1e2 for d in DECISIONS}
    finding = "; ".join(
        f"{d}: single queue {magnified(queue, d):.2g} times the probability, free groups {magnified(free, d):.2g} times"
        for d in DECISIONS
    )
    claim = (
        "Extremely low probabilities lead to prohibitively high ratios (10^6 and 10^3 times the probability)."
    )
    return Conclusion(1, claim, [queue, free], confirmed, finding)


def _positive(sweeps: list[Sweep]) -> Conclusion:
    claim = "The ratio correlates positively with the disorder and the synchronization probability."
    return _all_rise(2, claim, sweeps)


def _all_rise(number: int, claim: str, sweeps: list[Sweep]) -> Conclusion:
    confirmed = {d: all(sweep.rises(d) for sweep in sweeps) for d in DECISIONS}
    finding = "; ".join(
        f"{d}: "
        + ", ".join(f"{s.name} over {s.axis} {'rises' if s.rises(d) else 'does not rise'}" for s in sweeps)
        for d in DECISIONS
    )
    return Conclusion(number, claim, sweeps, confirmed, finding)


def _more_sensitive(pairs: list[tuple[Sweep, Sweep]]) -> Conclusion:
    claim = (
        "The synchronization model is more sensitive to the synchronization than to the disorder probability."
    )
    confirmed = {}
    parts = []
    for d in DECISIONS:
        confirmed[d] = all(sync.steepness(d) > disorder.steepness(d) for disorder, sync in pairs)
        parts.append(f"{d}: " + ", ".join(
            f"{sync.name.split(',')[0]} … ratio ~ disorder^{disorder.steepness(d):.2f}, sync^{sync.steepness(d):.2f}"
            for disorder, sync in pairs
        ))  # fmt: skip
    return Conclusion(3, claim, [sweep for pair in pairs for sweep in pair], confirmed, "; ".join(parts))


def plot(conclusion: Conclusion, path: Path) -> None:
    """One panel a sweep, both decisions, 95 % intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(conclusion.sweeps))
    rows = -(-len(conclusion.sweeps) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.6 * columns, 3.5 * rows), squeeze=False)
    for axes in list(grid.flat)[len(conclusion.sweeps) :]:
        axes.axis("off")
    for axes, sweep in zip(grid.flat, conclusion.sweeps, strict=False):
        for decision, style in zip(DECISIONS, ("o-", "s--"), strict=True):
            series = sweep.series(decision)
            x = [point[0] for point in series]
            y = [point[1] for point in series]
            below = [max(0.0, point[1] - point[2]) for point in series]
            above = [max(0.0, point[3] - point[1]) for point in series]
            axes.errorbar(x, y, yerr=[below, above], fmt=style, capsize=3, label=decision, markersize=4)
        wide = max(x for x, _ in sweep.points) / min(x for x, _ in sweep.points) > 6.5
        if wide or "probability" in sweep.axis:
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks([x for x, _ in sweep.points], [f"{x:g}" for x, _ in sweep.points])
        positive = [y for decision in DECISIONS for _, y, *_ in sweep.series(decision) if y > 0]
        if positive:
            axes.set_yscale("log")
            axes.set_ylim(min(positive) / 3, min(1.3, 3 * max(positive)))
        axes.set_xlabel(sweep.axis)
        axes.set_ylabel("deadlock ratio")
        axes.set_title(sweep.name, fontsize=10)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    verdict = ", ".join(
        f"{d}: {'confirmed' if ok else 'not confirmed'}" for d, ok in conclusion.confirmed.items()
    )
    figure.suptitle(f"{conclusion.number}. {conclusion.claim}\n{verdict}", fontsize=11)
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=120)
    plt.close(figure)
