"""Goal: the benchmarks measure what they say: right counts and factors, checked results, whole JSON, and a failure that
is seen.

Method: small runs of the real programs; conventions against nccl-tests' formulas; workers that lie, die and hang.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.left_behind import processes_with
from cli.test_cli import starling
from starling.bench import convention, plots, tables
from starling.bench.collectives import wrong_rows
from starling.bench.workers import Launch, WorkerError, WorkerGroup


def bench(*arguments: str) -> dict[str, Any]:
    done = starling("bench", *arguments, "--json", "-", timeout_s=250)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert {"command", "commit", "machine", "date", "rows", "settings"} <= set(document)
    return document


def test_every_collective_is_measured_and_right() -> None:
    document = bench(
        "-C", "all", "-n", "3", "-b", "1", "-e", "4K", "-f", "4096", "--repetitions", "1", "--iters", "2"
    )
    rows = document["rows"]
    assert {row["collective"] for row in rows} == set(convention.COLLECTIVES) - {"send_recv", "barrier"}
    for row in rows:
        assert row["out_of_place"]["starling"]["wrong"] == 0, row
        assert row["in_place"]["starling"].get("wrong", 0) == 0, row
    assert not wrong_rows(document)


def test_all_of_them_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what it has written, and leaves published results alone."""
    published = tmp_path / "bench/results/collectives.json"
    published.parent.mkdir(parents=True)
    published.write_text("published")
    monkeypatch.chdir(tmp_path)
    done = starling("bench", "all", "--quick", timeout_s=250)
    assert done.returncode == 0, done.stderr
    assert published.read_text() == "published"
    written = done.stdout.splitlines()[-1].partition("written: ")[2].split(", ")
    assert sorted(map(str, Path("starling-bench").iterdir())) == written
    assert {"starling-bench/collectives.json", "starling-bench/disorder.png"} <= set(written)


def test_the_monitor_s_cost_and_windows() -> None:
    """What it costs is for the measurement to say: a loaded machine may find it dear (exit code 1)."""
    done = starling("bench", "monitor", "--rounds", "1", "--seconds", "0.05", "--json", "-")
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    rows = {row["window"]: row for row in document["rows"]}
    fluctuations = [rows[size]["fluctuation_percent"] for size in (1, 8, 32)]
    delays = [rows[size]["follows_a_drop_after_us"] for size in (1, 8, 32)]
    assert fluctuations == sorted(fluctuations, reverse=True) and delays == sorted(delays)
    assert rows[8]["disturbances_found"] > rows[8]["of"] / 2
    cost = document["cost"]
    assert cost["transfer_with_ns"] > cost["transfer_without_ns"] > 0
    assert len(document["curves"]["time_ns"]) == len(document["curves"]["8"])


def test_types_reductions_and_point_to_point() -> None:
    effort = ("-b", "1K", "-e", "1K", "--repetitions", "1", "--iters", "2")
    rows = bench("-n", "2", *effort, "-d", "float32,bfloat16,int64", "-o", "sum,prod,min,max,avg")["rows"]
    assert len(rows) == 15
    assert all(row["out_of_place"]["starling"]["wrong"] == 0 for row in rows)
    rows = bench("-n", "2", *effort, "-C", "send_recv,barrier")["rows"]
    assert rows[0]["out_of_place"]["starling"]["wrong"] == 0
    assert rows[1]["size_bytes"] == 0


def test_the_other_libraries_give_the_same_results() -> None:
    pytest.importorskip("torch")
    document = bench(
        *("-C", "all_reduce,all_gather,broadcast,all_to_all", "-n", "2", "-b", "4K", "-e", "4K"),
        *("--repetitions", "1", "--iters", "2", "--compare", "gloo,torch"),
    )
    for row in document["rows"]:
        for library in ("starling", "gloo", "torch"):
            assert row["out_of_place"][library]["wrong"] == 0, (row["collective"], library)


def test_disorder_cq_and_late_rank() -> None:
    rows = bench("disorder", "-n", "2", "--iterations", "3", "--repetitions", "1")["rows"]
    assert {row["order"] for row in rows} == {"same", "random", "latin"}
    assert all(row["wrong"] == 0 for row in rows)
    document = bench("cq", "--items", "500", "--repetitions", "1")
    assert [row["queue"] for row in document["rows"]] == ["ring", "packed_ring", "slots"]
    assert document["settings"]["every_item_once"]
    rows = bench("choosing", "-n", "2", "--blocks", "2", "--repetitions", "1")["rows"]
    assert len(rows) == 5 * 4 and all(
        row[key] > 0 for row in rows for key in ("known_1_ns", "table_ns", "first_ns")
    )
    rows = bench("late-rank", "-n", "2", "--collectives", "8", "--iterations", "2", "--repetitions", "1")[
        "rows"
    ]
    assert [row["policy"] for row in rows] == ["fixed, a tenth", "fixed", "adaptive", "looking"]
    assert all(row["right"] for row in rows)
    # A rank that parks much writes more events than the ring holds: such bursts are not counted.
    traced = [row for row in rows if row["bursts_traced_whole"] > 0]
    assert all(min(row["queue_by_collective"]) >= 1 for row in traced)
    assert all(row["queue_mean"] is None for row in rows if row not in traced)


@pytest.mark.parametrize(
    ("collective", "size_bytes", "count", "factor"),
    [
        ("all_reduce", 1024, 256, 1.5),
        ("all_gather", 1024, 64, 0.75),
        ("reduce_scatter", 1024, 64, 0.75),
        ("all_to_all", 1024, 64, 0.75),
        ("broadcast", 1024, 256, 1.0),
        ("all_gather", 16, 1, 0.75),  # from 8 bytes: every rank has at least one element
    ],
)
def test_conventions_are_those_of_nccl_tests(
    collective: str, size_bytes: int, count: int, factor: float
) -> None:
    asked = 8 if size_bytes == 16 else size_bytes
    at = convention.point(collective, 4, "float32", "sum", 0, asked)
    assert (at.size_bytes, at.count, at.bus_factor) == (size_bytes, count, factor)
    assert at.algorithm_bandwidth(1e-6) == pytest.approx(size_bytes / 1e3)


def test_sizes_and_units() -> None:
    assert convention.sizes(8, 64 << 20, 8, 0)[-2:] == [16 << 20, 64 << 20]
    assert convention.sizes(1, 7, 1, 3) == [1, 4, 7]
    assert [convention.parse_bytes(text) for text in ("8", "1K", "0.5m", "1G")] == [
        8,
        1 << 10,
        1 << 19,
        1 << 30,
    ]


def worker(body: str) -> Any:
    code = f"import sys, time\nfolder = sys.argv[1]\n{body}"
    return lambda folder: [Launch([sys.executable, "-c", code, str(folder)], {})]


@pytest.mark.parametrize(
    ("body", "words", "timeout_s"),
    [
        ("sys.exit('no luck today')", "no luck today", 200),
        ("time.sleep(600)", "no answer", 2),
        (
            "open(folder + '/replies', 'w').write('{\"rank\": 0, \"error\": \"broken\"}\\n'); time.sleep(600)",
            "broken",
            200,
        ),
    ],
    ids=["dies", "hangs", "complains"],
)
def test_a_worker_that_fails_is_an_error_with_its_words(body: str, words: str, timeout_s: float) -> None:
    with pytest.raises(WorkerError, match=words), WorkerGroup("bad", 1, worker(body), timeout_s=timeout_s):
        pass


def test_wrong_elements_are_reported() -> None:
    timing = {"wrong": 3}
    row = {
        **{"collective": "all_reduce", "type": "float32", "redop": "sum", "size_bytes": 8, "ranks": 2},
        **{"out_of_place": {"starling": timing}, "in_place": {}},
    }
    assert "3 wrong elements" in wrong_rows({"rows": [row]})[0]


def test_tables_are_made_between_the_markers(tmp_path: Path) -> None:
    document = bench("disorder", "-n", "2", "--iterations", "2", "--repetitions", "1")
    (tmp_path / "disorder.json").write_text(json.dumps(document))
    document = bench("-n", "2", "-b", "8", "-e", "1K", "-f", "128", "--repetitions", "1", "--iters", "2")
    (tmp_path / "collectives.json").write_text(json.dumps(document))
    text = tables.renewed("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n", tmp_path)
    assert text.startswith("before\n<!-- bench -->\n") and text.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in text
    assert "| 2 ranks, random |" in text and "| 8 B |" in text
    assert tables.renewed(text, tmp_path) == text
    with pytest.raises(ValueError, match="bench"):
        tables.renewed("no markers", tmp_path)
    one = tables.renewed("<!-- bench: disorder -->\n<!-- /bench -->\n", tmp_path)
    assert "| 2 ranks, random |" in one and "| 8 B |" not in one
    with pytest.raises(ValueError, match="no table is called none"):
        tables.renewed("<!-- bench: disorder none -->\n<!-- /bench -->\n", tmp_path)


def test_ratios_are_drawn_where_there_is_another_library(tmp_path: Path) -> None:
    def row(collective: str, size: int, **times: float) -> dict[str, Any]:
        place = {name: {"time_us": us} for name, us in times.items()}
        return {"collective": collective, "ranks": 2, "size_bytes": size, "out_of_place": place}

    rows = [
        row("broadcast", 8, starling=1.0, gloo=20.0, openmpi=0.5),
        row("broadcast", 32, starling=2.0),
        row("all_gather", 16, starling=1.0, gloo=3.0),
    ]
    machine = {"cpu": "a CPU", "cores": 2}
    doc = {"rows": rows, "machine": machine, "commit": "none", "date": "2026-01-01"}
    (tmp_path / "collectives.json").write_text(json.dumps(doc))
    (made,) = tables.draw(tmp_path)
    assert made.read_bytes().startswith(b"\x89PNG")
    assert plots.ratios(rows, 2, ["gloo", "openmpi"]) == {
        "broadcast": {8: 0.5},
        "all_gather": {8: 3.0},
    }


def test_compiling() -> None:
    document = bench("compile", "--repetitions", "1", "--most-ranks", "8")
    (row,) = document["rows"]
    assert row["program"] == "ring" and row["instructions"] == 120 and row["slots"] == 2
    assert row["compile_s"] > 0 and row["verify_s"] > 0


def test_who_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM left the folder of the ranks' pipes behind."""
    command = [sys.executable, "-m", "starling.cli", "bench", "-n", "2", "-e", "8", "--repetitions", "100000"]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + 60
        while len(processes_with(bytes(tmp_path))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(processes_with(bytes(tmp_path))) >= 2
        for _ in range(3):  # `timeout` tells a process, and then its group
            process.terminate()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not processes_with(bytes(tmp_path))
    assert not list(tmp_path.glob("starling-*"))
