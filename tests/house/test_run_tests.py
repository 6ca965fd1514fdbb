"""Goal: the closing line of `make test` tells the truth, above all when something died.

Method: feed scripts/run_tests.py reports of every kind and read the counts and the exit status.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from house.sources import ROOT


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts" / "run_tests.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_tests"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


REPORT = """<testsuites><testsuite>
<testcase classname="A" name="good" status="run" result="completed"/>
<testcase classname="A" name="bad" status="run" result="completed"><failure message="x"/></testcase>
<testcase classname="A" name="broken"><error message="x"/></testcase>
<testcase classname="A" name="off" status="notrun" result="suppressed"/>
<testcase classname="A" name="skip" status="run" result="skipped"><skipped/></testcase>
</testsuite></testsuites>"""
GOOD = '<testsuite><testcase classname="A" name="good" status="run"/></testsuite>'


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_cases_are_counted_by_kind(runner: ModuleType, tmp_path: Path) -> None:
    counts = runner.count_report(write(tmp_path / "r.xml", REPORT))
    assert counts.line() == "1 passed, 2 failed, 2 skipped"
    assert counts.failures == ["A.bad", "A.broken"]


@pytest.mark.parametrize(
    ("report", "succeeded", "line"),
    [
        (GOOD, True, "1 passed, 0 failed, 0 skipped"),
        (GOOD, False, "1 passed, 1 failed, 0 skipped"),  # died after its last case: a sanitizer, a leak
        (REPORT, False, "1 passed, 2 failed, 2 skipped"),
        (None, False, "0 passed, 1 failed, 0 skipped"),  # died before it could report
        ("<testsuite><testcase", False, "0 passed, 1 failed, 0 skipped"),
        (None, True, "1 passed, 0 failed, 0 skipped"),
    ],
)
def test_a_program_that_dies_is_a_failure(
    runner: ModuleType, tmp_path: Path, report: str | None, succeeded: bool, line: str
) -> None:
    path = tmp_path / "r.xml"
    if report is not None:
        write(path, report)
    assert runner.count_program("p", succeeded, path).line() == line


def test_the_closing_line_is_alone_and_zero_tests_fail(
    runner: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.finish("t", {"a": runner.Counts(passed=2), "b": runner.Counts(skipped=1)}) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed, 1 skipped"
    assert runner.finish("t", {"a": runner.Counts()}) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_run_without_results_is_a_failure(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    write(tmp_path / "test.json", '{"C++": {"passed": 3, "failed": 0, "skipped": 1, "failures": []}}')
    parts = runner.earlier_runs(["test", "tsan"])
    assert [part.line() for part in parts.values()] == [
        "3 passed, 0 failed, 1 skipped",
        "0 passed, 1 failed, 0 skipped",
    ]
