"""Goal: the examples run as their opening comments say, and the public headers are C.

Method: the commands that stand in each example's head, with this installation's folders; gcc over each header.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import starling

MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMP_NUM_THREADS": "1",
}


def commands(example: Path) -> list[str]:
    """What the example's head tells to type."""
    head = re.match(r'/\*.*?\*/|""".*?"""', example.read_text(), re.S)
    assert head
    return re.findall(r"^[ *]*((?:g\+\+|mpirun|torchrun|python) .+)$", head.group(), re.M)


def run(command: str, folder: Path) -> str:
    if command.startswith("mpirun") and shutil.which("mpirun") is None:
        pytest.skip("no mpirun on this machine")
    here = Path(sys.executable).parent
    variables = {
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "INCLUDE": str(starling.include_dir()),
        "LIB": str(starling.library_path().parent),
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **MPI, **variables},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_all_reduce_in_c_plus_plus(repository_root: Path, tmp_path: Path) -> None:
    example = repository_root / "examples/all_reduce.cc"
    compile_it, run_it = commands(example)
    shutil.copy(example, tmp_path)
    run(compile_it, tmp_path)
    said = run(run_it, tmp_path)
    assert sorted(re.findall("rank . of 4: [0-9]+", said)) == [f"rank {rank} of 4: 10" for rank in range(4)]


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_all_reduce_in_python(repository_root: Path, launcher: str) -> None:
    (command,) = [
        one for one in commands(repository_root / "examples/all_reduce.py") if shlex.split(one)[0] == launcher
    ]
    said = run(command, repository_root)
    assert sorted(re.findall("rank . of 4: [0-9]+", said)) == [f"rank {rank} of 4: 10" for rank in range(4)]


def test_any_order(repository_root: Path) -> None:
    (command,) = commands(repository_root / "examples/any_order.py")
    said = run(command, repository_root)
    assert len(re.findall(r"rank \d: 320 all-reduces done, yielded \d+ times", said)) == 4


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")
@pytest.mark.parametrize("standard", ["c99", "c17"])
def test_the_public_headers_are_c(tmp_path: Path, standard: str) -> None:
    headers = sorted((starling.include_dir() / "starling").glob("*.h"))
    assert headers
    source = tmp_path / "use.c"
    source.write_text(
        "".join(f"#include <starling/{header.name}>\n" for header in headers)
        + "int main(void) { return 0; }\n"
    )
    warnings = ["-Wall", "-Wextra", "-Wstrict-prototypes", "-pedantic", "-Werror"]
    command = [
        "gcc",
        f"-std={standard}",
        *warnings,
        f"-I{starling.include_dir()}",
        "-fsyntax-only",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
