"""GC3's Fig. 7, measured on this machine, beside the model: `python -m starling.tune.figure_7_measured`.

On CPUs four ranks that are processes, two nodes of two each, though no slower link lies between them here; and rings of
four that are threads, which may read each other's buffers. On GPUs
(`--device cuda`) two ranks for rings and all pairs, a GPU each; four for what knows nodes, two of which share a GPU and
are a node: inside it messages stay in the GPU's memory, between nodes they cross NVLink. Ranks are threads there.
Each pair of plans takes turns; every result is checked.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from starling import _core, ir
from starling.comm import Communicator
from starling.launch import run_processes, run_threads
from starling.numbers import COLLECTIVES as NUMBERS
from starling.plans import program
from starling.tune.measure import Memory
from starling.tune.model import CPU, GPUS, Machine, cost_us
from starling.write_whole import whole

COMPOSED = "composed"
"""No plan: a reduce-scatter inside the nodes, an all-reduce across, an all-gather inside, one after the other."""
LARGEST_PACKETS = 1 << 20  # on GPUs; larger buffers are not what packets are for


@dataclass(frozen=True)
class Pair:
    """``first`` and ``second`` are plans' texts, or COMPOSED."""

    panel: str
    names: tuple[str, str]
    plans: tuple[str, str]


@dataclass(frozen=True)
class Group:
    """Ranks of a run. nodes: of equally many ranks, which on GPUs share one."""

    ranks: int
    nodes: int
    blocks: int
    device: str = "cpu"
    machine: Machine | None = CPU
    """None: the model has nothing like it."""
    threads: bool = False
    """Of ranks on CPUs: not processes."""

    def text(
        self, name: str, collective: str, algorithm: str, protocol: str = "slots", **options: Any
    ) -> str:
        made = program(collective, algorithm, self.ranks, **options)
        made.protocol = protocol
        plan = made.compile(blocks=self.blocks)
        plan.name = name.replace(" ", "")
        return ir.to_text(plan)

    def ring(self, channels: int, instances: int, protocol: str) -> tuple[str, str]:
        plural = "" if channels == 1 else "s", "" if instances == 1 else "s"
        name = f"ring, {channels} channel{plural[0]}, {instances} instance{plural[1]}, {protocol}"
        name += ", threads" if self.threads else ""
        return name, self.text(name, "all_reduce", "ring", protocol, channels=channels, instances=instances)

    def pair(self, panel: str, first: tuple[str, str], second: tuple[str, str]) -> Pair:
        return Pair(panel, (first[0], second[0]), (first[1], second[1]))


CPUS = Group(4, 2, 4)
CPU_THREADS = Group(4, 1, 4, threads=True)
TWO_GPUS = Group(2, 1, 32, "cuda", GPUS)
SHARED_GPUS = Group(4, 2, 16, "cuda", None)
CPU_RINGS = (
    (1, 1, "packets"), (2, 1, "slots"), (4, 1, "slots"), (1, 2, "slots"), (1, 4, "slots"), (2, 2, "slots"),
    (2, 2, "packets"),
)  # fmt: skip
CPU_THREAD_RINGS = (
    *((1, count, "pull") for count in (1, 2, 4)), (4, 1, "pull"), (2, 2, "pull"), (1, 4, "slots"),
    *((1, count, "packets") for count in (1, 4)),
)  # fmt: skip


def pairs(group: Group) -> list[Pair]:
    if group.threads:
        return _rings(group, (1, 1, "slots"), CPU_THREAD_RINGS)
    if group.device == "cpu":
        return [*_rings(group, (1, 1, "slots"), CPU_RINGS), *_all_pairs(group, 1), *_noded(group, (1,))]
    if group.nodes > 1:
        return _noded(group, (1, 4))
    swept = itertools.product((1, 2), (1, 4, 16), ("slots", "packets", "pull"))
    return [*_rings(group, (1, 4, "slots"), swept), *_all_pairs(group, 4, 16)]


def _rings(group: Group, baseline: tuple[int, int, str], swept: Any) -> list[Pair]:
    second = group.ring(*baseline)
    return [group.pair("a", group.ring(*one), second) for one in swept if one != baseline]


def _all_pairs(group: Group, *instances: int) -> list[Pair]:
    """Beside a ring of as many instances and the same protocol."""
    found = []
    for count, protocol in itertools.product(
        instances, ("slots",) if group.device == "cpu" else ("slots", "packets", "pull")
    ):
        name = "all pairs" if group.device == "cpu" else f"all pairs, {count} instances, {protocol}"
        made = group.text(name, "all_reduce", "two_shot", protocol, instances=count)
        ring = group.ring(1, count, protocol)
        found.append(group.pair("a", (name, made), ("ring", ring[1]) if group.device == "cpu" else ring))
    return found


def _noded(group: Group, instances: tuple[int, ...]) -> list[Pair]:
    found = []
    for count in instances:
        more = "" if count == 1 else f", {count} instances"
        plain: dict[str, Any] = {"instances": count}
        noded = {**plain, "nodes": group.nodes}
        named = {
            name: (name + more, group.text(name + more, collective, algorithm, **options))
            for name, collective, algorithm, options in (
                ("hierarchical", "all_reduce", "hierarchical", noded),
                ("two-step all-to-all", "all_to_all", "two_step", noded),
                ("direct", "all_to_all", "direct", plain),
                ("AllToNext", "all_to_next", "spread", noded),
                ("direct next", "all_to_next", "direct", plain),
            )
        }
        found += [
            group.pair("c", named["hierarchical"], (COMPOSED, COMPOSED)),
            group.pair("e", named["two-step all-to-all"], named["direct"]),
            group.pair("g", named["AllToNext"], named["direct next"]),
        ]
    return found


def _gpu_of(rank: int, per_gpu: int) -> str:
    return f"cuda:{rank // per_gpu}"


class _Rank:
    def __init__(self, comm: Communicator, group: Group) -> None:
        self.comm, self.group = comm, group
        self.memory = Memory(comm.context.device)
        size = group.ranks // group.nodes
        self.inside, self.across = comm.split(comm.rank // size), comm.split(comm.rank % size)
        self.added: dict[str, ir.Plan] = {}

    def steps(self, text: str, given: Any, result: Any) -> list[_core.Step]:
        if text == COMPOSED:
            return self._composed(given, result)
        if text not in self.added:
            self.added[text] = ir.parse(text)
            self.comm.add_plan(self.added[text])
        plan = self.added[text]
        groups = (plan.input_groups, plan.output_groups) if plan.collective == "custom" else None
        return [self._step(self.comm, plan.collective, given, result, plan.name, groups)]

    def _step(
        self,
        comm: Communicator,
        collective: str,
        given: Any,
        result: Any,
        algorithm: str,
        groups: tuple[int, int] | None = None,
    ) -> _core.Step:
        kind = CUSTOM if collective == "custom" else NUMBERS[collective]
        return _core.Step(
            comm._core, kind, given, result, algorithm=algorithm, groups=groups, **self.memory.start
        )

    def _composed(self, given: Any, result: Any) -> list[_core.Step]:
        assert self.inside is not None and self.across is not None
        size = len(given) // self.inside.size
        part, whole = (self.memory.put(np.empty(size, np.float32)) for _ in range(2))
        return [
            self._step(self.inside, "reduce_scatter", given, part, "ring"),
            self._step(self.across, "all_reduce", part, whole, "ring"),
            self._step(self.inside, "all_gather", whole, result, "ring"),
        ]

    def check(self, text: str, inputs: list[Any], found: Any) -> None:
        collective = "all_reduce" if text == COMPOSED else self.added[text].collective
        rank, part, result = self.comm.rank, len(inputs[0]) // self.group.ranks, self.memory.get(found)
        if collective == "all_reduce":
            right = np.array_equal(result, np.sum(inputs, axis=0))
        elif collective == "all_to_all":
            mine = slice(rank * part, (rank + 1) * part)
            right = np.array_equal(result, np.concatenate([given[mine] for given in inputs]))
        else:
            right = rank == 0 or np.array_equal(result, inputs[rank - 1])
        if not right:
            raise AssertionError(f"{collective} of {len(result)} elements is wrong: {text[:80]}")

    def measure(self, pair: Pair, size: int, repetitions: int, slice_s: float) -> list[list[float]]:
        """Samples of both, us a call."""
        inputs = [((np.arange(size // 4) + r) % 7).astype(np.float32) for r in range(self.group.ranks)]
        given, result = self.memory.put(inputs[self.comm.rank]), self.memory.put(np.zeros_like(inputs[0]))
        runs = [self.steps(text, given, result) for text in pair.plans]
        calls = []
        for text, steps in zip(pair.plans, runs, strict=True):
            result[:] = 0
            self.memory.settle()
            self._us(steps, 1)
            self.check(text, inputs, result)
            longest = self.memory.put(np.array([self._us(steps, 3)]))
            self.memory.settle()
            self.comm.all_reduce(longest, op="max").wait(60)
            calls.append(int(max(2, min(200, slice_s * 1e6 / self.memory.get(longest)[0]))))
        samples: list[list[float]] = [[], []]
        for repetition in range(repetitions):
            for k in (0, 1) if repetition % 2 == 0 else (1, 0):
                samples[k].append(self._us(runs[k], calls[k]))
        return samples

    def _us(self, steps: list[_core.Step], calls: int) -> float:
        self.comm.barrier().wait(60)
        return _core.time_calls(1, calls, steps) / calls * 1e6


CUSTOM = 11  # STARLING_CUSTOM


def _fits(pair: Pair, size: int, group: Group) -> bool:
    return (
        group.device == "cpu" or size <= LARGEST_PACKETS or not any("packets" in name for name in pair.names)
    )


def _rank_main(
    comm: Communicator, group: Group, todo: list[Pair], sizes: list[int], repetitions: int, slice_s: float
) -> Any:
    rank = _Rank(comm, group)
    return [
        [
            rank.measure(pair, size, repetitions, slice_s) if _fits(pair, size, group) else None
            for size in sizes
        ]
        for pair in todo
    ]


def _modelled(pair: Pair, size: int, machine: Machine | None) -> list[float] | None:
    """The same two by the cost model, us; composed plans it does not know."""
    if COMPOSED in pair.plans or machine is None:
        return None
    plans = [ir.parse(text) for text in pair.plans]
    parts = [plan.output_groups if plan.collective == "all_to_all" else 1 for plan in plans]
    return [round(cost_us(plan, size // n, machine), 2) for plan, n in zip(plans, parts, strict=True)]


def measure(
    group: Group, sizes: list[int], repetitions: int, slice_s: float, timeout_s: float = 600
) -> list[dict[str, Any]]:
    todo = pairs(group)
    function = partial(
        _rank_main, group=group, todo=todo, sizes=sizes, repetitions=repetitions, slice_s=slice_s
    )
    context: dict[str, Any] = {"blocks": group.blocks}
    if group.device != "cpu":
        context["device"] = partial(_gpu_of, per_gpu=group.ranks // 2)
    launch: Any = run_processes if group.device == "cpu" and not group.threads else run_threads
    by_rank = launch(group.ranks, function, context=context, timeout=timeout_s, operation_timeout=60)
    rows = []
    for p, pair in enumerate(todo):
        medians: list[list[float] | None] = []
        for s in range(len(sizes)):
            found = [of_rank[p][s] for of_rank in by_rank]
            medians.append(
                None
                if found[0] is None
                else [
                    round(
                        statistics.median(map(statistics.fmean, zip(*(f[k] for f in found), strict=True))), 2
                    )
                    for k in range(2)
                ]
            )
        models = [
            _modelled(pair, size, group.machine) if us else None
            for size, us in zip(sizes, medians, strict=True)
        ]
        rows.append(
            {
                "panel": pair.panel,
                "ranks": group.ranks,
                "first": pair.names[0],
                "second": pair.names[1],
                "us": medians,
                "model_us": models,
                "ratios": [us and round(us[1] / us[0], 3) for us in medians],
                "model_ratios": [model and round(model[1] / model[0], 3) for model in models],
            }
        )
    return rows


def table(rows: list[dict[str, Any]], sizes: list[int]) -> list[str]:
    lines = [
        "| | first | second | " + " | ".join(f"{size >> 10} KB" for size in sizes) + " |",
        "| --- | --- | --- | " + " | ".join("---:" for _ in sizes) + " |",
    ]
    for row in rows:
        cells = [
            "" if ratio is None else f"{ratio:.2f} ({model:.2f})" if model else f"{ratio:.2f}"
            for ratio, model in zip(row["ratios"], row["model_ratios"], strict=True)
        ]
        lines.append(f"| {row['panel']} | {row['first']} | {row['second']} | " + " | ".join(cells) + " |")
    return lines


def plot(rows: list[dict[str, Any]], sizes: list[int], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = sorted({row["panel"] for row in rows})
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        for row in (row for row in rows if row["panel"] == panel):
            (line,) = axis.plot(
                sizes, [ratio or float("nan") for ratio in row["ratios"]], marker="o", label=row["first"]
            )
            if any(row["model_ratios"]):
                model = [ratio or float("nan") for ratio in row["model_ratios"]]
                axis.plot(sizes, model, linestyle=":", color=line.get_color())
        seconds = sorted({row["second"] for row in rows if row["panel"] == panel}, key=len)
        axis.set(xscale="log", title=f"({panel}) over {seconds[0]}", xlabel="bytes", ylabel="times faster")
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.legend(fontsize=6)
    figure.suptitle(f"GC3 Fig. 7, {title}", fontsize=10)
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m starling.tune.figure_7_measured", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", default="", help="bytes of a rank's buffer")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--slice-ms", type=float, default=6.0)
    parser.add_argument("--timeout", type=float, default=600, help="seconds, of each group of ranks")
    parser.add_argument("--out", type=Path, default=None, help="JSON; the picture goes beside it")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    sizes = [1 << k for k in (range(10, 23, 4) if on_cpu else range(10, 27, 4))]
    if options.sizes:
        sizes = [int(size) for size in options.sizes.split(",")]
    groups = [CPUS, CPU_THREADS] if on_cpu else [TWO_GPUS, SHARED_GPUS]
    rows = []
    for group in groups:
        rows += measure(group, sizes, options.repetitions, options.slice_ms / 1e3, options.timeout)
    for line in table(rows, sizes):
        print(line)
    if options.out is not None:
        from starling.bench import results

        settings = {"groups": [repr(group) for group in groups], "sizes": sizes}
        settings |= {"repetitions": options.repetitions, "slice_ms": options.slice_ms}
        document = results.document("figure_7", settings, rows)
        document["command"] = "python -m starling.tune.figure_7_measured " + " ".join(sys.argv[1:])
        results.write(options.out, document)
        title = "4 processes, or threads, on 2 cores" if on_cpu else "(a) 2 GPUs; (c, e, g) 4 ranks on 2 GPUs"
        plot(rows, sizes, options.out.with_suffix(".png"), f"{title}; dotted: the model")


if __name__ == "__main__":
    main()
