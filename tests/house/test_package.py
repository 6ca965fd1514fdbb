"""Goal: the installed package is whole: version, library, public header, and the library exports nothing foreign.

Method: import what `pip install` put there (not the source tree) and look at its files and its symbol table.
"""

import ctypes
import re
import subprocess
from importlib.metadata import version

import starling


def test_the_version_is_the_distribution_s() -> None:
    assert starling.__version__ == version("starling-ccl")


def test_library_loads_and_headers_are_there() -> None:
    assert starling.library_path().is_file(), f"no {starling.library_path()}; run `make build`"
    ctypes.CDLL(str(starling.library_path()))
    assert (starling.include_dir() / "starling" / "starling.h").is_file()


def test_exports_are_the_c_api_and_namespace_starling_only() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(starling.library_path())],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    foreign = [name for name in names if not re.match(r"starling_|_Z.*8starling", name)]
    assert names and not foreign, foreign
