"""Measures points for several libraries in turns: repetition by repetition, so that all share the same weather."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .convention import Point
from .libraries import Library
from .workers import WorkerGroup


@dataclass(frozen=True)
class Effort:
    """How long a point is measured. `iterations` 0: as many as fit into `slice_s`."""

    warmups: int = 5
    iterations: int = 0
    repetitions: int = 5
    slice_s: float = 0.02
    check: bool = True
    in_place: bool = True
    others_check_bytes: int = (
        1 << 62
    )  # up to here the other libraries are checked too: in Python it takes long
    large_bytes: int = 1 << 62  # from here on, fewer repetitions
    large_repetitions: int = 3

    most_iterations: int = 2000
    fewest_iterations: int = 2


@dataclass
class Timing:
    """One library's times of one point. Seconds of one call; None where it has no such operation."""

    samples: list[float] = field(default_factory=list)
    wrong: int | None = None
    variant: str = ""
    unsupported: str = ""

    @property
    def seconds(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None


@contextmanager
def started(libraries: list[Library], ranks: int, timeout_s: float) -> Iterator[dict[str, list[WorkerGroup]]]:
    """The groups of each library, alive together."""
    with ExitStack() as stack:
        groups: dict[str, list[WorkerGroup]] = {}
        for library in libraries:
            groups[library.name] = library.start(ranks, timeout_s)
            for group in groups[library.name]:
                stack.enter_context(group)
        yield groups


def measure_point(
    groups: dict[str, list[WorkerGroup]], point: Point, effort: Effort, *, in_place: bool
) -> dict[str, Timing]:
    """The timing of each library: of its fastest variant."""
    every = [group for variants in groups.values() for group in variants]
    timings = {group.name: Timing(variant=group.name) for group in every}
    iterations = {
        group.name: _rehearse(group, point, effort, in_place, timings[group.name]) for group in every
    }
    large = point.size_bytes >= effort.large_bytes
    for repetition in range(effort.large_repetitions if large else effort.repetitions):
        # Every other repetition in the reverse order: nobody always runs behind the same neighbour.
        for group in every if repetition % 2 == 0 else reversed(every):
            timing = timings[group.name]
            if not timing.unsupported:
                replies = _ask(group, point, effort.warmups, iterations[group.name], in_place, False)
                timing.samples.append(statistics.fmean(reply["seconds"] for reply in replies))
    return {name: _fastest([timings[group.name] for group in variants]) for name, variants in groups.items()}


def _rehearse(group: WorkerGroup, point: Point, effort: Effort, in_place: bool, timing: Timing) -> int:
    """Checks the result and finds how many iterations fill the slice."""
    ours = group.name.startswith("starling")
    check = effort.check and (ours or point.size_bytes <= effort.others_check_bytes)
    replies = _ask(group, point, 1, effort.fewest_iterations, in_place, check)
    refusals = [reply["unsupported"] for reply in replies if "unsupported" in reply]
    if refusals:
        timing.unsupported = refusals[0]
        return 0
    if check and point.collective != "barrier":
        timing.wrong = int(sum(reply["wrong"] for reply in replies))
    if effort.iterations:
        return effort.iterations
    seconds = max(reply["seconds"] for reply in replies)
    for _ in range(2):  # the first calls are slow: closer with each round
        fitting = int(
            min(max(effort.slice_s / max(seconds, 1e-7), effort.fewest_iterations), effort.most_iterations)
        )
        if fitting < 10:
            break
        replies = _ask(group, point, 0, max(fitting // 4, 2), in_place, False)
        seconds = max(reply["seconds"] for reply in replies)
    return int(
        min(max(effort.slice_s / max(seconds, 1e-7), effort.fewest_iterations), effort.most_iterations)
    )


def _ask(
    group: WorkerGroup, point: Point, warmups: int, iterations: int, in_place: bool, check: bool
) -> list[dict[str, Any]]:
    return group.ask(
        "measure",
        kind=point.collective,
        type=point.type_name,
        op=point.reduction,
        root=point.root,
        count=point.count,
        in_place=int(in_place),
        warmups=warmups,
        iterations=iterations,
        check=int(check),
    )


def _fastest(timings: list[Timing]) -> Timing:
    measured = [timing for timing in timings if timing.samples]
    if not measured:
        return timings[0]
    best = min(measured, key=lambda timing: timing.seconds or 0.0)
    checked = [timing.wrong for timing in measured if timing.wrong is not None]
    best.wrong = max(checked) if checked else None
    return best
