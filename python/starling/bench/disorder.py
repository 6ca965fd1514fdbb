"""`starling bench disorder`: what disorder and device synchronizations cost."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .libraries import Choices
from .options import Json, Programs, finish, refuse, speaker, words
from .programs import MissingProgramError, find_program
from .results import document
from .workers import Launch, WorkerError, WorkerGroup

# (name, order, device synchronization after every so many launches)
CASES = [
    ("ordered", "same", 0),
    ("random", "random", 0),
    ("latin square", "latin", 0),
    ("ordered, synchronize every 4", "same", 4),
    ("random, synchronize every 4", "random", 4),
    ("ordered, synchronize every 1", "same", 1),
    ("random, synchronize every 1", "random", 1),
]
COUNTERS = ("parks", "resumes", "launches", "quits_stuck")


def start(ranks: int, choices: Choices, timeout_s: float) -> WorkerGroup:
    program = str(find_program("disorder_bench", choices.programs))
    job = {"STARLING_JOB": f"bench-{uuid.uuid4().hex}"}

    def launches(folder: Path) -> list[Launch]:
        command = [program, "--pipes", str(folder), "--size", str(ranks), *choices.arguments]
        return [Launch([*command, "--rank", str(rank)], job) for rank in range(ranks)]

    return WorkerGroup("disorder", ranks, launches, timeout_s=timeout_s)


def measure(
    rank_counts: list[int], iterations: int, repetitions: int, choices: Choices, say: Callable[[str], None]
) -> dict[str, Any]:
    rows = []
    for ranks in rank_counts:
        samples: dict[str, list[float]] = {name: [] for name, _, _ in CASES}
        counters: dict[str, dict[str, float]] = {}
        wrong: dict[str, int] = dict.fromkeys(samples, 0)
        with start(ranks, choices, timeout_s=120) as group:
            for repetition in range(repetitions):
                for name, order, every in CASES:
                    replies = group.ask(
                        "run",
                        order=order,
                        iterations=iterations,
                        synchronize_every=every,
                        seed=repetition + 1,
                    )
                    samples[name].append(statistics.fmean(reply["seconds"] for reply in replies))
                    wrong[name] += int(sum(reply["wrong"] for reply in replies))
                    counters[name] = {
                        key: statistics.fmean(reply[key] for reply in replies) / iterations
                        for key in COUNTERS
                    }
        say(
            f"# {ranks} ranks: 8 all-reduces of 256 B to 1 MB, each in a lane of its own; {iterations} iterations"
        )
        say(
            f"# {'':<30} {'ms':>9} {'ratio':>6} {'#wrong':>7} {'parks':>9} {'launches':>9} {'quits':>7}"
            "   (a rank and iteration)"
        )
        for name, order, every in CASES:
            base = statistics.median(
                samples["ordered" if every == 0 else f"ordered, synchronize every {every}"]
            )
            seconds = statistics.median(samples[name])
            row = {
                "ranks": ranks,
                "case": name,
                "order": order,
                "synchronize_every": every,
                "time_ms": round(seconds * 1e3, 4),
                "ratio": round(seconds / base, 3),
                "wrong": wrong[name],
                "samples_ms": [round(sample * 1e3, 4) for sample in samples[name]],
                **{key: round(value, 2) for key, value in counters[name].items()},
            }
            rows.append(row)
            say(
                f"  {name:<30} {row['time_ms']:>9.3f} {row['ratio']:>6.2f} {row['wrong']:>7} {row['parks']:>9.1f} "
                f"{row['launches']:>9.1f} {row['quits_stuck']:>7.1f}"
            )
    settings = {"iterations": iterations, "repetitions": repetitions, "arguments": list(choices.arguments)}
    return document("disorder", settings, rows)


def command(
    ranks: Annotated[str, typer.Option("-n", "--ranks", help="processes; several runs: 2,4,8")] = "2,4,8",
    iterations: Annotated[int, typer.Option(min=1, help="of a repetition")] = 50,
    repetitions: Annotated[int, typer.Option(min=1, help="their median counts; orders take turns")] = 5,
    profile: Annotated[bool, typer.Option(help="set the budgets by measuring this machine first")] = False,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """Cost of disorder: DFCCL section 6.1's programs against the same collectives in order.

    Every rank launches the same eight all-reduces in a random order of its own (or such that all orders differ at
    every position), also with device synchronizations in between. ratio: to the same collectives in one order on all
    ranks, with as many synchronizations.
    """
    choices = Choices(programs, ("--profile", str(int(profile))))
    try:
        counts = [int(word) for word in words(ranks)]
        doc = measure(counts, iterations, repetitions, choices, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    except WorkerError as error:
        refuse(error, 1)
    finish(doc, json_path)
    if any(row["wrong"] for row in doc["rows"]):
        refuse("wrong results", 1)
