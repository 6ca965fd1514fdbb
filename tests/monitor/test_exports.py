"""Goal: windows, anomalies, Prometheus' text, and traces say what the records say. Method: records and ranks made by
hand."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

from rich.console import Console

from monitor.test_top import samples_of
from starling import monitor
from starling.monitor.rates import Rates
from starling.monitor.screen import render

HOLD_NS = 500_000


def records(held_at: int) -> list[tuple[int, int, int, int]]:
    """Transfers of 10 us, one after the other; the wire is held once."""
    made = []
    now = 1000
    for k in range(400):
        posted, now = now, now + 10_000 + (HOLD_NS if k == held_at else 0)
        made.append((posted, now, 65536, 0))
    return made


def test_windows_and_anomalies() -> None:
    made = records(300)
    assert [rate for _, rate in monitor.windows(made, 8)][:3] == [65536 / 10_000 * 1e9] * 3
    assert len(monitor.windows(made, 8)) == 400 - 7
    (found,) = monitor.anomalies(made, 8)
    assert found.cause == "network" and abs(found.lost_ns - HOLD_NS) < HOLD_NS / 10
    assert monitor.anomalies(records(-1), 8) == []


def path(**changes: object) -> monitor.Path:
    made = monitor.Path(
        *(64, 1, 0, "tcp", "rail0 -> rail0", 100, 5_000_000, 0, 0, 70_000, 3_000, 0, 0),
        *(8, 65536, 2_000, 1e9, 1e9, 2, 3_000_000, 1, 500_000, None),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def rank(**changes: object) -> monitor.Rank:
    lanes = [
        monitor.Lane('a "lane"\n\\', 1, 0, 2, 10, 9, "", None),
        monitor.Lane("twin", 2, 0, 2, 3, 3, "", None),
        monitor.Lane("twin", 3, 0, 2, 4, 4, "timeout", None),
    ]
    made = monitor.Rank(
        "starling.x.0", "alive", 7, "cpu", "job", (1, 2), 0, 2, "", 8, {"parks": 5}, lanes, [path()]
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_prometheus_escapes_and_tells_twins_apart() -> None:
    whole = dict.fromkeys(("launches", "parks", "resumes", "instructions"), 1)
    whole |= dict.fromkeys(("quits_idle", "quits_stuck", "quits_drained"), 1)
    text = monitor.prometheus_text([rank(counters=whole), rank(segment="starling.x.1", counters=None)])
    samples = samples_of(text)
    assert 'link="tcp"' in text
    assert 'link="verbs"' in monitor.prometheus_text([rank(counters=whole, paths=[path(link="verbs")])])
    assert [v for s, v in samples.items() if s.startswith("starling_path_straight")] == [70_000] * 2
    assert [v for s, v in samples.items() if s.startswith("starling_path_copied")] == [3_000] * 2
    assert 'lane="a \\"lane\\"\\n\\\\"' in text
    of_twins = [value for series, value in samples.items() if 'lane="twin#' in series and "broken" in series]
    assert sorted(of_twins) == [0, 0, 1, 1]
    assert sum(series.startswith("starling_parks_total") for series in samples) == 1, "none of a GPU's blocks"
    assert monitor.prometheus_text([rank(state="died")]).count("\nstarling_") == 0


def test_the_screen_says_what_carries_a_path() -> None:
    console = Console(width=240, file=io.StringIO())
    console.print(
        render([rank(counters=None, paths=[path(), path(ring=65, path=1, link="verbs")])], Rates(), 0)
    )
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert [line.split()[3] for line in shown.splitlines() if "rail0 ->" in line] == ["tcp", "verbs"]


def test_rates_are_differences() -> None:
    rates = Rates()
    first, second = rank(), rank(counters={"parks": 25}, paths=[path(bytes=7_000_000)])
    rates.look([first], 1_000_000_000)
    assert rates.counters(first, "parks") is None
    rates.look([second], 3_000_000_000)
    assert rates.counters(second, "parks") == 10
    assert rates.bytes(second, second.paths[0]) == 1_000_000
    assert rates.operations(second) == 0
    rates.look([rank(segment="starling.new.0")], 4_000_000_000)
    assert rates.operations(rank(segment="starling.new.0")) is None


def test_trace_and_csv_have_what_was_seen(tmp_path: Path) -> None:
    recording = monitor.Recording(tmp_path / "transfers.csv", trace=True)
    slow = monitor.Anomaly("network", 3_000, 9_000, 5_000, 65536, 2e9, 1e9)
    sample = monitor.Sample("starling.x.0", 64, 1_000, 3_000, 65536, 131072, 3e9, 0, 8)
    recording.add([rank(paths=[path(link="verbs")])], [sample], [("starling.x.0", 64, slow)])
    recording.close()
    (row,) = csv.DictReader((tmp_path / "transfers.csv").open())
    assert (row["link"], row["port"], row["completed_ns"]) == ("verbs", "rail0 -> rail0", "3000")
    tracks = recording.tracks()
    assert all(event["name"].startswith("to rank 1 by rail0 -> rail0 (verbs)") for event in tracks[:2])
    window, under_way = (event for event in tracks if event["ph"] == "C")
    assert window["ts"] == 2 and window["args"] == {"GB/s": 3.0} and window["pid"] == 0
    assert under_way["args"] == {"bytes": 131072}
    (found,) = (event for event in tracks if event["ph"] == "X")
    assert found["name"] == "network" and (found["ts"], found["dur"]) == (2, 6)
    # Beside a timeline, on its clock.
    assert recording.tracks(zero_ns=0)[0]["ts"] == 3
