"""Goal: the adapter is built once, found again, and a failed build says what to do. Method: several processes start at
once over an empty cache with a recording compiler; a compiler that fails; an installation without sources."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from starling.torch import _adapter, _installation

BUILD = "from starling.torch import build; print(build())"


def fake_compiler(folder: Path, script: str) -> str:
    """A compiler that runs `script`; `$product` is what it was asked to write."""
    path = folder / "compiler"
    path.write_text(
        '#!/bin/bash\nif [ "$1" = --version ]; then echo fake 1.0; exit; fi\n'
        'while [ $# -gt 0 ]; do [ "$1" = -o ] && product=$2; shift; done\n' + script
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def start_build(tmp_path: Path, compiler: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": compiler}
    return subprocess.Popen(
        [sys.executable, "-c", BUILD],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ranks_that_start_together_build_once(tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path, f"echo run >> {tmp_path}/runs; sleep 1; echo product > $product")
    started = [start_build(tmp_path, compiler) for _ in range(3)]
    answers = [process.communicate(timeout=250) for process in started]
    assert all(process.returncode == 0 for process in started), answers
    assert len({out for out, _ in answers}) == 1
    assert (tmp_path / "runs").read_text().split() == ["run"]
    assert Path(answers[0][0].strip()).read_text() == "product\n"


def test_failed_build_shows_the_output_and_a_remedy(tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path, "echo 'fatal error: Python.h: No such file' >&2; exit 1")
    process = start_build(tmp_path, compiler)
    _, errors = process.communicate(timeout=250)
    assert process.returncode != 0
    assert "python3-dev" in errors
    assert "fatal error: Python.h" in errors
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_key_depends_on_sources_and_compiler(tmp_path: Path) -> None:
    installation = _installation.find_installation()
    command = _adapter._command(installation, "g++")
    key = _adapter._key(installation, command)
    assert key == _adapter._key(installation, command)
    assert key != _adapter._key(installation, [*command, "-O3"])
    changed = tmp_path / "sources"
    changed.mkdir()
    for path in [*installation.sources.glob("*.cc"), *installation.sources.glob("*.h")]:
        (changed / path.name).write_bytes(path.read_bytes())
    elsewhere = _installation.Installation(changed, installation.include, installation.library)
    assert key == _adapter._key(elsewhere, command)
    (changed / "lane.cc").write_text("// another")
    assert key != _adapter._key(elsewhere, command)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(_adapter.AdapterBuildError, match="install g"):
        _adapter._find_compiler()


def test_importing_compiles_nothing(tmp_path: Path) -> None:
    """`import starling.torch` is cheap: the first group builds."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    code = "import starling.torch, torch.distributed as dist; print(dist.Backend('starling'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=250, check=True
    )
    assert done.stdout.strip() == "starling"
    assert not list(tmp_path.rglob("*.so"))
