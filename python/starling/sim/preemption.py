"""The study of preemption: runs bench/sim/preemption_bench.cc, keeps its figures as JSON, draws them, and fits
DFCCL's expression 2 to them. `python -m starling.sim.preemption`; times are virtual, so load does not matter.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling.bench import results
from starling.bench.programs import find_program
from starling.write_whole import whole

SWEEPS = ("budget", "ranks", "disorder")
Row = dict[str, Any]


def measure(sweep: str, seeds: int, programs: Path | None) -> list[Row]:
    """The rows of one sweep. Raises CalledProcessError if the simulator fails."""
    call = [str(find_program("sim.preemption_bench", programs)), sweep, str(seeds)]
    text = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    rows: list[Row] = []
    for line in csv.DictReader(text.splitlines()):
        rows.append(
            {
                "sweep": sweep,
                "policy": line["policy"],
                **{key: float(value) for key, value in line.items() if key not in ("policy", "wall_s", "ok")},
                "ok": line["ok"] == "1",
            }
        )
    return rows


@dataclass(frozen=True)
class Fit:
    """T = base + rise * N + fall / N, T in us and N in ns, by least squares of relative errors."""

    base: float
    rise: float
    fall: float
    worst_relative_error: float

    def at(self, budget_ns: float) -> float:
        return self.base + self.rise * budget_ns + self.fall / budget_ns


def fit_expression_2(budgets_ns: list[float], times_us: list[float]) -> Fit:
    import numpy

    n, t = numpy.array(budgets_ns), numpy.array(times_us)
    columns = numpy.stack([numpy.ones_like(n), n, 1 / n], axis=1) / t[:, None]
    base, rise, fall = (float(v) for v in numpy.linalg.lstsq(columns, numpy.ones_like(t), rcond=None)[0])
    fitted = base + rise * n + fall / n
    return Fit(base, rise, fall, float(numpy.max(numpy.abs(fitted / t - 1))))


def of_sweep(rows: list[Row], sweep: str, policy: str) -> list[Row]:
    return [row for row in rows if row["sweep"] == sweep and row["policy"] == policy]


def conclusions(rows: list[Row]) -> dict[str, Any]:
    """What docs/SIMULATOR.md says, as figures."""
    found: dict[str, Any] = {}
    for policy in ("fixed", "adaptive"):
        part = of_sweep(rows, "budget", policy)
        budgets = [row["budget_ns"] for row in part]
        times = [row["completion_us"] for row in part]
        fit = fit_expression_2(budgets, times)
        best = min(part, key=lambda row: row["completion_us"])
        upper = [row for row in part if row["budget_ns"] >= 10_000]
        slope = math.log(upper[-1]["completion_us"] / upper[0]["completion_us"]) / math.log(
            upper[-1]["budget_ns"] / upper[0]["budget_ns"]
        )
        found[policy] = {
            **vars(fit),
            "best_budget_ns": best["budget_ns"],
            "best_completion_us": best["completion_us"],
            "exponent_from_10_us_on": round(slope, 3),
            "park_cost_us_above_which_longer_pays": round(cost_that_pays(part), 2),
            "parks_per_rank_smallest_budget": part[0]["parks_per_rank"],
            "parks_per_rank_largest_budget": part[-1]["parks_per_rank"],
        }
    return found


def cost_that_pays(part: list[Row]) -> float:
    """A park costs nothing here but its operations. What it must cost in us that a budget that saves a tenth of them
    beats the smallest one."""
    first = part[0]
    costs: list[float] = [
        (row["completion_us"] - first["completion_us"]) / (first["parks_per_rank"] - row["parks_per_rank"])
        for row in part[1:]
        if row["parks_per_rank"] < 0.9 * first["parks_per_rank"]
    ]
    return min(costs)


def draw(rows: list[Row], sweep: str, path: Path) -> None:
    """Completion time, parks and quits of one sweep, one below the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x_of = {"budget": "budget_ns", "ranks": "ranks", "disorder": "disorder"}[sweep]
    label = {"budget": "budget (ns)", "ranks": "ranks", "disorder": "disorder"}[sweep]
    what = {
        "completion_us": "completion (us, virtual)",
        "parks_per_rank": "parks a rank",
        "quits_per_rank": "quits a rank",
    }
    figure, axes = pyplot.subplots(3, 1, figsize=(7, 9), sharex=True)
    for policy in ("fixed", "adaptive"):
        part = of_sweep(rows, sweep, policy)
        if not part:
            continue
        x = [row[x_of] for row in part]
        for panel, (key, name) in zip(axes, what.items(), strict=True):
            panel.plot(x, [row[key] for row in part], marker="o", label=policy)
            panel.set_ylabel(name)
            panel.grid(True, alpha=0.3)
        if sweep == "budget":
            fit = fit_expression_2(x, [row["completion_us"] for row in part])
            axes[0].plot(x, [fit.at(n) for n in x], "--", color="0.5", label=f"fit of expression 2, {policy}")
    axes[0].set_yscale("log")
    if sweep != "disorder":
        axes[0].set_xscale("log")
    axes[0].legend()
    axes[-1].set_xlabel(label)
    axes[0].set_title(f"Preemption against {label}")
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m starling.sim.preemption", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs a point, each in an order of its own")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="folder of JSON and pictures")
    parser.add_argument("--programs", type=Path, default=None, help="folder of sim.preemption_bench")
    options = parser.parse_args()
    rows = [row for sweep in SWEEPS for row in measure(sweep, options.seeds, options.programs)]
    document = results.document(
        "preemption",
        {"seeds": options.seeds},
        rows,
        command=f"python -m starling.sim.preemption --seeds {options.seeds}",
        expression_2=conclusions(rows),
    )
    results.write(options.out / "preemption.json", document)
    for sweep in SWEEPS:
        draw(rows, sweep, options.out / f"preemption_{sweep}.png")
    if not all(row["ok"] for row in rows):
        raise SystemExit("a run failed: see the rows that are not ok")


if __name__ == "__main__":
    main()
