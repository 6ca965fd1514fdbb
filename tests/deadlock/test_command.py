"""Goal: `starling deadlock` answers, draws and refuses. Method: the commands on tiny models, through typer's runner."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from cli.test_cli import starling, starling_interrupted
from starling.deadlock.command import app

RUN = CliRunner()
SAYS_THAT_IT_RUNS = """
from contextlib import contextmanager
from pathlib import Path
import starling.deadlock.command as command
shown = command._progress
@contextmanager
def progress(title, total):
    with shown(title, total) as update:
        def told(done):
            Path({running!r}).touch()
            return update(done)
        yield told
command._progress = progress
"""
SMALL = ["--shape", "3d:2,2,1:20,30", "--model", "synchronization", "--disorder", "0.1", "--sync", "0.1"]


def test_run_gives_table_csv_and_json(tmp_path: Path) -> None:
    csv, out = tmp_path / "a.csv", tmp_path / "a.json"
    done = RUN.invoke(app, ["run", *SMALL, "--rounds", "300", "--json", "--csv", str(csv), "--out", str(out)])
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    assert set(result["provenance"]) == {"command", "commit", "version", "machine", "date"}
    (found,) = result["result"]
    assert [ratio["decision"] for ratio in found["ratios"]] == ["exact", "released"]
    assert 0 < found["ratios"][0]["ratio"] <= found["ratios"][1]["ratio"] <= 1
    header, *lines = csv.read_text().splitlines()
    assert header.startswith("row,variant,model")
    assert len(lines) == 2


def test_run_shows_the_closed_form() -> None:
    done = RUN.invoke(
        app, ["run", "--shape", "one:8,161", "--disorder", "1e-12", "--planted", "--rounds", "100"]
    )
    assert done.exit_code == 0, done.output
    assert "1.3e-07 %" in done.output
    assert "closed form" in done.output


def test_table_runs_single_rows() -> None:
    done = RUN.invoke(app, ["table", "--rows", "Q5", "--rounds", "2000", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)["result"]
    assert {found["row"] for found in result} == {"Q5"}
    assert all(isinstance(ratio["agrees"], bool) for found in result for ratio in found["ratios"])


def test_table_plants_what_is_too_rare_to_count() -> None:
    done = RUN.invoke(app, ["table", "--rows", "S7", "--rounds", "30000", "--planted", "--json"])
    assert done.exit_code == 0, done.output
    for found in json.loads(done.stdout)["result"]:
        (ratio,) = found["ratios"]
        assert ratio["decision"] == "exact"
        assert 0 <= ratio["ratio"] < 1e-5  # counting 32,000 rounds would see nothing
        assert ratio["agrees"] is False


def test_the_smallest_deadlock_is_drawn_and_judged(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["smallest", str(tmp_path), *SMALL])
    assert done.exit_code == 0, done.output
    assert "2 GPUs, 2 collectives" in done.output
    assert (tmp_path / "deadlock_smallest.png").read_bytes().startswith(b"\x89PNG")
    record = str(tmp_path / "deadlock_smallest.jsonl")
    judged = RUN.invoke(app, ["record", record, "--draw", str(tmp_path / "again.png")])
    assert judged.exit_code == 1
    assert "DEADLOCK" in judged.output
    assert (tmp_path / "again.png").exists()


def test_sequences_are_exported(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["sequences", str(tmp_path), "--count", "5", *SMALL])
    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.glob("*.jsonl"))) == 5


def test_conclusions_are_drawn(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["conclusions", str(tmp_path), "--rounds", "40"])
    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.glob("deadlock_conclusion_*.png"))) == 5
    numbers = [
        conclusion["number"]
        for conclusion in json.loads((tmp_path / "deadlock_conclusions.json").read_text())["result"]
    ]
    assert numbers == [1, 2, 3, 4, 5]


def test_bad_input_is_refused() -> None:
    for arguments in (
        ["run", "--shape", "ring"],
        ["run"],
        ["run", "--shape", "one:2,3", "--disorder", "2"],
        ["run", "--shape", "one:2,3", "--model", "streams"],
        ["run", "--shape", "3d:100000,100000,100000:1,1"],
        ["run", "--shape", "one:99999999,3"],
        ["run", "--shape", "one:-1,3"],
        ["table", "--rows", "Q99"],
        ["record", "/nonexistent.jsonl"],
    ):
        done = RUN.invoke(app, arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert "refused" in done.output


def test_numbers_out_of_range_are_refused() -> None:
    for flag, value in (
        ("--rounds", "0"),
        ("--rounds", "99999999999999999999999"),
        ("--seed", "-1"),
        ("--seed", "99999999999999999999999"),
        ("--threads", "-3"),
        ("--disorder", "nan"),
        ("--sync", "1"),
    ):
        done = RUN.invoke(app, ["run", "--shape", "one:2,3", "--model", "synchronization", flag, value])
        assert done.exit_code == 2, (flag, value, done.output)


def test_a_full_disk_is_said_and_the_result_is_shown(tmp_path: Path) -> None:
    for flag, where in (
        ("--out", "/dev/full"),
        ("--csv", "/dev/full"),
        ("--out", str(tmp_path / "no" / "x")),
    ):
        done = starling("deadlock", "run", *SMALL, "--rounds", "100", flag, where)
        assert done.returncode == 2, done.stderr
        assert "cannot write" in done.stderr
        assert "Traceback" not in done.stderr
        assert "100 rounds" in done.stdout


def test_a_file_that_is_no_result_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("my notes")
    done = RUN.invoke(
        app, ["replay", "--shape", "3d:2,2,1:3,3", "--disorder", "0.1", "--count", "1", "--out", str(path)]
    )
    assert done.exit_code == 2, done.output
    assert "no file of results" in " ".join(done.output.split())
    assert path.read_text() == "my notes"


def test_interrupted(tmp_path: Path) -> None:
    arguments = ["deadlock", "run", "--shape", "3d:4,4,4:400,1200", "--model", "synchronization",
                 "--disorder", "4e-3", "--sync", "4e-3", "--rounds", "100000000"]  # fmt: skip
    running = tmp_path / "running"
    code = SAYS_THAT_IT_RUNS.format(running=str(running))
    done = starling_interrupted(*arguments, code=code, running=running)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert "Traceback" not in done.stderr
