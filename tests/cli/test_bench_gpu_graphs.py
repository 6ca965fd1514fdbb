"""Goal: the ranks of a measurement on GPUs are watched and ended, and what they report of graphs is joined.

Method: small programs in the ranks' place; reports as ranks write them.
"""

import json
import sys
import time
from pathlib import Path

import pytest

from starling.bench import gpu_graphs, gpu_processes

RANK = "import sys; rank = int(sys.argv[2])\n"


def run(folder: Path, program: str, timeout_s: float = 30) -> str:
    return gpu_processes.run([sys.executable, "-c", RANK + program], 2, folder, timeout_s, lambda: None)


def test_ranks_that_succeed(tmp_path: Path) -> None:
    assert run(tmp_path, "") == ""


def test_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    begin = time.monotonic()
    failure = run(
        tmp_path,
        "import time\nif rank: sys.exit('no room')\nelse: print('first', flush=True), time.sleep(60)",
    )
    assert "rank 1: no room" in failure and time.monotonic() - begin < 20


def test_ranks_that_hang_are_ended(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert "exit codes [None, None]" in run(tmp_path, "import time; time.sleep(60)", 2)
    assert time.monotonic() - begin < 20


def test_reports_are_joined(tmp_path: Path) -> None:
    def reported(us: float, wrong: int) -> str:
        numbers = dict.fromkeys(gpu_graphs.NUMBERS, us)
        return json.dumps({"library": "starling", "bytes": 8, **numbers, "wrong": wrong}) + "\n"

    (tmp_path / "results.0").write_text(reported(4, 1) + reported(5, 0))
    (tmp_path / "results.1").write_text(reported(6, 2) + reported(5, 0)[:20])  # not written to its end
    rows = gpu_graphs.merged(tmp_path, 2)
    assert [(row["graph_us"], row["wrong"]) for row in rows] == [(5, 3)]
    assert "5.0" in gpu_graphs.line(rows[0]) and gpu_graphs.line(rows[0]).endswith("| 3")


@pytest.mark.parametrize("size", ("6", "10"))
def test_sizes_of_no_whole_elements_are_refused(size: str) -> None:
    from typer.testing import CliRunner

    from starling.cli.root import app

    result = CliRunner().invoke(app, ["bench", "gpu-graphs", "--sizes", size])
    assert result.exit_code == 2
