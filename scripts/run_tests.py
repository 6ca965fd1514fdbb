"""Runs the C++ and Python tests and closes with one plain line: `N passed, N failed, N skipped`.

Cases are counted, not programs: GoogleTest's and pytest's reports are summed. A program that dies or times out
without a report is one failed case. Zero cases are a failure. `--sum` adds up the results of earlier runs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "results"

# Python tests that look at what all processes of the machine have in /dev/shm.
ALONE = ["tests/comm/test_joining.py", "tests/cli/test_demo_leftovers.py"]


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures

    def fail(self, name: str) -> None:
        self.failed += 1
        self.failures.append(name)

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.skipped

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_report(path: Path) -> Counts:
    """Reads one JUnit-like report (GoogleTest and pytest write the same elements)."""
    counts = Counts()
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            counts.fail(name)
        elif (
            case.find("skipped") is not None
            or case.get("result") == "skipped"
            or case.get("status") == "notrun"
        ):
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def count_program(name: str, succeeded: bool, report: Path) -> Counts:
    """One test program: its report, corrected by how the program itself ended."""
    try:
        counts = count_report(report)
    except (FileNotFoundError, ET.ParseError):
        counts = Counts()
        if succeeded:
            counts.passed += 1  # a program of another kind than GoogleTest
    if not succeeded and counts.failed == 0:
        counts.fail(f"{name} (died or timed out)")
    return counts


def run_cpp(build_dir: Path, label: str | None, jobs: int) -> Counts:
    reports = build_dir / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    junit = reports / "ctest.junit"
    command = ["ctest", "--test-dir", str(build_dir), "--output-on-failure", "--no-tests=error"]
    command += ["--parallel", str(jobs), "--output-junit", str(junit)]
    if label:
        command += ["--label-regex", f"^{label}$"]
    environment = dict(os.environ, GTEST_OUTPUT=f"xml:{reports}/", GTEST_BRIEF="1", GTEST_COLOR="no")
    status = subprocess.run(command, env=environment, cwd=ROOT).returncode
    counts = Counts()
    if not junit.exists():
        counts.fail("ctest wrote no report")
        return counts
    for case in ET.parse(junit).iter("testcase"):
        name = str(case.get("name"))
        counts.add(count_program(name, case.get("status") == "run", reports / f"{name}.xml"))
    if status != 0 and counts.failed == 0:
        counts.fail("ctest failed")
    return counts


def run_pytest(name: str, arguments: list[str]) -> Counts:
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    status = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--durations=25", f"--junitxml={report}", *arguments],
        cwd=ROOT,
    ).returncode
    return count_program(name, status == 0, report)


def run_python(arguments: list[str]) -> Counts:
    """All tests: those that mind no company two files at a time, then the others. With arguments: one run."""
    if arguments:
        return run_pytest("pytest", arguments)
    side_by_side = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    counts = run_pytest("pytest-shared", [*side_by_side, *(f"--ignore={path}" for path in ALONE)])
    counts.add(run_pytest("pytest", ALONE))
    return counts


def finish(title: str, parts: dict[str, Counts]) -> int:
    total = Counts()
    for part in parts.values():
        total.add(part)
    if total.total == 0:
        total.fail("no test ran")
    print(f"\n{title}")
    for name, part in parts.items():
        print(f"  {name:<24} {part.line()}")
    for name in total.failures:
        print(f"  FAILED {name}")
    print(total.line(), flush=True)
    return 1 if total.failed else 0


def earlier_runs(names: list[str]) -> dict[str, Counts]:
    """The results of runs by name; a run that left none (its build failed, say) is one failure."""
    parts: dict[str, Counts] = {}
    for run in names:
        path = RESULTS / f"{run}.json"
        if not path.exists():
            parts[run] = Counts()
            parts[run].fail(f"{run}: it never came to its tests")
            continue
        for name, part in json.loads(path.read_text()).items():
            parts[f"{run}: {name}"] = Counts(**part)
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="test", help="name of this run among the results")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build" / "dev")
    parser.add_argument("--only", choices=["cpp", "python"])
    parser.add_argument("--label", help="only C++ tests with this label")
    parser.add_argument(
        "--jobs", type=int, default=max(2, (os.cpu_count() or 1) // 4), help="C++ programs at once"
    )
    parser.add_argument(
        "--sum", nargs="+", metavar="RUN", help="run nothing; add up the results of these runs"
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    arguments = parser.parse_args()

    parts: dict[str, Counts] = {}
    if arguments.sum:
        return finish("All runs", earlier_runs(arguments.sum))

    if arguments.only != "python":
        parts["C++"] = run_cpp(arguments.build_dir.resolve(), arguments.label, arguments.jobs)
    if arguments.only != "cpp":
        parts["Python"] = run_python(arguments.pytest)
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = {name: vars(part) for name, part in parts.items()}
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(result, indent=1))
    return finish(f"Results of {arguments.name}", parts)


if __name__ == "__main__":
    sys.exit(main())
