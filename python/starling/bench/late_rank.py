"""`starling bench late-rank`: DFCCL Fig. 11. One rank launches late; fixed budgets against adaptive ones."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from starling import launch, timeline
from starling.comm import Communicator, wait_all
from starling.context import Context, Scheduling
from starling.timeline import Event

from .options import Json, finish, refuse, speaker
from .results import document


@dataclass(frozen=True)
class Burst:
    """A backward pass: `collectives` all-reduces launched one behind the other, the same order on all ranks. The late
    rank starts `delay_ms` later and pauses `gap_us` before each."""

    ranks: int = 4
    collectives: int = 40
    count: int = 16384
    iterations: int = 20
    delay_ms: float = 1.0
    gap_us: float = 100.0
    late_rank: int = 2


WARMUPS = 2


def policies(profiled_ns: int) -> dict[str, Scheduling]:
    """The paper's two, between them a fixed budget as large as the profiled one, and the library's own. The paper's
    fixed budget (10,000 polls) is a tenth of its profiled one (100,000), which a success multiplies by 20."""
    return {
        "fixed, a tenth": Scheduling(initial_budget_ns=max(profiled_ns // 10, 1), fixed=True, in_turn=True),
        "fixed": Scheduling(initial_budget_ns=profiled_ns, fixed=True, in_turn=True),
        "adaptive": Scheduling(initial_budget_ns=profiled_ns, success_factor=20, in_turn=True),
        "looking": Scheduling(initial_budget_ns=profiled_ns, success_factor=20),
    }


def run_rank(burst: Burst, communicator: Communicator) -> dict[str, Any]:
    """One rank: times of the iterations, and what each collective went through."""
    inputs = [np.ones(burst.count, np.float32) for _ in range(burst.collectives)]
    outputs = [np.empty_like(values) for values in inputs]
    late = communicator.rank == burst.late_rank
    parks = [0] * burst.collectives
    queue = [0] * burst.collectives
    whole = 0
    seconds = []
    before = asdict(communicator.context.statistics())
    for iteration in range(WARMUPS + burst.iterations):
        if iteration == WARMUPS:
            before = asdict(communicator.context.statistics())
        communicator.barrier().wait()
        start = time.monotonic_ns()
        if late:
            time.sleep(burst.delay_ms / 1e3)
        requests = []
        for k in range(burst.collectives):
            if late and burst.gap_us:
                time.sleep(burst.gap_us / 1e6)
            requests.append(communicator.all_reduce(inputs[k], outputs[k], lane=f"gradient {k}"))
        wait_all(requests)
        if iteration >= WARMUPS:
            seconds.append((time.monotonic_ns() - start) / 1e9)
            events = timeline.of_context(communicator.context, communicator.rank)
            # The barrier left events from before: where none is there any more, the ring lost some of the burst too.
            if events and events[0].time_ns < start:
                whole += 1
                _count([event for event in events if event.time_ns >= start], parks, queue)
    after = asdict(communicator.context.statistics())
    return {
        "seconds": seconds,
        "right": all(bool((output == communicator.size).all()) for output in outputs),
        "parks": parks,
        "queue": queue,
        "whole": whole,
        "statistics": {name: (after[name] - before[name]) / burst.iterations for name in after},
        "queue_peak": after["queue_peak"],
    }


def _count(events: list[Event], parks: list[int], queue: list[int]) -> None:
    """Adds one iteration: how often each collective was parked, and how long the queue was when it was read."""
    under_way: set[str] = set()
    for event in events:
        if not event.lane.startswith("gradient "):
            continue
        k = int(event.lane.removeprefix("gradient "))
        if event.event == "fetch":
            under_way.add(event.lane)
            queue[k] += len(under_way)
        elif event.event == "park":
            parks[k] += 1
        elif event.event == "publish":
            under_way.discard(event.lane)


def measure(burst: Burst, repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    with Context() as context:
        profiled_ns = context.profile().initial_budget_ns
    chosen = policies(profiled_ns)
    results: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in chosen}
    for _ in range(repetitions):
        for name, scheduling in chosen.items():
            ranks = launch.run_processes(
                burst.ranks,
                functools.partial(run_rank, burst),
                timeout=120,
                context={"blocks": 1, "scheduling": scheduling},
            )
            results[name].append(ranks)
    say(
        f"# {burst.ranks} ranks, bursts of {burst.collectives} all-reduces of {burst.count * 4} B; rank "
        f"{burst.late_rank} is {burst.delay_ms} ms late; profiled budget {profiled_ns} ns; a rank and burst, rank 0"
    )
    say(f"# {'budget':<16} {'ms':>9} {'us each':>9} {'parks':>9} {'queue':>7} {'longest':>8} {'quits':>7}")
    rows = []
    for name, scheduling in chosen.items():
        rows.append(_row(name, scheduling, results[name], burst))
        row = rows[-1]
        say(
            f"  {name:<16} {row['time_ms']:>9.3f} {row['time_per_collective_us']:>9.1f} {row['parks']:>9.1f} "
            f"{_length(row):>7} {row['queue_peak']:>8} {row['quits']:>7.1f}"
        )
    settings = {**asdict(burst), "repetitions": repetitions, "profiled_budget_ns": profiled_ns}
    return document("late_rank", settings, rows)


def _length(row: dict[str, Any]) -> str:
    return "-" if row["queue_mean"] is None else f"{row['queue_mean']:.1f}"


def _by_collective(ranks: list[dict[str, Any]], what: str, bursts: int) -> list[float]:
    """Means over bursts; empty if there is none."""
    if bursts == 0:
        return []
    return [round(sum(counts) / bursts, 2) for counts in zip(*(one[what] for one in ranks), strict=True)]


def _row(name: str, scheduling: Scheduling, runs: list[list[dict[str, Any]]], burst: Burst) -> dict[str, Any]:
    first = [ranks[0] for ranks in runs]  # rank 0 stands for those that are not late, as in the paper
    seconds = statistics.median(sample for one in first for sample in one["seconds"])
    whole = sum(one["whole"] for one in first)
    queue_by_collective = _by_collective(first, "queue", whole)
    return {
        "policy": name,
        "scheduling": asdict(scheduling),
        "time_ms": round(seconds * 1e3, 4),
        "time_per_collective_us": round(seconds * 1e6 / burst.collectives, 2),
        "parks": round(statistics.fmean(one["statistics"]["parks"] for one in first), 2),
        "quits": round(
            statistics.fmean(
                one["statistics"]["quits_stuck"] + one["statistics"]["quits_idle"] for one in first
            ),
            2,
        ),
        "launches": round(statistics.fmean(one["statistics"]["launches"] for one in first), 2),
        "queue_mean": round(statistics.fmean(queue_by_collective), 2) if whole else None,
        "queue_peak": max(one["queue_peak"] for one in first),
        "right": all(rank["right"] for ranks in runs for rank in ranks),
        "bursts_traced_whole": whole,  # the next two are of these
        "parks_by_collective": _by_collective(first, "parks", whole),
        "queue_by_collective": queue_by_collective,
    }


def command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, max=16)] = 4,
    collectives: Annotated[int, typer.Option(min=2, help="of a burst")] = 40,
    count: Annotated[int, typer.Option(min=1, help="float32 elements of each")] = 16384,
    iterations: Annotated[int, typer.Option(min=1, help="bursts")] = 20,
    delay_ms: Annotated[float, typer.Option(min=0, help="how late the late rank begins")] = 1.0,
    gap_us: Annotated[float, typer.Option(min=0, help="and its pause before each launch")] = 100.0,
    repetitions: Annotated[int, typer.Option(min=1, help="policies take turns")] = 3,
    plot: Annotated[Path | None, typer.Option(help="draw the paper's figure into this PNG")] = None,
    json_path: Json = None,
) -> None:
    """DFCCL Fig. 11: one rank is late; what fixed budgets do to the others, and adaptive ones.

    Bursts of all-reduces, each in a lane of its own, as in a backward pass. While the late rank has launched
    nothing, the others park what they have and fetch more. parks: how often a collective gave up its place; queue:
    how many were under way when one more was read.
    """
    burst = Burst(ranks, collectives, count, iterations, delay_ms, gap_us, late_rank=min(2, ranks - 1))
    try:
        doc = measure(burst, repetitions, speaker(json_path))
    except launch.RanksFailedError as error:
        refuse(error, 1)
    finish(doc, json_path)
    if plot is not None:
        from .plots import plot_late_rank

        plot_late_rank(doc, plot)
    if not all(row["right"] for row in doc["rows"]):
        refuse("wrong results", 1)
