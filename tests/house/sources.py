"""The files of the repository, as the checks of this folder read them."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("src", "include", "python", "tests", "bench", "examples", "scripts")
CPP_SUFFIXES = (".cc", ".h", ".cu", ".cuh")


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths from the root that git tracks and that exist; every file where there is no git (a source archive)."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        names = [name for name in listing.stdout.split("\0") if name]
    else:
        skipped = {"build", ".venv", ".git"}
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if not skipped & set(path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def code_files(*suffixes: str) -> list[str]:
    """Tracked source files with one of these suffixes, in the folders that hold code."""
    return [
        name
        for name in tracked_files()
        if name.split("/")[0] in CODE_FOLDERS and Path(name).suffix in suffixes
    ]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
