"""Goal: the command teaches, speaks JSON, ends with meaningful exit codes, and works without optional packages.

Method: the command as a user starts it (a process of its own), small sizes.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMANDS = [
    [],
    ["info"],
    ["bench"],
    ["bench", "disorder"],
    ["bench", "late-rank"],
    ["bench", "cq"],
    ["bench", "monitor"],
    ["bench", "choosing"],
    ["bench", "compile"],
    ["bench", "all"],
    ["bench", "tables"],
    ["bench", "floors"],
    ["demo"],
    ["demo", "train"],
    ["demo", "deadlock"],
    ["deadlock"],
    ["top"],
]


def starling(*arguments: str, timeout_s: float = 250, code: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `starling ARGUMENTS`; `code` is run before in the same Python."""
    program = f"{code}\nimport sys\nfrom starling.cli import main\nsys.argv[0] = 'starling'\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def starling_interrupted(
    *arguments: str, code: str, running: Path, bound_s: float = 250
) -> subprocess.CompletedProcess[str]:
    """As `starling`, with a Ctrl-C when the file `running` is there, which `code` sees to."""
    program = f"{code}\nimport sys\nfrom starling.cli import main\nsys.argv[0] = 'starling'\nmain()"
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            deadline = time.monotonic() + bound_s
            while not running.exists() and run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            output, errors = run.communicate(timeout=bound_s)
        finally:
            run.kill()
    return subprocess.CompletedProcess(command, run.returncode, output, errors)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_says_what_the_command_does(command: list[str]) -> None:
    done = starling(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert len(done.stdout.splitlines()) > 8


def test_the_overview_imports_no_subcommand() -> None:
    done = starling("--help", code="import sys; sys.modules['starling.bench.command'] = None")
    assert done.returncode == 0, done.stderr
    for name in ("bench", "demo", "deadlock", "info"):
        assert name in done.stdout


def test_a_missing_package_breaks_its_own_command_only() -> None:
    code = "import sys; sys.modules['rich'] = None; sys.modules['rich.console'] = None"
    missing = starling("demo", "train", code=code)
    assert missing.returncode == 3
    assert "pip install rich" in missing.stderr
    assert starling("info", code=code).returncode == 0


@pytest.mark.parametrize(
    ("command", "package", "remedy"),
    [
        (["demo", "train"], "torch", "pip install 'torch>=2.11'"),
        (["demo", "train"], "sklearn", "pip install scikit-learn"),
        (["torch", "build"], "torch", "pip install 'torch>=2.11'"),
    ],
    ids=["demo", "digits", "adapter"],
)
def test_a_command_without_its_package_says_which(command: list[str], package: str, remedy: str) -> None:
    missing = starling(*command, code=f"import sys; sys.modules[{package!r}] = None")
    assert missing.returncode == 3
    assert remedy in missing.stderr
    assert "Traceback" not in missing.stderr


def test_info_as_json() -> None:
    done = starling("info", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["library_found"] and Path(facts["library"]).is_file()
    assert facts["machine"]["cores"] >= 1
    blocks = next(row for row in json.loads(done.stdout)["settings"] if row["name"] == "STARLING_BLOCKS")
    assert blocks["type"] == "count"
    assert blocks["help"]


def test_info_measures_how_large_messages_go() -> None:
    done = starling("info", "--json", "--measure")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["large_messages"]
    assert set(found) == {"read", "slots_us", "read_us"}
    if found["read_us"] is not None:
        assert found["read"] == (found["read_us"] < found["slots_us"])
    told = starling("info", "--measure", code="import os; os.environ['STARLING_PULL'] = '1'")
    assert "messages between two processes are read where they lie" in told.stdout or not found["read_us"]
    refused = starling("info", "--measure", code="import os; os.environ['STARLING_PULL'] = '2'")
    assert refused.returncode == 0, refused.stderr
    assert "STARLING_PULL='2' is not valid" in refused.stdout


def test_version() -> None:
    import starling as package

    assert starling("--version").stdout.strip() == f"starling {package.__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "-C", "all_reduce_twice"], "unknown collective"),
        (["bench", "-o", "median"], "unknown reduction"),
        (["bench", "-d", "float31"], "unknown data type"),
        (["bench", "-n", "0"], "1 to 64"),
        (["bench", "-n", "2", "-r", "2"], "not a rank"),
        (["bench", "-b", "1M", "-e", "8"], "-b 1M"),
        (["bench", "--compare", "smoke-signals"], "unknown library"),
        (["bench", "--programs", "/nowhere"], "no program"),
        (["bench", "cq", "--capacity", "1000"], "power of two"),
        (["bench", "tables", "--page", "/nowhere"], "nowhere"),
        (["demo", "deadlock", "-n", "1"], "Invalid value"),
        (["no-such-command"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_end_with_2_and_say_why(arguments: list[str], words: str) -> None:
    done = starling(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
