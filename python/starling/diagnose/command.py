"""`starling diagnose`: who holds the job up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from starling.diagnose.api import AFTER_S, diagnose, known_jobs
from starling.diagnose.finding import Diagnosis
from starling.diagnose.record import NotARecordError

HEALTHY, CULPRIT, USAGE, NOT_KNOWN = 0, 1, 2, 3
MOST_NAMES = 10  # of jobs, where another was asked for
MOST_ENDED = 10  # jobs that are shown, the latest, where no files and no job are named; --json has all

app = typer.Typer(add_completion=False)


@app.command()
def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Flight records, or folders of them (STARLING_FLIGHT_DIR), of any number of hosts."
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Only the job of this name (STARLING_JOB, the launcher's run id, or its group's)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    after: Annotated[
        float, typer.Option(help="Seconds that a call may wait before it is called a hang.")
    ] = AFTER_S,
    ended: Annotated[
        bool,
        typer.Option(
            "--ended", help="Also jobs that have ended, where some live; without --json the latest ten."
        ),
    ] = False,
    root: Annotated[Path, typer.Option(hidden=True)] = Path("/"),
) -> None:
    """Say who holds a job up: who has not called, called something else, stands still, died, is slow or starved.

    Without files it looks at all jobs of this user on this host: those that run, else the last that left records.
    Exit codes: 0 healthy, 1 a culprit was found, 2 wrong usage, 3 no culprit was found and too little is
    known (of any job, where none has left a record).
    """
    try:
        found = diagnose(files or (), job=job, after_s=after, ended=ended, root=root)
        others = known_jobs(files or ()) if job is not None and not found else []
    except (OSError, NotARecordError) as error:
        typer.secho(f"starling diagnose: {error}", fg="red", err=True)
        raise typer.Exit(USAGE) from None
    if job is not None and not found:
        there_are = "are: " + ", ".join(others[:MOST_NAMES]) if others else "are none"
        there_are += f", and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
        typer.secho(
            f"starling diagnose: no job '{job}' has left a record; there {there_are}", fg="red", err=True
        )
        raise typer.Exit(USAGE)
    if as_json:
        typer.echo(
            json.dumps({"healthy": _exit_code(found) == HEALTHY, "jobs": [one.as_json() for one in found]})
        )
    else:
        _show(found, MOST_ENDED if not files and job is None else len(found))
    raise typer.Exit(_exit_code(found))


def _exit_code(found: list[Diagnosis]) -> int:
    if any(one.findings for one in found):
        return CULPRIT
    return HEALTHY if found and all(one.healthy for one in found) else NOT_KNOWN


def _show(found: list[Diagnosis], most_ended: int) -> None:
    console = Console(highlight=False)
    if not found:
        console.print(
            "[bold yellow]not known[/]: no job of this user has left a record here; [bold]remedy: run this on "
            "a host of the job, in its container and as its user, or name its STARLING_FLIGHT_DIR[/]",
            soft_wrap=True,
        )
    ended = [one for one in found if not one.live]
    shown = [one for one in found if one.live] + ended[:most_ended]
    # The sick ones first: the first line is the verdict.
    for one in sorted(shown, key=lambda one: (not one.findings, one.healthy)):
        _show_job(console, one)
    if before := ended[most_ended:]:
        sick = sum(bool(one.findings) for one in before)
        console.print(
            f"and {len(before)} jobs that began before those and have ended, {sick} of them with a finding: --json "
            "shows all, --job one",
            soft_wrap=True,
        )


def _show_job(console: Console, one: Diagnosis) -> None:
    title = f"job '{escape(one.job)}', {one.size} rank{'s' if one.size != 1 else ''}"
    if one.not_known:
        console.print(f"[bold yellow]not known[/]: {title}: {escape(one.not_known)}", soft_wrap=True)
    elif one.verdict is None:
        calls = sum(rank.calls for rank in one.ranks)
        console.print(f"[green]healthy[/]: {title}, {calls} calls, nobody is waited for", soft_wrap=True)
    else:
        verdict = one.verdict
        console.print(
            f"[bold red]{escape(verdict.what)}[/]; [bold]remedy: {escape(verdict.remedy)}[/]", soft_wrap=True
        )
        for detail in verdict.details:
            console.print(f"  {escape(detail)}", soft_wrap=True)
        for other in one.findings[1:]:
            console.print(f"also: {escape(other.line())}", soft_wrap=True)
    for note in one.notes:
        console.print(f"note: {escape(note)}", style="yellow", soft_wrap=True)
    table = Table(
        title=title + ("" if one.live else " (ended)"), title_justify="left", box=None, pad_edge=False
    )
    for name in ("rank", "host", "process", "state", "calls", "last call", "waits"):
        table.add_column(
            name, overflow="fold", justify="right" if name in ("rank", "process", "calls") else "left"
        )
    for rank in one.ranks:
        table.add_row(
            str(rank.rank), escape(rank.host), str(rank.pid), escape(rank.state), str(rank.calls), escape(rank.last),
            escape(rank.waits),
        )  # fmt: skip
    if one.ranks:
        console.print(table)
