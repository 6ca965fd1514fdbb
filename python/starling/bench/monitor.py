"""`starling bench monitor`: what the window monitor costs, and what windows of several sizes show (ICCL Fig. 15)."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.write_whole import whole

from .options import Json, Programs, finish, refuse, speaker
from .plots import pyplot
from .programs import MissingProgramError, find_program
from .results import document

SIZES = (1, 8, 32)
MOST_CORE_PERCENT = 2.0  # at 100,000 transfers a second

# The simulated path: 200 Gbit/s, and from 100 us to 300 us another load leaves a third of it.
BYTES_PER_NS = 25.0
MESSAGE_BYTES = 65536
DEPTH = 2
JITTER = 0.6  # of a message's time on the wire, either way
DISTURBED_NS = (100_000, 300_000)
LENGTH_NS = 400_000
STEP_NS = 10_000  # of the drawn curves
SEEDS = 20
ALARM = 0.6  # of the mean: a naive threshold

Record = tuple[int, int, int, int]


def speed_at(time_ns: float) -> float:
    """What the path really carries, in bytes a nanosecond."""
    return BYTES_PER_NS / 3 if DISTURBED_NS[0] <= time_ns < DISTURBED_NS[1] else BYTES_PER_NS


def simulate(seed: int) -> list[Record]:
    """Messages back to back, `DEPTH` of them under way, on simulated time."""
    rng = random.Random(seed)
    completed: list[int] = []
    records: list[Record] = []
    free_ns = 0.0
    while free_ns < LENGTH_NS:
        posted = completed[-DEPTH] if len(completed) >= DEPTH else 0
        start = max(free_ns, posted)
        free_ns = start + MESSAGE_BYTES / speed_at(start) * rng.uniform(1 - JITTER, 1 + JITTER)
        completed.append(int(free_ns))
        records.append((posted, int(free_ns), MESSAGE_BYTES, (DEPTH - 1) * MESSAGE_BYTES))
    return records


def curve(records: list[Record], size: int) -> list[float | None]:
    """GB/s of the newest window at every step; None before there is one."""
    from starling.monitor import windows

    found = windows(records, size)
    ends = [end_ns for end_ns, _ in found]
    values: list[float | None] = []
    for time_ns in range(STEP_NS, LENGTH_NS, STEP_NS):
        index = bisect_right(ends, time_ns) - 1
        values.append(found[index][1] / 1e9 if index >= 0 else None)
    return values


def judge_window(size: int) -> dict[str, Any]:
    """Where the path's speed is constant: how far below it windows are (they count what waits in the queue), and how
    they fluctuate. After the drop: when a window is below `ALARM` of the mean before; how many were so before it."""
    from starling.monitor import anomalies, windows

    means: list[float] = []
    fluctuations: list[float] = []
    delays: list[float] = []
    false_alarms: list[bool] = []
    found = 0
    for seed in range(SEEDS):
        records = simulate(seed)
        of_size = [(end_ns, rate / 1e9) for end_ns, rate in windows(records, size)]
        steady = [rate for end_ns, rate in of_size if end_ns < DISTURBED_NS[0]]
        mean = statistics.mean(steady)
        means.append(mean)
        fluctuations.append(statistics.stdev(steady) / mean)
        false_alarms += [rate < ALARM * mean for rate in steady]
        after = (end_ns for end_ns, rate in of_size if end_ns >= DISTURBED_NS[0] and rate < ALARM * mean)
        delays.append(next(after, LENGTH_NS) - DISTURBED_NS[0])
        causes = [one.cause for one in anomalies(records, size) if one.begin_ns <= DISTURBED_NS[1]]
        found += "network" in causes
    return {
        "window": size,
        "below_the_truth_percent": round(100 * (1 - statistics.mean(means) / BYTES_PER_NS), 1),
        "fluctuation_percent": round(100 * statistics.mean(fluctuations), 1),
        "false_alarms_percent": round(100 * statistics.mean(false_alarms), 1),
        "follows_a_drop_after_us": round(statistics.median(delays) / 1e3, 1),
        "disturbances_found": found,
        "of": SEEDS,
    }


def measure_cost(programs: Path | None, seconds: float, rounds: int) -> dict[str, Any]:
    call = [str(find_program("monitor_bench", programs)), "--seconds", str(seconds), "--rounds", str(rounds)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"{call[0]} ended with {done.returncode}")
    cost: dict[str, Any] = json.loads(done.stdout)
    cost["added_ns"] = round(cost["transfer_with_ns"] - cost["transfer_without_ns"], 1)
    # The proxy's shares differ by noise too, from which no small difference is to be read.
    of_transfers = cost["added_ns"] * cost["rate"] / 1e9
    of_shares = (cost["core_percent_with"] - cost["core_percent_without"]) / 100
    cost["added_core_percent"] = round(100 * max(of_transfers, of_shares), 3)
    return cost


def plot(doc: dict[str, Any], path: Path) -> None:
    """GB/s over time, one curve for each size of the window, and the truth."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(8, 3.6))
    times = [time_ns / 1e3 for time_ns in doc["curves"]["time_ns"]]
    truth = [speed_at(time * 1e3) for time in times]
    axis.step(times, truth, where="mid", color="black", lw=1, label="the path's own speed")
    for size, color in zip(SIZES, ("#D55E00", "#0072B2", "#009E73"), strict=True):
        axis.plot(
            times, doc["curves"][str(size)], color=color, lw=1.2, marker=".", ms=4, label=f"window {size}"
        )
    axis.set_xlabel("simulated time (µs)")
    axis.set_ylabel("GB/s")
    axis.set_ylim(0, None)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    axis.set_title("Throughput by windows of transfers, as ICCL Fig. 15", fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def measure(programs: Path | None, seconds: float, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    cost = measure_cost(programs, seconds, rounds)
    say(f"# at {cost['rate']} transfers a second; medians of {rounds}")
    say(
        f"  records added to a transfer     {cost['added_ns']:>8.1f} ns  (a look at the clock {cost['clock_ns']:.1f})"
    )
    say(f"  of a core, proxy without        {cost['core_percent_without']:>8.2f} %")
    say(f"  of a core, proxy with records   {cost['core_percent_with']:>8.2f} %")
    say(f"  of a core, proxy while watched  {cost['core_percent_watched']:>8.2f} %")
    say(f"  of a core, the watcher itself   {cost['watcher_core_percent']:>8.2f} %")
    say(
        f"  a transfer over loopback        {cost['flow_transfer_without_ns']:>8.0f} ns without, "
        f"{cost['flow_transfer_with_ns']:.0f} with"
    )
    rows = [judge_window(size) for size in SIZES]
    say("# simulated path: from 100 us on another load leaves a third of it")
    say("# window  below truth  fluctuation  false alarms  follows after  anomalies found")
    for row in rows:
        say(
            f"  {row['window']:>6}  {row['below_the_truth_percent']:>9.1f} %  {row['fluctuation_percent']:>9.1f} %"
            f"  {row['false_alarms_percent']:>10.1f} %  {row['follows_a_drop_after_us']:>10.1f} us"
            f"  {row['disturbances_found']:>9} of {row['of']}"
        )
    records = simulate(0)
    curves: dict[str, Any] = {"time_ns": list(range(STEP_NS, LENGTH_NS, STEP_NS))}
    for size in SIZES:
        curves[str(size)] = [None if value is None else round(value, 3) for value in curve(records, size)]
    settings = {
        "bytes_per_ns": BYTES_PER_NS,
        "message_bytes": MESSAGE_BYTES,
        "depth": DEPTH,
        "jitter": JITTER,
        "disturbed_ns": DISTURBED_NS,
        "seconds": seconds,
        "rounds": rounds,
    }
    return document("monitor", settings, rows, cost=cost, curves=curves)


def command(
    seconds: Annotated[float, typer.Option(min=0.05, help="of each paced measurement")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="repetitions, in turns")] = 7,
    picture: Annotated[Path | None, typer.Option(help="draw the windows into this PNG")] = None,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """What the window monitor costs a proxy at 100,000 transfers a second, and windows of 1, 8 and 32 (ICCL Fig. 15).

    with and without: CPU time of the thread that posts transfers and hears that they landed, in bursts of a
    millisecond's, in turns. Windows: a simulated path with known speed, 20 seeds. Exit code 1: over 2 % of a core.
    """
    try:
        doc = measure(programs, seconds, rounds, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    finish(doc, json_path)
    if picture:
        plot(doc, picture)
    if doc["cost"]["added_core_percent"] > MOST_CORE_PERCENT:
        refuse(f"the monitor takes {doc['cost']['added_core_percent']} % of a core", 1)
