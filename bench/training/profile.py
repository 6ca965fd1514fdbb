"""Where the time of training steps goes: kernels by whose they are, calls of CUDA, and CPU time by thread."""

from __future__ import annotations

import collections
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

STEPS = 3  # under PyTorch's profiler, which makes them slower
OF_LIBRARIES = ("starling", "nccl", "daemon_kernel", "start_kernel", "herald_kernel", "gate_kernel")
MOST_ROWS = 12
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Thread:
    name: str
    seconds: float  # of a core
    sleeps: int
    preempted: int


def threads() -> dict[int, Thread]:
    """This process's, since each began."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            stat, status = (task / "stat").read_text(), (task / "status").read_text()
        except OSError:
            continue  # it has ended
        name, rest = stat.split("(", 1)[1].rsplit(")", 1)
        fields = rest.split()
        switches = [int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line]
        found[int(task.name)] = Thread(name, (int(fields[11]) + int(fields[12])) / TICKS, *switches)
    return found


def spent(before: dict[int, Thread], steps: int) -> list[dict[str, Any]]:
    """By each thread since `before`, per step; the busiest first."""
    none = Thread("", 0, 0, 0)
    rows = []
    for number, now in threads().items():
        since = before.get(number, none)
        rows.append(
            {
                "thread": now.name,
                "cpu_ms": round(1e3 * (now.seconds - since.seconds) / steps, 3),
                "sleeps": round((now.sleeps - since.sleeps) / steps, 1),
                "preempted": round((now.preempted - since.preempted) / steps, 1),
            }
        )
    rows.sort(key=lambda row: -row["cpu_ms"])
    return [row for row in rows if row["cpu_ms"] > 0 or row["sleeps"] >= 1][:MOST_ROWS]


def busy_us(spans: list[tuple[float, float]]) -> float:
    """In which at least one of them lasts."""
    busy, last = 0.0, float("-inf")
    for begin, end in sorted(spans):
        busy += max(end - max(begin, last), 0.0)
        last = max(last, end)
    return busy


def summed(events: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Of a trace in Chrome's format. Milliseconds and counts are of a step, microseconds of one call."""
    compute: list[tuple[float, float]] = []
    kernels: dict[str, list[float]] = collections.defaultdict(list)
    calls: dict[str, list[float]] = collections.defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        kind, name, length = event.get("cat", ""), event["name"], float(event["dur"])
        if kind == "kernel" and any(word in name for word in OF_LIBRARIES):
            blocks = event.get("args", {}).get("grid", ["?"])[0]
            kernels[f"{name.split('(')[0][:60]}, {blocks} blocks"].append(length)
        elif kind == "kernel":
            compute.append((event["ts"], event["ts"] + length))
        elif kind in ("cuda_runtime", "cuda_driver"):
            calls[name].append(length)

    def rows(found: dict[str, list[float]]) -> list[dict[str, Any]]:
        most = sorted(found.items(), key=lambda entry: -sum(entry[1]))[:MOST_ROWS]
        return [
            {
                "name": name,
                "ms": round(sum(lengths) / steps * 1e-3, 3),
                "count": round(len(lengths) / steps, 1),
                "us_each": round(sum(lengths) / len(lengths), 2),
            }
            for name, lengths in most
        ]

    span = max((end for _, end in compute), default=0.0) - min((begin for begin, _ in compute), default=0.0)
    return {
        "steps": steps,
        "step_ms": round(span / steps * 1e-3, 3),
        "computing_ms": round(busy_us(compute) / steps * 1e-3, 3),
        "kernels": rows(kernels),
        "calls": rows(calls),
    }


def profiled(one: Callable[[], torch.Tensor], kept: Path | None = None) -> dict[str, Any]:
    """Some steps, all of them over when it returns. `kept`: the trace, too, for Perfetto."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            one()
        if on_gpu:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="starling-profile-") as folder:
        path = kept or Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return summed(json.loads(path.read_text())["traceEvents"], STEPS)
