"""Goal: `starling top` shows what ranks of this host do, in every form, also while one of them dies; and ends cleanly.

Method: two ranks over loopback that all-reduce until they are told to stop, looked at by the real command.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hosts.ranks import Job
from monitor import programs
from starling import timeline
from starling.diagnose import diagnose
from starling.monitor.command import app
from starling.monitor.views import now_ns

BOUND_S = 200.0
_numbers = itertools.count()


def start_job(**settings: str) -> tuple[Job, str]:
    name = f"watched {os.getpid()}.{next(_numbers)}"
    job = Job(None, [[0], [1]], programs.all_reduces, {"name": name}, communicator=False, settings=settings)
    for rank in (0, 1):
        job.wait_for(f"running.{rank}")
    return job, name


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    job, name = start_job()
    try:
        yield name
        job.say("stop")
        assert min(job.results()) > 10
    finally:
        job.end()


def top(*arguments: str) -> Any:
    """The command, in this process."""
    return CliRunner(env={"COLUMNS": "240"}).invoke(app, arguments)


def ranks_in(document: str) -> list[dict[str, Any]]:
    jobs = json.loads(document)["jobs"]
    return [rank for job in jobs for rank in job["ranks"]]


def test_the_user_names_the_job() -> None:
    """As for `starling diagnose`; the group's name is a library's, PyTorch's is 0."""
    job, group = start_job(STARLING_JOB="mine")
    try:
        assert len(ranks_in(top("--once", "--json", "--job", "mine").stdout)) == 2
        assert not ranks_in(top("--once", "--json", "--job", group).stdout)
        job.say("stop")
        job.results()
    finally:
        job.end()


def test_the_launcher_names_the_job() -> None:
    """By its run id, and as `starling diagnose` shows it; that also takes the name that is shown here."""
    run_id = f"run {os.getpid()}"
    job, group = start_job(TORCHELASTIC_RUN_ID=run_id, MASTER_PORT="29511")
    try:
        shown = f"TORCHELASTIC_RUN_ID={run_id} MASTER_PORT=29511"
        for name in (group, run_id, shown):
            assert len(ranks_in(top("--once", "--json", "--job", name).stdout)) == 2, name
            assert [one.job for one in diagnose(job=name)] == [shown]
        assert not ranks_in(top("--once", "--json", "--job", "29511").stdout)
        job.say("stop")
        job.results()
    finally:
        job.end()


def test_json(running: str) -> None:
    done = top("--once", "--json", "--job", running)
    assert done.exit_code == 0, done.output
    ranks = ranks_in(done.stdout)
    assert [(rank["rank"], rank["size"], rank["state"]) for rank in ranks] == [
        (0, 2, "alive"),
        (1, 2, "alive"),
    ]
    for rank in ranks:
        lanes = {lane["name"]: lane for lane in rank["lanes"]}
        assert set(lanes) == {"grads", "weights", "leave"}
        for lane in lanes.values():
            assert 10 <= lane["completed"] <= lane["submitted"] <= lane["completed"] + 1
            if lane["oldest"]:
                assert lane["oldest"]["kind"] == "all_reduce"
                assert lane["oldest"]["count"] == (1 if lane["name"] == "leave" else programs.COUNT)
        assert rank["counters"]["instructions"] > 0 and rank["counters"]["launches"] > 0
        used = [path for path in rank["paths"] if path["transfers"]]
        assert used and all(path["peer"] == 1 - rank["rank"] for path in rank["paths"])
        # A rank of two sends half of each and gets half back; in two lanes, and the last reports may be outstanding.
        assert sum(path["bytes"] for path in used) >= lanes["grads"]["completed"] * programs.COUNT * 4 / 4
        assert used[0]["window_transfers"] == 8 and used[0]["bytes_per_second"] > 0


def test_view(running: str) -> None:
    done = top("--once", "--job", running)
    assert done.exit_code == 0, done.output
    assert f"{running}  2 of 2 ranks here" in done.stdout
    assert "lo 127.0.0.1 -> lo 127.0.0.1" in done.stdout and re.search(r"grads +0 +\d+", done.stdout)
    done = top("--once", "--job", "there is none of this name")
    assert done.exit_code == 1 and "No rank" in done.stdout


def samples_of(text: str) -> dict[str, float]:
    """By series, checked against the format: each series once, in a family that was declared, counters as such."""
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
            continue
        label = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
        found = re.fullmatch(rf"([a-z_]+)\{{({label}(?:,{label})*)\}} (\S+)", line)
        assert found, line
        assert found[1] in kinds and (kinds[found[1]] == "counter") == found[1].endswith("_total"), line
        assert f"{found[1]}{{{found[2]}}}" not in samples, line
        samples[f"{found[1]}{{{found[2]}}}"] = float(found[3])
    return samples


def test_prometheus_file(running: str, tmp_path: Path) -> None:
    target = tmp_path / "starling.prom"
    assert top("--once", "--job", running, "--prometheus", str(target)).exit_code == 0
    samples = samples_of(target.read_text())
    assert list(tmp_path.iterdir()) == [target], "no draft is left"
    assert sum(value for series, value in samples.items() if series.startswith("starling_up{")) == 2
    for what in ("lane_completed_total", "path_bytes_total", "path_window_bytes_per_second", "parks_total"):
        assert any(series.startswith(f"starling_{what}{{") for series in samples), what


class Running:
    """The command in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        call = [sys.executable, "-m", "starling.cli", "top", *arguments]
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def interrupt(self) -> tuple[str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=BOUND_S)
        assert self.process.returncode == 0, err
        assert "Traceback" not in err
        return out, err


def test_prometheus_server(running: str) -> None:
    command = Running("--json", "--prometheus", "0", "--job", running)
    assert command.process.stderr is not None
    address = command.process.stderr.readline().strip()
    assert address.startswith("http://127.0.0.1:"), "to this host alone, unless it is told"
    with urllib.request.urlopen(address, timeout=BOUND_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        first = samples_of(answer.read().decode())
    command.line()
    with urllib.request.urlopen(address, timeout=BOUND_S) as answer:
        second = samples_of(answer.read().decode())
    command.interrupt()
    assert first.keys() <= second.keys()
    for series, value in first.items():
        if series.split("{")[0].endswith("_total"):
            assert second[series] >= value, series


@pytest.mark.parametrize("address", ("0.0.0.0", "::1"))
def test_prometheus_server_elsewhere(running: str, address: str) -> None:
    try:
        socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        ).close()
    except OSError as error:
        pytest.skip(f"no {address} here: {error}")
    command = Running("--json", "--prometheus", "0", "--prometheus-address", address, "--job", running)
    assert command.process.stderr is not None
    told = command.process.stderr.readline().strip()
    assert f"http://[{address}]:" in told if ":" in address else f"http://{address}:" in told
    with urllib.request.urlopen(told, timeout=BOUND_S) as answer:
        assert samples_of(answer.read().decode())
    command.interrupt()


def test_prometheus_server_at_an_address_of_others(running: str) -> None:
    done = top("--once", "--prometheus", "0", "--prometheus-address", "192.0.2.1", "--job", running)
    assert done.exit_code == 2
    assert "192.0.2.1" in done.output


@pytest.mark.parametrize("port", ("65536", "99999999", "²"))
def test_prometheus_server_at_no_port(port: str) -> None:
    done = top("--once", "--prometheus", port)
    assert done.exit_code == 2
    assert f"there is no port {port}" in done.output


def test_records(running: str, tmp_path: Path) -> None:
    table, trace, blocks = tmp_path / "paths.csv", tmp_path / "trace.json", tmp_path / "rank0.jsonl"
    timeline.save(blocks, [timeline.Event(now_ns(), 0, 0, "launch", "", 0, 0)])
    for _ in range(10):  # a rank of a busy machine may have sent nothing since the event
        done = top(
            *("--json", "--refresh", "0.2", "--seconds", "2", "--window", "4", "--job", running),
            *("--csv", str(table), "--trace", str(trace), "--events", str(blocks)),
        )
        assert done.exit_code == 0, done.output
        counters = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "C"]
        if max(event["ts"] for event in counters) > 0:
            break
    rows = [row for row in csv.DictReader(table.open()) if row["job"] == running]
    assert len(rows) > 10
    for row in rows:
        assert int(row["posted_ns"]) <= int(row["completed_ns"]) and int(row["window_transfers"]) <= 4
        assert float(row["window_bytes_per_second"]) > 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"C", "M"}
    # On the clock of the blocks' events: the ring held some transfers from before.
    assert max(event["ts"] for event in counters) > 0
    assert {"rank 0", "block 0"} <= {event["args"]["name"] for event in events if "name" in event["args"]}
    assert {name.split(": ")[1] for name in (event["name"] for event in counters)} == {"window", "under way"}


def test_a_rank_that_dies_while_it_is_watched() -> None:
    job, name = start_job()
    try:
        command = Running("--json", "--refresh", "0.1", "--job", name)
        ranks = ranks_in(command.line())
        assert [rank["state"] for rank in ranks] == ["alive", "alive"]
        os.kill(ranks[1]["pid"], signal.SIGKILL)
        deadline = time.monotonic() + BOUND_S
        while ranks[1]["state"] != "died":
            assert time.monotonic() < deadline
            ranks = ranks_in(command.line())
        # Ranks that have gone are remembered a while; the other one fails in its own time.
        assert len(ranks) == 2 and ranks[1]["lanes"]
        command.interrupt()
    finally:
        job.end()


@pytest.mark.parametrize("option", ("--csv", "--trace", "--prometheus"))
def test_what_cannot_be_written_is_told(option: str) -> None:
    done = top("--once", option, "/there/is/no/such/folder/x")
    assert done.exit_code == 2 and "cannot write there" in done.output
