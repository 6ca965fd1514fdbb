"""Goal: `starling soak` counts, reports, keeps failing seeds, replays, and ends well when it is interrupted or the
disk is full.

Method: the command as a user starts it; for a failing seed, a runner that says that one failed.
"""

import json
from pathlib import Path

from cli.test_cli import starling, starling_interrupted

COUNTS = ("operations", "instructions", "parks", "quits", "launches", "synchronizations", "steps")
A_SEED_FAILS = """
from types import SimpleNamespace
import starling.sim.command as command
class Soak(command.Soak):
    failures = [SimpleNamespace(seed=7, failure="no progress")]
command.Soak = Soak
"""
SAYS_THAT_IT_RUNS = """
from pathlib import Path
import starling.sim.command as command
class Soak(command.Soak):
    def run(self, *arguments):
        super().run(*arguments)
        Path({running!r}).touch()
command.Soak = Soak
"""


def test_report_has_all_counts() -> None:
    done = starling("soak", "--seconds", "600", "--seeds", "40", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"command", "commit", "machine", "date"} <= set(document)
    (row,) = document["rows"]
    assert row["seeds"] == 40
    assert row["failed"] == 0
    assert all(row[name] > 0 for name in COUNTS)


def test_same_seeds_same_counts() -> None:
    rows = [
        json.loads(starling("soak", "--seeds", "25", "--threads", threads, "--json", "-").stdout)["rows"][0]
        for threads in ("1", "2")
    ]
    assert [rows[0][name] for name in COUNTS] == [rows[1][name] for name in COUNTS]


def test_failing_seeds_are_kept(tmp_path: Path) -> None:
    done = starling("soak", "--seeds", "3", "--out", str(tmp_path), code=A_SEED_FAILS)
    assert done.returncode == 1
    assert "--replay 7" in done.stderr
    (row,) = json.loads((tmp_path / "failed-mixed.json").read_text())["rows"]
    assert row["failures"] == [{"seed": 7, "failure": "no progress"}]


def test_interrupt_reports_what_was_run(tmp_path: Path) -> None:
    report, running = tmp_path / "soak.json", tmp_path / "running"
    code = SAYS_THAT_IT_RUNS.format(running=str(running))
    done = starling_interrupted(
        "soak", "--seconds", "3000", "--json", str(report), code=code, running=running
    )
    assert done.returncode == 130, done.stderr
    assert done.stdout.startswith("interrupted; ")
    assert "Traceback" not in done.stderr
    (row,) = json.loads(report.read_text())["rows"]
    assert row["interrupted"]
    assert row["seeds"] > 0


def test_full_disk_is_said(tmp_path: Path) -> None:
    done = starling("soak", "--seeds", "3", "--json", "/dev/full")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "3 seeds" in done.stdout


def test_replay_tells_and_draws(tmp_path: Path) -> None:
    done = starling("soak", "--campaign", "dfccl2", "--replay", "5", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "all operations complete" in done.stdout
    assert (tmp_path / "dfccl2-5.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "dfccl2-5.trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(8))


def test_unknown_campaign_names_those_that_exist() -> None:
    done = starling("soak", "--campaign", "nope")
    assert done.returncode == 2
    assert "dfccl2-full" in done.stderr


def test_numbers_out_of_range_are_refused() -> None:
    for flag in ("--seeds", "--first-seed", "--replay"):
        for value in ("-1", "99999999999999999999999"):
            done = starling("soak", flag, value)
            assert done.returncode == 2, (flag, value, done.stderr)
            assert "Traceback" not in done.stderr
