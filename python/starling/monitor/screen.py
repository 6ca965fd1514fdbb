"""The terminal view of `starling top`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from starling.monitor.rates import QUITS, Rates
from starling.monitor.views import Job, Lane, Path, Rank, jobs_of

MOST_LANES = 12  # of a job; those under way come first
LATE_S = 30.0  # to its timeout: said
_STATES = {"alive": "green", "left": "dim", "died": "bold red"}


def render(ranks: list[Rank], rates: Rates, now_ns: int) -> RenderableType:
    """All jobs of the host."""
    if not ranks:
        return Text("No rank of Starling runs here under this user.", style="dim")
    parts: list[RenderableType] = []
    for job in jobs_of(ranks):
        alive = sum(rank.state == "alive" for rank in job.ranks)
        here = f"{alive} of {job.size} ranks here" if job.name else f"{alive} that have joined nothing"
        parts.append(Text.assemble((job.name or "no job", "bold"), f"  {here}"))
        parts.append(Padding(_ranks(job, rates), (0, 0, 0, 2)))
        if any(rank.lanes for rank in job.ranks):
            parts.append(Padding(_lanes(job, rates, now_ns), (0, 0, 0, 2)))
        if any(rank.paths for rank in job.ranks):
            parts.append(Padding(_paths(job, rates), (0, 0, 0, 2)))
    return Group(*parts)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        left = column in ("rank", "state", "device", "lane", "now", "to", "link", "path", "waits for")
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "waits for")
    return table


def _ranks(job: Job, rates: Rates) -> Table:
    columns = ["rank", "pid", "state", "device", "calls/s", "under way", "parks/s", "quits/s", "stuck"]
    table = _table(*columns, "queue", "waits for")
    for rank in job.ranks:
        counters = rank.counters
        table.add_row(
            str(rank.rank) if rank.job is not None else "-",
            str(rank.pid),
            Text(rank.state, style=_STATES[rank.state]),
            rank.device,
            _rate(rates.operations(rank)),
            str(rank.submitted - rank.completed),
            _rate(rates.counters(rank, "parks")),
            _rate(rates.counters(rank, *QUITS)),
            str(counters["quits_stuck"]) if counters else "-",
            str(counters["queue_peak"]) if counters else "-",
            Text(rank.waiting, style="yellow"),
        )
    return table


def _lanes(job: Job, rates: Rates, now_ns: int) -> Table:
    table = _table("lane", "rank", "done", "under way", "calls/s", "now")
    rows: dict[str, list[tuple[Rank, Lane]]] = {}
    for rank in job.ranks:
        for lane in rank.lanes:
            rows.setdefault(lane.name, []).append((rank, lane))
    names = sorted(rows, key=lambda name: (-max(lane.under_way for _, lane in rows[name]), name))
    for name in names[:MOST_LANES]:
        most = max(lane.completed for _, lane in rows[name])
        for rank, lane in rows[name]:
            table.add_row(
                name,
                str(rank.rank),
                Text(str(lane.completed), style="yellow" if lane.completed < most else ""),
                Text(str(lane.under_way), style="bold" if lane.under_way else "dim"),
                _rate(rates.lane(rank, lane)),
                _now(lane, now_ns),
            )
    if len(names) > MOST_LANES:
        table.add_row(Text(f"and {len(names) - MOST_LANES} more", style="dim"), "", "", "", "", "")
    return table


def _now(lane: Lane, now_ns: int) -> Text:
    if lane.fault:
        return Text(f"broken: {lane.fault}", style="bold red")
    if lane.oldest is None:
        return Text("waits for its place" if lane.under_way else "", style="dim")
    what = lane.oldest
    size = "" if what.kind == "barrier" else f" of {what.count:,} {what.data_type}"
    left = (what.deadline_ns - now_ns) * 1e-9
    late = Text(f", {max(left, 0):.0f} s to its timeout", style="yellow") if left < LATE_S else Text("")
    return Text.assemble(f"{what.kind}{size}", late)


def _paths(job: Job, rates: Rates) -> Table:
    table = _table(
        "path", "link", "rank", "to", "transfers/s", "B/s", "window B/s", "of it", "under way", "oldest"
    )
    for column in ("lost to network", "starved", "closed"):
        table.add_column(column, justify="right")
    table.add_column("now", justify="left")
    for rank in job.ranks:
        for path in rank.paths:
            table.add_row(
                Text(path.name, style="" if path.window_transfers else "dim"),
                path.link,
                str(rank.rank),
                str(path.peer),
                _rate(rates.transfers(rank, path)),
                _bytes(rates.bytes(rank, path)),
                _bytes(path.bytes_per_second if path.window_transfers else None),
                f"{path.window_transfers} tr.",
                _bytes(path.left_bytes),
                _time(path.waiting_ns),
                f"{_time(path.slow_ns)} ({path.slow_count})",
                f"{_time(path.starved_ns)} ({path.starved_count})",
                str(path.closed),
                _trouble(path),
            )
    return table


def _trouble(path: Path) -> Text:
    anomaly = path.anomaly
    if anomaly is None:
        return Text("")
    if anomaly.cause == "starved":
        return Text("starved: nothing to send", style="dim")
    share = anomaly.bytes_per_second / max(anomaly.usual_bytes_per_second, 1.0)
    if anomaly.bytes_per_second == 0:
        return Text(f"network: stands still, {_bytes(anomaly.left_bytes)} B under way", style="bold red")
    return Text(f"network: {share:.0%} of usual, {_time(anomaly.lost_ns)} lost", style="bold red")


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 9.5 or value == 0 else f"{value:.1f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("", "K", "M"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1e3
    return f"{value:.3g}G"


def _time(ns: int) -> str:
    if ns == 0:
        return "0"
    for limit, size, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if ns < limit:
            return f"{ns / size:.3g} {unit}"
    return f"{ns * 1e-9:.3g} s"
