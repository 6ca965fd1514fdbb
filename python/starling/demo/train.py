"""`starling demo train`: starts the ranks, shows their progress, and tells what happened."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling import timeline
from starling.timeline import Event

PROGRESS = "@progress "
LOSS_TOLERANCE = 1e-9


class DemoError(RuntimeError):
    """The training did not end well; the text says how."""


@dataclass(frozen=True)
class Plan:
    """What to train."""

    ranks: int = 4
    steps: int = 150
    batch: int = 32
    synchronize_every: int = 2
    bucket_mib: float = 0.02
    seed: int = 1
    timeout_s: float = 600


@dataclass(frozen=True)
class Result:
    summary: dict[str, Any]
    losses: list[float]
    reference_losses: list[float]
    events: list[Event]


Progress = Callable[[str, int, float], None]


def train(plan: Plan, progress: Progress) -> Result:
    """Runs the two trainings on `plan.ranks` ranks under torchrun."""
    with tempfile.TemporaryDirectory(prefix="starling-demo-") as name:
        folder = Path(name)
        _run_ranks(plan, folder, progress)
        ranks = [json.loads((folder / f"rank.{rank}.json").read_text()) for rank in range(plan.ranks)]
        events = timeline.load(sorted(folder.glob("events.*.jsonl")))
    return Result(_summary(plan, ranks), ranks[0]["starling"]["losses"], ranks[0]["gloo"]["losses"], events)


def _run_ranks(plan: Plan, folder: Path, progress: Progress) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(plan.ranks),
    ]
    command += ["-m", "starling.demo.train_rank", "--folder", str(folder), "--steps", str(plan.steps)]
    command += ["--batch", str(plan.batch), "--synchronize-every", str(plan.synchronize_every)]
    command += ["--bucket-mib", str(plan.bucket_mib), "--seed", str(plan.seed)]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    last_lines: deque[str] = deque(maxlen=40)
    deadline = time.monotonic() + plan.timeout_s
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(PROGRESS):
                news = json.loads(line.removeprefix(PROGRESS))
                progress(news["phase"], news["step"], news["loss"])
            else:
                last_lines.append(line.rstrip())
            if time.monotonic() > deadline:
                raise DemoError(f"not finished within {plan.timeout_s:.0f} s")
        if process.wait() != 0:
            raise DemoError("a rank failed; the last lines:\n" + "\n".join(last_lines))
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun ends its ranks
            process.wait()


def _summary(plan: Plan, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    ours, reference = ranks[0]["starling"], ranks[0]["gloo"]
    total = {name: sum(rank["statistics"][name] for rank in ranks) for name in ranks[0]["statistics"]}
    orders = [rank["orders"] for rank in ranks]
    differing = sum(len({tuple(order[step]) for order in orders}) > 1 for step in range(plan.steps))
    return {
        "ranks": plan.ranks,
        "steps": plan.steps,
        "buckets": len(orders[0][-1]),
        "steps_with_different_orders": differing,
        "device_synchronizations": sum(
            len(order) // plan.synchronize_every
            for rank in orders
            for order in rank
            if plan.synchronize_every
        ),
        "parks": total["parks"],
        "resumes": total["resumes"],
        "launches": total["launches"],
        "quits": total["quits_idle"] + total["quits_stuck"] + total["quits_drained"],
        "quits_stuck": total["quits_stuck"],
        "lanes": ranks[0]["statistics"]["lanes"],
        "lane_bytes": ranks[0]["statistics"]["lane_bytes"],
        "starling": _training(ours),
        "gloo": _training(reference),
        "largest_loss_difference": max(
            abs(a - b) for a, b in zip(ours["losses"], reference["losses"], strict=True)
        ),
    }


def _training(training: dict[str, Any]) -> dict[str, float]:
    return {
        "step_ms": statistics.median(training["step_s"]) * 1e3,
        "first_loss": training["losses"][0],
        "last_loss": statistics.fmean(training["losses"][-10:]),
        "accuracy": training["accuracy"],
    }


def as_expected(summary: dict[str, Any]) -> list[str]:
    """What is not as it should be; empty is good. Sums of four numbers differ in the last bit between libraries;
    in float64 the training does not let that grow (some 1e-15 after 150 steps), so that the bound can be strict."""
    problems = []
    if summary["largest_loss_difference"] > LOSS_TOLERANCE:
        problems.append(f"the losses differ by {summary['largest_loss_difference']:.3g} from gloo's")
    # The first steps may climb.
    if summary["steps"] >= 20 and summary["starling"]["last_loss"] > summary["starling"]["first_loss"]:
        problems.append("the loss did not fall")
    return problems
