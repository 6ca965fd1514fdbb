"""How likely a training configuration is to deadlock when its collectives cannot yield."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from starling.write_whole import write_whole

from . import conclusions as conclusions_module
from . import engine, picture
from .boundary import Boundary, refuse, screen
from .configuration import (
    DECISIONS,
    MOST_ROUNDS,
    MOST_SEED,
    MOST_THREADS,
    ORDERS,
    RULES,
    SAMPLINGS,
    Configuration,
    ConfigurationError,
    GroupList,
    load,
    three_d,
)
from .groups import free_groups, one_group
from .measure import Measurement, measure, measure_row, percent, rich_table, to_csv
from .provenance import provenance
from .record import RecordError, read_record
from .replay import Machine, add_to_results, check_results, lanes_of, to_table
from .replay import replay as run_replay
from .rows import all_rows
from .sequences import Sequence, shrunk_deadlocks, whole_deadlocks

app = typer.Typer(no_args_is_help=True, help=__doc__, cls=Boundary, add_completion=False)

Csv = Annotated[Path | None, typer.Option("--csv", help="write the table as CSV here")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Out = Annotated[
    Path | None, typer.Option("--out", help="write everything as JSON here, with where it came from")
]
Threads = Annotated[int | None, typer.Option(min=0, max=MOST_THREADS, help="threads; 0: one per core")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=MOST_SEED, help="the same seed gives the same rounds on any number of threads"),
]
Config = Annotated[Path | None, typer.Option("--config", "-c", help="JSON or YAML; flags overrule it")]
Model = Annotated[str | None, typer.Option(help=" or ".join(RULES))]
Shape = Annotated[
    str | None,
    typer.Option(
        help="3d:T,D,P:TENSOR,DATA (sizes, collectives), paper64, paper128, or one:GPUS,COLLECTIVES"
    ),
]
Disorder = Annotated[float | None, typer.Option(help="probability that an element is passed over")]
Sync = Annotated[float | None, typer.Option(help="probability that a turn synchronizes")]
Order = Annotated[
    str | None, typer.Option(help="how the lists of a GPU's groups are joined: " + " or ".join(ORDERS))
]
Rounds = Annotated[int | None, typer.Option(min=1, max=MOST_ROUNDS, help="rounds (or planted samples)")]


def _shape(text: str) -> tuple[GroupList, int, str]:
    kind, _, rest = text.partition(":")
    try:
        if kind == "3d":
            sizes, collectives = ([int(n) for n in part.split(",")] for part in rest.split(":"))
            tensor, data, pipeline = sizes
            if min(*sizes, *collectives) < 1:
                raise ValueError("a size is below 1")
            groups = three_d(tensor, data, pipeline, *collectives)
            return groups, tensor * data * pipeline, f"3D ({tensor},{data},{pipeline})"
        if kind == "one":
            gpus, collectives_of_one = (int(n) for n in rest.split(","))
            if min(gpus, collectives_of_one) < 1:
                raise ValueError("a size is below 1")
            return one_group(gpus, collectives_of_one), gpus, f"free 1 × {gpus}"
        if kind in ("paper64", "paper128"):
            gpus = int(kind.removeprefix("paper"))
            return free_groups(gpus), gpus, f"free 32 × {gpus}"
    except ConfigurationError:
        raise  # it says what is too large
    except (ValueError, TypeError):
        pass
    raise ConfigurationError(
        f"--shape is {text!r}; for example 3d:4,4,4:400,1200, one:8,161, paper64 or paper128"
    )


def _configuration(config: Path | None, shape: str | None, **flags: Any) -> Configuration:
    if config is not None:
        base = load(config)
        if shape is not None:
            groups, gpus, name = _shape(shape)
            base = replace(base, groups=groups, gpus=gpus, shape=name)
    elif shape is not None:
        groups, gpus, name = _shape(shape)
        base = Configuration(groups=groups, gpus=gpus, shape=name)
    else:
        raise ConfigurationError("no grouping: give --config FILE or --shape")
    for key, choices in (
        ("model", RULES),
        ("order", ORDERS),
        ("decision", DECISIONS),
        ("sampling", SAMPLINGS),
    ):
        if flags.get(key) is not None and flags[key] not in choices:
            raise ConfigurationError(f"--{key} is {flags[key]!r}; it must be one of {', '.join(choices)}")
    return replace(base, **{key: value for key, value in flags.items() if value is not None})


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], bool]]:
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=screen, transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(title, total=total)

        def update(done: int) -> bool:
            bar.update(task, completed=done)
            return True

        yield update


def _show(found: list[Measurement], title: str, csv: Path | None, as_json: bool, out: Path | None) -> None:
    result = {"provenance": provenance(), "result": [measurement.as_dict() for measurement in found]}
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        Console(width=None if screen.is_terminal else 160).print(rich_table(found, title))
        for measurement in found:
            if measurement.closed_form is not None and not measurement.row:
                typer.echo(f"closed form (single group): {percent(measurement.closed_form)}")
    if csv is not None:
        write_whole(csv, to_csv(found))
    if out is not None:
        write_whole(out, json.dumps(result, indent=2) + "\n")


@app.command()
def run(
    config: Config = None, shape: Shape = None, model: Model = None, order: Order = None,
    disorder: Disorder = None, sync: Sync = None, rounds: Rounds = None, seed: Seed = None, threads: Threads = None,
    decision: Annotated[str | None, typer.Option(help=", ".join(DECISIONS))] = None,
    planted: Annotated[bool, typer.Option("--planted", help="importance sampling, for very rare deadlocks")] = False,
    csv: Csv = None, as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """The deadlock ratio of one configuration."""
    try:
        configuration = _configuration(
            config, shape, model=model, order=order, disorder_probability=disorder,
            synchronization_probability=sync, rounds=rounds, seed=seed, threads=threads, decision=decision,
            sampling="planted" if planted else None,
        )  # fmt: skip
        with _progress(configuration.shape, configuration.rounds) as progress:
            found = measure(configuration, progress)
    except (ValueError, RuntimeError) as error:
        refuse(error)
    _show([found], f"{configuration.rounds:,} rounds, seed {configuration.seed}", csv, as_json, out)


@app.command()
def table(
    rows: Annotated[str, typer.Option(help="comma-separated names (Q1 to Q8, S1 to S10); default: all")] = "",
    rounds: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS)] = 32_000,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED)] = 1,
    threads: Annotated[int, typer.Option(min=0, max=MOST_THREADS)] = 0,
    planted: Annotated[
        bool, typer.Option("--planted", help="the exact decision by importance sampling, ROUNDS samples")
    ] = False,
    csv: Csv = None, as_json: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """DFCCL's Table 1, as printed and in the variants that its text and code leave open."""
    wanted = {name.strip() for name in rows.split(",") if name.strip()}
    known = all_rows()
    unknown = wanted - {row.name for row in known}
    if unknown:
        refuse(ConfigurationError(f"--rows: no row is called {', '.join(sorted(unknown))}"))
    found = []
    for row in known:
        if wanted and row.name not in wanted:
            continue
        configuration = replace(row.configuration, rounds=rounds, seed=seed, threads=threads)
        if planted:
            configuration = replace(configuration, sampling="planted", decision="exact")
        with _progress(
            f"{row.name} {configuration.shape} {row.variant} {configuration.order}", rounds
        ) as progress:
            found.append(measure_row(replace(row, configuration=configuration), progress))
    what = "planted samples" if planted else "rounds"
    _show(found, f"DFCCL's Table 1, {rounds:,} {what}, seed {seed}", csv, as_json, out)


@app.command()
def conclusions(
    folder: Annotated[Path, typer.Argument(help="where the plots and deadlock_conclusions.json go")],
    rounds: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS)] = 32_000,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED)] = 1,
    threads: Annotated[int, typer.Option(min=0, max=MOST_THREADS)] = 0,
) -> None:
    """The five conclusions of DFCCL §2.4.3: sweeps, plots, confirmed or not."""
    folder.mkdir(parents=True, exist_ok=True)
    with screen.status("sweeps") as status:
        found = conclusions_module.conclude(
            rounds, threads, seed, told=lambda name: status.update(f"sweep: {name}")
        )
    for conclusion in found:
        conclusions_module.plot(conclusion, folder / f"deadlock_conclusion_{conclusion.number}.png")
        verdict = ", ".join(
            f"{d} {'confirmed' if ok else 'NOT confirmed'}" for d, ok in conclusion.confirmed.items()
        )
        typer.echo(f"{conclusion.number}. {conclusion.claim}\n   {verdict}\n   {conclusion.finding}")
    result = {"provenance": provenance(), "result": [conclusion.as_dict() for conclusion in found]}
    write_whole(folder / "deadlock_conclusions.json", json.dumps(result, indent=1) + "\n")


@app.command()
def record(
    path: Annotated[Path, typer.Argument(help="flight record: JSON lines, one launch or sync each")],
    model: Annotated[str, typer.Option(help=" or ".join(RULES))] = "synchronization",
    draw: Annotated[
        Path | None, typer.Option(help="picture of the dependency graph, if it deadlocks")
    ] = None,
    as_json: Json = False,
) -> None:
    """Whether the recorded order of launches of a real job can finish without yielding. Exit code 1: it cannot."""
    if model not in RULES:
        refuse(ConfigurationError(f"--model is {model!r}; it must be one of {', '.join(RULES)}"))
    if draw is not None:
        picture.check_format(draw)
    rule = getattr(engine.Rule, model)
    try:
        found = read_record(path)
    except RecordError as error:
        refuse(error)
    judgement = engine.judge(found.program, rule)
    result: dict[str, Any] = {
        "model": model, "exact": judgement.exact, "released": judgement.released,
        "ranks": len(found.ranks), "collectives": len(found.lanes), "missing_launches": found.missing,
        "blocked": [
            {
                "rank": found.ranks[each.gpu],
                "waits_in": [found.lanes[c] for c in each.executing],
                "for_ranks": [found.ranks[gpu] for gpu in each.waits_for],
            }
            for each in judgement.blocked
        ],
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        verdict = "DEADLOCK" if judgement.exact else "no deadlock"
        if judgement.released != judgement.exact:
            verdict += " (the released check says otherwise)"
        typer.echo(
            f"{len(found.ranks)} ranks, {len(found.lanes)} collectives, {model.replace('_', ' ')}: {verdict}"
        )
        for rank, count in found.missing.items():
            typer.echo(
                f"  rank {rank}: {count} launches of its lanes are not in the record, taken to come after it"
            )
        for each in result["blocked"]:
            typer.echo(f"  rank {each['rank']} stands in {', '.join(each['waits_in'])} and waits for ranks "
                       f"{', '.join(map(str, each['for_ranks']))}")  # fmt: skip
    if judgement.exact and draw is not None:
        shrunk = engine.shrink(found.program, rule)
        picture.draw(shrunk.program, model, draw, [found.lanes[c] for c in shrunk.collectives])
    raise typer.Exit(1 if judgement.exact else 0)


@app.command()
def smallest(
    folder: Annotated[Path, typer.Argument(help="where deadlock_smallest.jsonl and .png go")],
    config: Config = None, shape: Shape = None, model: Model = None, order: Order = None,
    disorder: Disorder = None, sync: Sync = None, seed: Seed = None,
    among: Annotated[int, typer.Option(min=1, help="deadlocks to look at")] = 200,
    least: Annotated[int, typer.Option(min=2, help="GPUs that the deadlock has at least")] = 2,
) -> None:  # fmt: skip
    """The smallest deadlock found, shrunk, as a flight record and as a picture like DFCCL's Fig. 2."""
    configuration = _for_sequences(config, shape, model, order, disorder, sync, seed)
    best: Sequence | None = None
    for found in shrunk_deadlocks(configuration, among, circle=True):
        size = len(found.ranks)
        if size >= least and (best is None or size < len(best.ranks)):
            best = found
        if best is not None and len(best.ranks) == least:
            break
    if best is None:
        refuse(ConfigurationError(f"no deadlock of at least {least} GPUs was found; raise the probabilities"))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "deadlock_smallest.jsonl", "\n".join(best.record()) + "\n")
    picture.draw(best.program, configuration.model, folder / "deadlock_smallest.png")
    typer.echo(f"{len(best.ranks)} GPUs, {len(best.lanes)} collectives: {folder / 'deadlock_smallest.png'}")


@app.command()
def sequences(
    folder: Annotated[Path, typer.Argument(help="one flight record a deadlock: 000000.jsonl, ...")],
    count: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS)],
    config: Config = None, shape: Shape = None, model: Model = None, order: Order = None,
    disorder: Disorder = None, sync: Sync = None, seed: Seed = None,
    whole: Annotated[bool, typer.Option("--whole", help="all GPUs and events, not shrunk")] = False,
    circle: Annotated[bool, typer.Option("--circle", help="shrunk to the shortest circle of waits")] = False,
) -> None:  # fmt: skip
    """Event sequences that deadlock without yielding, as flight records to replay."""
    configuration = _for_sequences(config, shape, model, order, disorder, sync, seed)
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for found in _deadlocks(configuration, count, whole, circle):
        write_whole(folder / f"{written:06}.jsonl", "\n".join(found.record()) + "\n")
        written += 1
    typer.echo(f"{written} deadlocks in {folder}")
    if written < count:
        refuse(ConfigurationError(f"only {written} of {count} were found; raise the probabilities"))


@app.command()
def replay(
    count: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS, help="sequences; with --record: schedules")] = 1000,
    config: Config = None, shape: Shape = None, model: Model = None, order: Order = None,
    disorder: Disorder = None, sync: Sync = None, seed: Seed = None, threads: Threads = None,
    whole: Annotated[bool, typer.Option("--whole", help="all GPUs and events, not shrunk")] = False,
    circle: Annotated[bool, typer.Option("--circle", help="shrunk to the shortest circle of waits")] = False,
    from_record: Annotated[Path | None, typer.Option("--record", help="replay this flight record instead")] = None,
    first: Annotated[int, typer.Option(min=0, max=MOST_ROUNDS, help="leave out so many: a long run in parts")] = 0,
    wild: Annotated[bool, typer.Option("--wild", help="slow fibers, late stores, forced preemptions, ...")] = False,
    pace_ns: Annotated[int, typer.Option(min=0, max=10**9, help="a GPU computes so long between two launches")] = 0,
    without_yielding: Annotated[
        bool, typer.Option("--without-yielding", help="as other libraries do: to see the sequences hang")
    ] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", help="add the result to this JSON file")] = None,
) -> None:  # fmt: skip
    """Deadlocks of the model through the real scheduler, on the simulator machine. Exit code 1: one of them hangs."""
    if out is not None:
        check_results(out)
    machine = Machine(wild, not without_yielding, pace_ns, checks=not whole, seed=seed or 1)
    details: dict[str, Any] = {**vars(machine), "first": first}
    programs: Iterator[engine.Program]
    lane_of = None
    if from_record is not None:
        try:
            recorded = read_record(from_record)
        except RecordError as error:
            refuse(error)
        lane_of, programs = lanes_of(recorded.lanes), repeat(recorded.program, first + count)
        details |= {"record": str(from_record), "model_deadlocks": {
            rule: engine.judge(recorded.program, getattr(engine.Rule, rule)).exact for rule in RULES
        }}  # fmt: skip
    else:
        configuration = _for_sequences(config, shape, model, order, disorder, sync, seed)
        machine = replace(machine, seed=configuration.seed)
        programs = (each.program for each in _deadlocks(configuration, first + count, whole, circle))
        kept = ("shape", "model", "order", "disorder_probability", "synchronization_probability", "seed")
        details |= {"whole": whole, "circle": circle, **{key: getattr(configuration, key) for key in kept}}
    with _progress("replaying", count) as progress:
        found = run_replay(
            islice(programs, first, None), machine, first=first, lane_of=lane_of,
            threads=threads or os.cpu_count() or 1, progress=progress,
        )  # fmt: skip
    result = details | found.as_dict()
    if as_json:
        typer.echo(json.dumps({"provenance": provenance(), "result": result}, indent=2))
    else:
        verdict = f"{found.sequences:,} sequences, {found.hung:,} hang, {found.wrong:,} end wrongly"
        Console(width=None if screen.is_terminal else 160).print(to_table(found, verdict))
        for failure in found.failures:
            typer.echo(
                f"sequence {failure.sequence}, seed {failure.seed}: {failure.failure}\n{failure.state}"
            )
    if out is not None:
        add_to_results(out, provenance(), result)
    if found.hung or found.wrong:
        raise typer.Exit(1)
    if found.sequences < count:
        refuse(ConfigurationError(f"only {found.sequences} of {count} were found; raise the probabilities"))


def _deadlocks(configuration: Configuration, count: int, whole: bool, circle: bool) -> Iterator[Sequence]:
    if whole and circle:
        refuse(ConfigurationError("--whole and --circle exclude each other: choose one"))
    return (
        whole_deadlocks(configuration, count)
        if whole
        else shrunk_deadlocks(configuration, count, circle=circle)
    )


def _for_sequences(config: Path | None, shape: str | None, model: str | None, order: str | None,
                   disorder: float | None, sync: float | None, seed: int | None) -> Configuration:  # fmt: skip
    try:
        configuration = _configuration(
            config, shape, model=model, order=order, disorder_probability=disorder,
            synchronization_probability=sync, seed=seed,
        )  # fmt: skip
        configuration.build()
    except ConfigurationError as error:
        refuse(error)
    return configuration


if __name__ == "__main__":
    app()
