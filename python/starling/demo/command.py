"""Programs that hang other libraries, and finish here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from starling.cli.lazy import need
from starling.write_whole import write_whole

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
_screen = Console(stderr=True)  # progress; what was asked for goes to standard output

Out = Annotated[Path, typer.Option("--out", help="folder of the pictures, traces and result.json")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON instead of a table")]


def _fail(reason: object, code: int = 1) -> None:
    _screen.print(f"[red]failed:[/] {reason}", highlight=False, markup=True)
    raise typer.Exit(code)


@app.command("train")
def train_command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, max=16)] = 4,
    steps: Annotated[int, typer.Option(min=2)] = 150,
    batch: Annotated[int, typer.Option(min=1, help="images a rank and step")] = 32,
    synchronize_every: Annotated[
        int, typer.Option(min=0, help="device synchronization after so many launches; 0: never")
    ] = 2,
    seed: int = 1,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds")] = 600,
    out: Out = Path("starling-demo"),
    as_json: Json = False,
) -> None:
    """Train a vision transformer on handwritten digits; every rank reduces its gradients in an order of its own.

    PyTorch DDP over backend starling. Each bucket of gradients has a lane. In every step each rank launches the
    buckets' all-reduces in a random order that no other rank knows, and synchronizes its device in between. Over a
    library whose collectives do not yield this deadlocks in the first steps. The same training over gloo, in
    order, is the reference: the losses must agree. In float64, so that rounding does not hide a difference.
    """
    need("torch", "sklearn")  # the ranks' processes do
    from starling.demo import train as training

    plan = training.Plan(
        ranks=ranks,
        steps=steps,
        batch=batch,
        synchronize_every=synchronize_every,
        seed=seed,
        timeout_s=timeout_s,
    )
    columns = [TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TextColumn("{task.fields[loss]}"), TimeElapsedColumn(), console=_screen) as bars:
        tasks = {
            "starling": bars.add_task(
                "starling, random orders",
                total=steps,
                loss="starting the ranks; the first time, compiling the backend",
            ),
            "gloo": bars.add_task("gloo, in order", total=steps, loss=""),
        }

        def progress(phase: str, step: int, loss: float) -> None:
            bars.update(tasks[phase], completed=step, loss=f"loss {loss:.3f}")

        try:
            result = training.train(plan, progress)
        except training.DemoError as error:
            _fail(error)
    files = _write_training(result, out)
    if as_json:
        typer.echo(json.dumps({**result.summary, "files": files}, indent=1))
    else:
        Console().print(_training_table(result.summary))
        for text, file in files.items():
            typer.echo(f"{text}: {file}")
        typer.echo("Open the trace at https://ui.perfetto.dev (it stays in your browser).")
    problems = training.as_expected(result.summary)
    if problems:
        _fail("; ".join(problems))


def _write_training(result: Any, out: Path) -> dict[str, str]:
    from starling import timeline
    from starling.demo.pictures import draw_losses

    out.mkdir(parents=True, exist_ok=True)
    files = {
        "timeline of the blocks": out / "timeline.png",
        "trace": out / "trace.json",
        "losses": out / "losses.png",
        "result": out / "result.json",
    }
    timeline.write_perfetto(files["trace"], result.events)
    start_ns, stop_ns = _last_steps(result)
    timeline.draw(
        files["timeline of the blocks"],
        result.events,
        title="The last steps of the training: every rank runs its gradients' lanes in an order of its own",
        start_ns=start_ns,
        stop_ns=stop_ns,
    )
    draw_losses(files["losses"], result.losses, result.reference_losses)
    losses = {"starling": result.losses, "gloo": result.reference_losses}  # step by step, of rank 0
    write_whole(files["result"], json.dumps({**result.summary, "losses": losses}, indent=1) + "\n")
    return {text: str(file) for text, file in files.items()}


def _last_steps(result: Any, steps: int = 2) -> tuple[int | None, int | None]:
    """The time of the last backward passes: from the first fetch of a bucket's operation to the end."""
    buckets = [e for e in result.events if e.lane.startswith("ddp/")]
    if not buckets:
        return None, None
    last = max(e.sequence for e in buckets)
    chosen = [e.time_ns for e in buckets if e.sequence > last - steps]
    margin = (max(chosen) - min(chosen)) // 40
    return min(chosen) - margin, max(chosen) + margin


def _training_table(summary: dict[str, Any]) -> Table:
    ours, gloo = summary["starling"], summary["gloo"]
    table = Table(
        title=f"{summary['ranks']} ranks, {summary['steps']} steps, {summary['buckets']} buckets a step"
    )
    for name in ("", "starling, random orders", "gloo, in order"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("steps whose orders differed", str(summary["steps_with_different_orders"]), "0")
    table.add_row("device synchronizations", f"{summary['device_synchronizations']:,}", "-")
    table.add_row("yields (parks)", f"{summary['parks']:,}", "-")
    table.add_row("resumes", f"{summary['resumes']:,}", "-")
    table.add_row("daemon launches", f"{summary['launches']:,}", "-")
    table.add_row("daemon quits (stuck)", f"{summary['quits']:,} ({summary['quits_stuck']:,})", "-")
    table.add_row("lanes, memory a rank", f"{summary['lanes']}, {summary['lane_bytes'] / 2**20:.1f} MiB", "-")
    table.add_row("time of a step (median)", f"{ours['step_ms']:.1f} ms", f"{gloo['step_ms']:.1f} ms")
    table.add_row("loss, first step", f"{ours['first_loss']:.4f}", f"{gloo['first_loss']:.4f}")
    table.add_row("loss, mean of the last 10", f"{ours['last_loss']:.4f}", f"{gloo['last_loss']:.4f}")
    table.add_row("largest difference of a loss", f"{summary['largest_loss_difference']:.2g}", "")
    table.add_row("digits read right (test)", f"{ours['accuracy']:.1%}", f"{gloo['accuracy']:.1%}")
    return table


@app.command("deadlock")
def deadlock_command(
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, max=8)] = 8,
    iterations: Annotated[int, typer.Option(min=1, help="with yielding")] = 20,
    seed: int = 1,
    limit_s: Annotated[float, typer.Option("--limit", help="seconds for a program that may hang")] = 5,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="seconds for a program that must finish")
    ] = 120,
    out: Out = Path("starling-demo"),
    as_json: Json = False,
) -> None:
    """Run two programs that deadlock, with yielding and without, and draw who waited for whom.

    Program 1: every rank launches the same eight all-reduces in a random order of its own. Program 2: with a
    device synchronization after each launch. With yielding both finish, and every element is checked. Without
    (budgets without end, what other libraries do) the first collective that a rank takes keeps its place until
    all ranks come to it: a circle of waits. Exit code 0 if all four runs behave so.
    """
    from starling.demo import deadlock
    from starling.demo.programs import Program

    programs = {"program 1 (random orders)": 0, "program 2 (and synchronizations)": 1}
    results: dict[str, dict[str, Any]] = {}
    hung: dict[str, Any] = {}
    problems = []
    for name, every in programs.items():
        with _screen.status(f"{name}, with yielding"):
            good = deadlock.run(Program(iterations, every, seed=seed), ranks, yields=True, limit_s=timeout_s)
        with _screen.status(f"{name}, yielding switched off: {limit_s:.0f} s for it to hang"):
            bad = deadlock.run(Program(iterations, every, seed=seed), ranks, yields=False, limit_s=limit_s)
        results[name] = {"with yielding": good.summary(), "without": bad.summary()}
        if not good.right:
            problems.append(
                f"{name} with yielding: " + ("wrong results" if good.finished else "did not finish")
            )
        if bad.finished:
            problems.append(f"{name} without yielding finished")
        else:
            hung[f"{name}, without yielding"] = bad
    files = _write_deadlock(results, hung, ranks, out)
    if as_json:
        typer.echo(json.dumps({"programs": results, "files": files, "as_expected": not problems}, indent=1))
    else:
        Console().print(_deadlock_table(results))
        for name, run in hung.items():
            for wait in run.cycle:
                typer.echo(f"{name}: rank {wait.rank} holds {wait.lane} and waits for rank {wait.peer}")
        for text, file in files.items():
            typer.echo(f"{text}: {file}")
    if problems:
        _fail("; ".join(problems))


def _write_deadlock(results: dict[str, Any], hung: dict[str, Any], ranks: int, out: Path) -> dict[str, str]:
    from starling.demo.pictures import draw_waits

    out.mkdir(parents=True, exist_ok=True)
    files = {"result": str(out / "deadlock.json")}
    write_whole(out / "deadlock.json", json.dumps(results, indent=1) + "\n")
    if hung:
        draw_waits(out / "deadlock.png", hung, ranks)
        files["who waited for whom"] = str(out / "deadlock.png")
    return files


def _deadlock_table(results: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="DFCCL section 6.1: programs that deadlock")
    for name in ("", "with yielding", "without"):
        table.add_column(name)
    for name, runs in results.items():
        good, bad = runs["with yielding"], runs["without"]
        table.add_row(name, _outcome(good), _outcome(bad))
        table.add_row("  yields (parks), daemon quits", f"{good['parks']:,}, {good['quits']:,}", "-")
    return table


def _outcome(summary: dict[str, Any]) -> str:
    if not summary["finished"]:
        circle = f", a circle of {len(summary['cycle'])} ranks" if summary["cycle"] else ""
        return f"[red]hangs[/] after {summary['iterations']} iterations{circle}"
    check = "results right" if summary["right"] else "[red]results wrong[/]"
    return f"[green]finishes[/]: {summary['iterations']} iterations in {summary['seconds']:.1f} s, {check}"
