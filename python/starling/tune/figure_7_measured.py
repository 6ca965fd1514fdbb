"""GC3's Fig. 7, measured on this machine's CPUs, beside the model: `python -m starling.tune.figure_7_measured`.

Four ranks that are processes; where a plan knows nodes they are two of two ranks each, though no slower link lies
between them here. Each pair of plans takes turns; every result is checked.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from starling import ir
from starling.comm import Communicator
from starling.launch import run_processes
from starling.plans import program
from starling.tune.model import CPU, cost_us
from starling.write_whole import whole

RANKS, NODES, BLOCKS = 4, 2, 4
SIZES = [1 << k for k in range(10, 23, 4)]
COMPOSED = "composed"
"""No plan: a reduce-scatter inside the nodes, an all-reduce across, an all-gather inside, one after the other."""


@dataclass(frozen=True)
class Pair:
    """``first`` and ``second`` are plans' texts, or COMPOSED."""

    panel: str
    names: tuple[str, str]
    plans: tuple[str, str]


def _text(name: str, collective: str, algorithm: str, protocol: str = "slots", **options: Any) -> str:
    made = program(collective, algorithm, RANKS, **options)
    made.protocol = protocol
    plan = made.compile(blocks=BLOCKS)
    plan.name = name
    return ir.to_text(plan)


def pairs() -> list[Pair]:
    ring = _text("ring", "all_reduce", "ring")
    found = []
    for channels, instances, protocol in (
        (1, 1, "packets"), (2, 1, "slots"), (4, 1, "slots"), (1, 2, "slots"), (1, 4, "slots"), (2, 2, "slots"),
        (2, 2, "packets"),
    ):  # fmt: skip
        name = f"ring, {channels} channels, {instances} instances, {protocol}"
        text = _text(
            f"ring-{channels}-{instances}-{protocol}",
            "all_reduce",
            "ring",
            protocol,
            channels=channels,
            instances=instances,
        )
        found.append(Pair("a", (name, "ring, 1 channel, 1 instance, slots"), (text, ring)))
    found.append(Pair("a", ("all pairs", "ring"), (_text("two_shot", "all_reduce", "two_shot"), ring)))
    found.append(
        Pair(
            "c",
            ("hierarchical", COMPOSED),
            (_text("hierarchical", "all_reduce", "hierarchical", nodes=NODES), COMPOSED),
        )
    )
    direct = _text("direct", "all_to_all", "direct")
    two_step = _text("two_step", "all_to_all", "two_step", nodes=NODES)
    found.append(Pair("e", ("two-step all-to-all", "direct"), (two_step, direct)))
    straight = _text("straight", "all_to_next", "direct")
    spread = _text("spread", "all_to_next", "spread", nodes=NODES)
    found.append(Pair("g", ("AllToNext", "direct"), (spread, straight)))
    return found


class _Rank:
    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.inside = comm.split(comm.rank // (RANKS // NODES))
        self.across = comm.split(comm.rank % (RANKS // NODES))
        self.added: dict[str, ir.Plan] = {}

    def operation(self, text: str, given: Any, result: Any) -> Callable[[], None]:
        if text == COMPOSED:
            return partial(self._composed, given, result)
        if text not in self.added:
            self.added[text] = ir.parse(text)
            self.comm.add_plan(self.added[text])
        name = self.added[text].name
        return lambda: self.comm.run_plan(name, given, result).wait(60)

    def _composed(self, given: Any, result: Any) -> None:
        assert self.inside is not None and self.across is not None
        part = np.empty(len(given) // self.inside.size, given.dtype)
        whole = np.empty_like(part)
        self.inside.reduce_scatter(given, part, algorithm="ring").wait(60)
        self.across.all_reduce(part, whole, algorithm="ring").wait(60)
        self.inside.all_gather(whole, result, algorithm="ring").wait(60)

    def check(self, text: str, inputs: list[Any], result: Any) -> None:
        collective = "all_reduce" if text == COMPOSED else self.added[text].collective
        rank, part = self.comm.rank, len(inputs[0]) // RANKS
        if collective == "all_reduce":
            right = np.array_equal(result, np.sum(inputs, axis=0))
        elif collective == "all_to_all":
            mine = slice(rank * part, (rank + 1) * part)
            right = np.array_equal(result, np.concatenate([given[mine] for given in inputs]))
        else:
            right = rank == 0 or np.array_equal(result, inputs[rank - 1])
        if not right:
            raise AssertionError(f"{collective} of {len(result)} elements is wrong")

    def measure(self, pair: Pair, size: int, repetitions: int, slice_s: float) -> list[list[float]]:
        """Samples of both, us a call."""
        inputs = [((np.arange(size // 4) + r) % 7).astype(np.float32) for r in range(RANKS)]
        result = np.zeros_like(inputs[0])
        runs = [self.operation(text, inputs[self.comm.rank], result) for text in pair.plans]
        calls = []
        for text, run in zip(pair.plans, runs, strict=True):
            result[:] = 0
            run()
            self.check(text, inputs, result)
            longest = np.array([self._seconds(run, 3)])
            self.comm.all_reduce(longest, op="max").wait(60)
            calls.append(int(max(2, min(200, slice_s / longest[0]))))
        samples: list[list[float]] = [[], []]
        for repetition in range(repetitions):
            for k in (0, 1) if repetition % 2 == 0 else (1, 0):
                samples[k].append(self._seconds(runs[k], calls[k]) * 1e6)
        return samples

    def _seconds(self, run: Callable[[], None], calls: int) -> float:
        self.comm.barrier().wait(60)
        run()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - begin) / calls


def _rank_main(
    comm: Communicator, todo: list[Pair], sizes: list[int], repetitions: int, slice_s: float
) -> Any:
    rank = _Rank(comm)
    return [[rank.measure(pair, size, repetitions, slice_s) for size in sizes] for pair in todo]


def _modelled(pair: Pair, size: int) -> list[float] | None:
    """The same two by the cost model, us; composed plans it does not know."""
    if COMPOSED in pair.plans:
        return None
    plans = [ir.parse(text) for text in pair.plans]
    parts = [plan.output_groups if plan.collective == "all_to_all" else 1 for plan in plans]
    return [round(cost_us(plan, size // n, CPU), 2) for plan, n in zip(plans, parts, strict=True)]


def measure(sizes: list[int], repetitions: int, slice_s: float) -> list[dict[str, Any]]:
    todo = pairs()
    function = partial(_rank_main, todo=todo, sizes=sizes, repetitions=repetitions, slice_s=slice_s)
    by_rank = run_processes(RANKS, function, context={"blocks": BLOCKS}, timeout=600, operation_timeout=60)
    rows = []
    for p, pair in enumerate(todo):
        medians = [
            [
                round(
                    statistics.median(
                        map(statistics.fmean, zip(*(f[p][s][k] for f in by_rank), strict=True))
                    ),
                    2,
                )
                for k in range(2)
            ]
            for s in range(len(sizes))
        ]
        models = [_modelled(pair, size) for size in sizes]
        rows.append(
            {
                "panel": pair.panel,
                "first": pair.names[0],
                "second": pair.names[1],
                "us": medians,
                "model_us": models,
                "ratios": [round(second / first, 3) for first, second in medians],
                "model_ratios": [model and round(model[1] / model[0], 3) for model in models],
            }
        )
    return rows


def plot(rows: list[dict[str, Any]], sizes: list[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = sorted({row["panel"] for row in rows})
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        for row in (row for row in rows if row["panel"] == panel):
            (line,) = axis.plot(sizes, row["ratios"], marker="o", label=row["first"])
            if all(row["model_ratios"]):
                axis.plot(sizes, row["model_ratios"], linestyle=":", color=line.get_color())
        seconds = sorted({row["second"] for row in rows if row["panel"] == panel}, key=len)
        axis.set(xscale="log", title=f"({panel}) over {seconds[0]}", xlabel="bytes", ylabel="times faster")
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.legend(fontsize=6)
    figure.suptitle("GC3 Fig. 7, 4 processes on 2 cores; dotted: the model", fontsize=10)
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m starling.tune.figure_7_measured", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a rank's buffer")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--slice-ms", type=float, default=6.0)
    parser.add_argument("--out", type=Path, default=None, help="JSON; the picture goes beside it")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    rows = measure(sizes, options.repetitions, options.slice_ms / 1e3)
    print("| | first | second | " + " | ".join(f"{size >> 10} KB" for size in sizes) + " |")
    print("| --- | --- | --- | " + " | ".join("---:" for _ in sizes) + " |")
    for row in rows:
        cells = [
            f"{ratio:.2f} ({model:.2f})" if model else f"{ratio:.2f}"
            for ratio, model in zip(row["ratios"], row["model_ratios"], strict=True)
        ]
        print(f"| {row['panel']} | {row['first']} | {row['second']} | " + " | ".join(cells) + " |")
    if options.out is not None:
        from starling.bench import results

        settings = {"ranks": RANKS, "nodes": NODES, "blocks": BLOCKS, "sizes": sizes}
        settings |= {"repetitions": options.repetitions, "slice_ms": options.slice_ms, "model": repr(CPU)}
        document = results.document("figure_7", settings, rows)
        document["command"] = "python -m starling.tune.figure_7_measured " + " ".join(sys.argv[1:])
        results.write(options.out, document)
        plot(rows, sizes, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
