"""`starling top`: what the ranks of this host do, live."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path as FilePath
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from starling.diagnose import names, sources
from starling.monitor.prometheus import make_server, prometheus_text, write_file
from starling.monitor.rates import Rates
from starling.monitor.record import Recording
from starling.monitor.screen import render
from starling.monitor.views import Rank, Watcher, jobs_of, now_ns
from starling.timeline import load, perfetto_trace
from starling.write_whole import write_whole

app = typer.Typer(help=__doc__, add_completion=False)

KEPT_SAMPLES = 1 << 20  # between two refreshes, of a rank
LAST_PORT = 65535
FIRST_LOOK_S = 0.5  # before the only one, or the first: rates need two


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a look instead of the view.")
    ] = False,
    refresh: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=0, help="End after so long; 0: on Ctrl-C.")] = 0.0,
    window: Annotated[
        int, typer.Option(min=0, max=1024, help="Transfers in a window; 0: as the ranks were told.")
    ] = 0,
    job: Annotated[str, typer.Option(help="Only the job of this name, or the launcher's run id.")] = "",
    prometheus: Annotated[
        str, typer.Option(metavar="PORT|FILE", help="Also serve, or write, Prometheus' text format.")
    ] = "",
    prometheus_address: Annotated[
        str, typer.Option(help="Where to serve it; 0.0.0.0 or :: is to everybody who can reach this host.")
    ] = "127.0.0.1",
    csv_path: Annotated[
        FilePath | None, typer.Option("--csv", help="Also write every transfer of every path.")
    ] = None,
    trace_path: Annotated[
        FilePath | None, typer.Option("--trace", help="At the end, write a trace for ui.perfetto.dev.")
    ] = None,
    events: Annotated[
        list[FilePath] | None,
        typer.Option("--events", help="Files of starling.timeline.save: blocks beside paths in the trace."),
    ] = None,
) -> None:
    """Watch the jobs of this host: ranks, lanes with their collectives, paths with their windows; parks and quits.

    Reads what ranks keep in shared memory anyway: they are not slowed down, and need no preparation. Windows and
    what was lost are counted from the moment when the watch begins. Ctrl-C ends it.

    Exit codes: 0 done; 1 there was no rank to look at (--once); 2 options to change, or nowhere to write.
    """
    watcher = Watcher(window, KEPT_SAMPLES if csv_path or trace_path else 0)
    try:
        recording = Recording(csv_path, trace=trace_path is not None)
        if trace_path:
            trace_path.touch()
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}") from error

    wanted = _wanted(job)

    def look() -> list[Rank]:
        return [rank for rank in watcher.look() if wanted(rank)]

    seen: list[Rank] = []
    try:
        with _interrupted() as ended, _exported(prometheus, prometheus_address, look) as export:
            rates = Rates()
            rates.look(look(), now_ns())
            ended.wait(min(refresh, FIRST_LOOK_S))
            deadline = time.monotonic() + seconds if seconds else None
            with _screen(live=not once and not as_json) as show:
                while True:
                    seen = look()
                    rates.look(seen, now_ns())
                    samples, anomalies = watcher.take()
                    # A path that came after the look.
                    recording.add(watcher.look() if samples else [], samples, anomalies)
                    export(seen)
                    show(_document(seen) if as_json else render(seen, rates, now_ns()))
                    left = refresh if deadline is None else min(refresh, deadline - time.monotonic())
                    if once or left <= 0 or ended.wait(left):
                        break
    finally:
        recording.close()
    if trace_path:
        _write_trace(trace_path, recording, events or [])
    raise typer.Exit(1 if once and not seen else 0)


def _wanted(job: str) -> Callable[[Rank], bool]:
    """Whether a rank is of the job: by the name that is shown, or by those of its flight record; "": all are."""
    known: dict[str, set[str]] = {}  # by segment: ranks are remembered for longer than their records

    def is_wanted(rank: Rank) -> bool:
        if not job or rank.job == job:
            return True
        if rank.segment not in known and (name := sources.job_of_segment(rank.segment)):
            known[rank.segment] = names.given(name)
        return job.strip() in known.get(rank.segment, ())

    return is_wanted


def _document(ranks: list[Rank]) -> str:
    jobs = [
        {"job": job.name, "size": job.size, "ranks": [asdict(rank) for rank in job.ranks]}
        for job in jobs_of(ranks)
    ]
    return json.dumps({"time_ns": now_ns(), "jobs": jobs})


@contextlib.contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Set by Ctrl-C, or SIGTERM: the view ends as if it were over."""
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _exported(prometheus: str, address: str, look: Any) -> Iterator[Any]:
    """What to do with each look."""
    if not prometheus:
        yield lambda ranks: None
    elif prometheus.isdigit():
        # Where names are looked up, a larger number is cut to one that is a port.
        if not prometheus.isdecimal() or int(prometheus) > LAST_PORT:
            raise typer.BadParameter(f"there is no port {prometheus}: the last is {LAST_PORT}")
        try:
            server = make_server(int(prometheus), look, address)
        except (OSError, OverflowError) as error:
            raise typer.BadParameter(f"cannot serve port {prometheus} at {address}: {error}") from error
        host = f"[{address}]" if ":" in address else address
        typer.echo(f"http://{host}:{server.server_port}/metrics", err=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield lambda ranks: None
        finally:
            server.shutdown()
            server.server_close()
    else:
        try:
            write_file(FilePath(prometheus), prometheus_text([]))
        except OSError as error:
            raise typer.BadParameter(f"cannot write there: {error}") from error
        yield lambda ranks: write_file(FilePath(prometheus), prometheus_text(ranks))


@contextlib.contextmanager
def _screen(live: bool) -> Iterator[Any]:
    console = Console()
    if live and console.is_terminal:
        with Live(console=console, screen=True, auto_refresh=False) as view:
            yield lambda what: view.update(what, refresh=True)
        return

    def show(what: Any) -> None:
        if isinstance(what, str):
            print(what, flush=True)
        else:
            console.print(what)
            sys.stdout.flush()

    yield show


def _write_trace(path: FilePath, recording: Recording, event_files: list[FilePath]) -> None:
    events = load(event_files)
    document = perfetto_trace(events)
    zero_ns = events[0].time_ns if events else None
    if not events:
        document["traceEvents"] += recording.names()
    document["traceEvents"] += recording.tracks(zero_ns)
    write_whole(path, json.dumps(document))
