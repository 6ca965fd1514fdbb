"""Goal: the tutorial runs as it is written.

Method: its blocks are taken out of docs/LANGUAGE.md and run: the program is compiled, verified and drawn by the
commands there, broken as described, run on four ranks, tuned, and the table used.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling import Communicator
from starling.cli.root import app
from starling.launch import run_threads
from starling.tune import Table

PAGE = Path(__file__).parents[2] / "docs" / "LANGUAGE.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text().partition("## Reference")[0], re.S)
    return [text for kind, text in fenced if kind == language]


def commands(number: int) -> list[tuple[list[str], str]]:
    """The words of each command of a block, and its comment."""
    lines = [line.partition("#") for line in blocks("sh")[number].splitlines()]
    return [(shlex.split(line), comment.strip()) for line, _, comment in lines]


def starling(words: list[str]) -> str:
    assert words[0] == "starling"
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, (words, result.output)
    return result.output


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(blocks("python")[0])


def test_the_commands_say_what_the_page_says() -> None:
    for words, comment in commands(0):
        output = starling(words)
        if words[1] == "verify":
            assert output.strip() == comment
    assert Path("my.svg").read_text().startswith("<")


@pytest.mark.parametrize(
    ("line", "instead", "number"),
    [('c = c.copy(r, "output", r)', "pass", 0), ("c = c.reduce(theirs)", "c.reduce(theirs)", 1)],
)
def test_mistakes_are_told_as_the_page_says(line: str, instead: str, number: int) -> None:
    source = Path("my.py").read_text()
    assert line in source
    Path("my.py").write_text(source.replace(line, instead, 1))
    result = CliRunner().invoke(app, ["verify", "my.py", "-n", "4"])
    assert result.exit_code == 1
    told = re.escape(blocks("")[number].strip()).replace(r"\.\.\.", ".*")
    assert re.fullmatch(told, result.output.replace(f"{Path.cwd()}/", "").strip()), result.output


def test_it_runs_on_four_ranks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = blocks("python")[1]
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.delitem(sys.modules, "my", raising=False)
    exec(compile(text, "run.py", "exec"), {"__name__": "tutorial"})
    printed = re.findall(r"print\(.*# (\[.*\])", text)
    assert capsys.readouterr().out.strip() == printed[0]


def use(comm: Communicator) -> int:
    return comm.use_table("table.txt")


def test_it_is_tuned_and_the_table_used() -> None:
    tuning = [words for words, _ in commands(1) if words[:2] == ["starling", "tune"]]
    assert len(tuning) == 2
    quick = [
        "--as",
        "threads",
        "-b",
        "64",
        "-e",
        "64",
        "--most",
        "1",
        "--repetitions",
        "1",
        "--slice-ms",
        "0.1",
    ]
    for words in tuning:
        starling([*words, *quick])
    rows = Table.load("table.txt").rows
    assert {row.collective for row in rows} >= {"all_reduce", "scatter"}
    assert run_threads(4, use, timeout=200) == [len(rows)] * 4
