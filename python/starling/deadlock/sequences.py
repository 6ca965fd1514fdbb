"""Event sequences that deadlock, for replaying them elsewhere: through the real scheduler, or as flight records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import engine
from .configuration import Configuration
from .record import record_lines


@dataclass(frozen=True)
class Sequence:
    """Events of every rank that stand for ever without yielding.

    `program.events[i]` is the list of rank `ranks[i]`: collectives (indices into `program.members`) and
    `engine.SYNCHRONIZE`. `lanes[c]` names collective c.
    """

    program: engine.Program
    ranks: list[int]
    lanes: list[str]

    def record(self) -> Iterator[str]:
        """As the JSON lines of a flight record."""
        return record_lines(self.program, self.ranks, self.lanes)


def shrunk_deadlocks(
    configuration: Configuration, count: int, most_rounds: int = 100_000_000, circle: bool = False
) -> Iterator[Sequence]:
    """Up to `count` deadlocks of the model, each reduced to all GPUs and collectives that take part: those that stand
    for ever, and what they have launched that never ends. With `circle` only to the shortest circle of waits.

    Ranks are numbered from 0 in each. Deadlocks are found by planting (rare ones come as quickly as others), so they
    are not distributed as in plain rounds; every one is checked to deadlock.
    """
    model, rule = configuration.build(), getattr(engine.Rule, configuration.model)
    seed, found = configuration.seed, 0
    while found < count and most_rounds > 0:
        batch = min(most_rounds, 100_000)
        programs = engine.planted_deadlocks(model, rounds=batch, count=min(count - found, 200), seed=seed)
        seed, most_rounds = seed + 1, most_rounds - batch
        for program in programs:
            found += 1
            yield shrink_program(program, rule, circle)


def shrink_program(program: engine.Program, rule: engine.Rule, circle: bool = False) -> Sequence:
    shrunk = (engine.shrink if circle else engine.taking_part)(program, rule)
    lanes = [f"group{program.group[c]}.collective{c}" for c in shrunk.collectives]
    return Sequence(shrunk.program, list(range(len(shrunk.gpus))), lanes)


def whole_deadlocks(
    configuration: Configuration, count: int, most_rounds: int = 10_000_000
) -> Iterator[Sequence]:
    """The first `count` rounds of the seed that deadlock, with the events of all GPUs."""
    model = configuration.build()
    rounds = engine.find_deadlocks(
        model, rounds=most_rounds, count=count, seed=configuration.seed, threads=configuration.threads
    )
    for number in rounds:
        program = engine.round_program(model, configuration.seed, number)
        lanes = [f"group{g}.collective{c}" for c, g in enumerate(program.group)]
        yield Sequence(program, list(range(configuration.gpus)), lanes)
