"""Goal: a full disk costs no result that was there before, and is told in one line. Method: a limit of the size of
files stands for the full disk."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from starling.write_whole import write_whole

TABLES = """
import resource, sys
from starling.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
sys.argv = ["starling", "bench", "tables", "--page", sys.argv[1], "--results", sys.argv[2]]
main()
"""


COMMAND = """
import resource, sys
from starling.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
sys.argv = ["starling", *sys.argv[1:]]
main()
"""


def no_room(path: Path) -> str:
    return f"cannot write {path}: File too large; lift the limit on the size of files (ulimit -f unlimited)"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")
    path.chmod(0o600)
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link"
    link.symlink_to(path)
    write_whole(link, "newer")
    assert link.is_symlink()
    assert path.read_text() == "newer"
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_what_is_no_file_is_written_to() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from starling.write_whole import *; write_whole('/proc/self/fd/1', 'text')"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "text"


def test_without_room_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match=r"result\.json"):
            write_whole(path, "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_command_without_room_says_so_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    old = "x" * 1000 + "\n<!-- bench -->\nold\n<!-- /bench -->\n"
    path.write_text(old)
    done = subprocess.run(
        [sys.executable, "-c", TABLES, str(path), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == no_room(path)
    assert path.read_text() == old


@pytest.mark.parametrize("words", [("compile", "plan.txt"), ("compile", "plan.xml"), ("draw", "plan.svg")])
def test_a_plan_without_room_is_told_and_left_out(tmp_path: Path, words: tuple[str, str]) -> None:
    command, name = words
    options = ["--policy", "connections"] if name == "plan.xml" else []
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            COMMAND,
            command,
            "all_reduce/ring",
            "-n",
            "2",
            *options,
            "-o",
            str(tmp_path / name),
        ],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.strip().endswith(no_room(tmp_path / name)), done.stderr
    assert list(tmp_path.iterdir()) == []
