"""Runs configurations and holds their ratios against the paper's."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from . import engine
from .configuration import Configuration
from .rows import PAPER_ROUNDS, Row
from .statistics import agree, planted_interval, wilson

Progress = Callable[[int], bool]


@dataclass(frozen=True)
class Ratio:
    """A deadlock ratio by one decision, with its 95 % interval."""

    decision: str
    ratio: float
    low: float
    high: float
    hits: int
    rounds: int
    agrees: bool | None = None  # with the paper's ratio, where there is one


@dataclass(frozen=True)
class Measurement:
    configuration: Configuration
    ratios: list[Ratio]
    seconds: float
    row: str = ""
    variant: str = ""
    paper: float | None = None
    closed_form: float | None = None  # of the exact decision, where there is one

    def ratio(self, decision: str) -> Ratio | None:
        return next((ratio for ratio in self.ratios if ratio.decision == decision), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values. The groups of a named shape are left out: they are many, and its name says them."""
        configuration = asdict(self.configuration)
        groups = configuration.pop("groups")
        configuration["groups"] = len(groups)
        configuration["collectives"] = sum(collectives for _, collectives in groups)
        return {
            "row": self.row,
            "variant": self.variant,
            "paper": self.paper,
            "closed_form": self.closed_form,
            "configuration": configuration,
            "ratios": [asdict(ratio) for ratio in self.ratios],
            "seconds": round(self.seconds, 3),
        }


def wanted_decisions(configuration: Configuration) -> tuple[str, ...]:
    return ("exact", "released") if configuration.decision == "both" else (configuration.decision,)


def measure(configuration: Configuration, progress: Progress | None = None) -> Measurement:
    """The deadlock ratio of one configuration by the decisions it wants."""
    model = configuration.build()
    start = time.monotonic()
    planted = configuration.sampling == "planted"
    ratios = (_planted if planted else _plain)(configuration, model, progress)
    return Measurement(
        configuration, ratios, time.monotonic() - start, closed_form=_closed_form(configuration)
    )


def _closed_form(configuration: Configuration) -> float | None:
    if configuration.model != "single_queue" or len(configuration.groups) != 1:
        return None
    gpus, collectives = configuration.groups[0]
    return engine.single_group_probability(len(gpus), collectives, configuration.disorder_probability)


def _plain(configuration: Configuration, model: engine.Model, progress: Progress | None) -> list[Ratio]:
    wanted = wanted_decisions(configuration)
    counts = engine.count_deadlocks(
        model,
        rounds=configuration.rounds,
        seed=configuration.seed,
        threads=configuration.threads,
        exact="exact" in wanted,
        released="released" in wanted,
        progress=progress,
    )
    hits = {"exact": counts.exact, "released": counts.released}
    return [
        Ratio(each, hits[each] / counts.rounds, *wilson(hits[each], counts.rounds), hits[each], counts.rounds)
        for each in wanted
    ]


def _planted(configuration: Configuration, model: engine.Model, progress: Progress | None) -> list[Ratio]:
    ratios = []
    for each in wanted_decisions(configuration):
        found = engine.estimate_deadlocks(
            model,
            samples=configuration.rounds,
            seed=configuration.seed,
            threads=configuration.threads,
            decision=getattr(engine.Decision, each),
            progress=progress,
        )
        interval = planted_interval(
            found.probability, found.standard_error, found.samples, found.hits, found.bound
        )
        ratios.append(Ratio(each, found.probability, *interval, found.hits, found.samples))
    return ratios


def measure_row(row: Row, progress: Progress | None = None) -> Measurement:
    """One row of the paper's table, each decision held against the printed ratio."""
    found = measure(row.configuration, progress)

    def agrees(ratio: Ratio) -> bool:
        if row.configuration.sampling == "plain":
            return agree(ratio.hits, ratio.rounds, row.paper, PAPER_ROUNDS)
        low, high = wilson(
            round(row.paper * PAPER_ROUNDS), PAPER_ROUNDS
        )  # ours is so sharp that only theirs counts
        return ratio.low <= high and low <= ratio.high

    return replace(
        found,
        ratios=[replace(ratio, agrees=agrees(ratio)) for ratio in found.ratios],
        row=row.name,
        variant=row.variant,
        paper=row.paper,
    )


def percent(value: float) -> str:
    """Enough digits to see something: 9.97 %, 0.0081 %, 1.3e-07 %."""
    value *= 100
    if value == 0:
        return "0 %"
    if value < 1e-3:
        return f"{value:.2g} %"
    return f"{value:.4f} %" if value < 0.1 else f"{value:.2f} %"


def rich_table(measurements: Iterable[Measurement], title: str) -> Table:
    table = Table(title=title)
    for column in ("row", "model, grouping", "variant", "disorder / sync", "order", "decision"):
        table.add_column(column)
    for column in ("ratio", "95 % interval", "paper"):
        table.add_column(column, justify="right")
    table.add_column("")
    for found in measurements:
        configuration = found.configuration
        for i, ratio in enumerate(found.ratios):
            verdict = "" if ratio.agrees is None else "[green]agree[/]" if ratio.agrees else "[red]differ[/]"
            head = (
                found.row,
                f"{'queue' if configuration.model == 'single_queue' else 'sync'}, {configuration.shape}",
                found.variant,
                f"{configuration.disorder_probability:g} / {configuration.synchronization_probability:g}",
                configuration.order,
            )
            table.add_row(
                *(head if i == 0 else ("",) * len(head)),
                ratio.decision,
                percent(ratio.ratio),
                f"{percent(ratio.low)} – {percent(ratio.high)}",
                "" if found.paper is None else percent(found.paper),
                verdict,
            )
    return table


_COLUMNS = [
    *(
        "row",
        "variant",
        "model",
        "shape",
        "gpus",
        "order",
        "disorder_probability",
        "synchronization_probability",
    ),
    *("decision", "hits", "rounds", "ratio", "low", "high", "paper", "agrees"),
]


def to_csv(measurements: Iterable[Measurement]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for found in measurements:
        c = found.configuration
        for r in found.ratios:
            writer.writerow(
                [found.row, found.variant, c.model, c.shape, c.gpus, c.order, c.disorder_probability,
                 c.synchronization_probability, r.decision, r.hits, r.rounds, r.ratio, r.low, r.high,
                 "" if found.paper is None else found.paper,
                 "" if r.agrees is None else "agree" if r.agrees else "differ"]
            )  # fmt: skip
    return text.getvalue()
