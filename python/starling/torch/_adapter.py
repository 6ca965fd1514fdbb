"""Builds, caches and loads the compiled adapter.

``c10d::Backend`` is bound to one minor version of torch, so the adapter is compiled against the torch that is
there. A build is found again by a key over everything that went into it; ranks that start together build once.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import starling
from starling.torch._installation import Installation, find_installation

_MODULE_NAME = "starling_torch_adapter"
_BUILD_TIMEOUT_S = 600


class AdapterBuildError(RuntimeError):
    """The adapter could not be compiled; the text holds the compiler's output and the remedy."""


def build(*, verbose: bool = False) -> Path:
    """Compiles the adapter for this torch unless it is in the cache; returns the shared object.

    Safe to call from many processes at once.
    """
    installation = find_installation()
    compiler = _find_compiler()
    command = _command(installation, compiler)
    folder = _cache_folder() / _key(installation, command)
    product = folder / f"{_MODULE_NAME}.so"
    if product.is_file():
        return product
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AdapterBuildError(
            f"starling.torch: no folder for the compiled backend: {error}. Remedy: set XDG_CACHE_HOME to a "
            "folder that can be written."
        ) from error
    with _locked(folder / "lock"):
        if product.is_file():  # another rank was faster
            return product
        _compile(installation, command, product, verbose=verbose)
    return product


@functools.cache
def load() -> Any:
    """The adapter's module, built if needed."""
    product = build()
    loader = importlib.machinery.ExtensionFileLoader(_MODULE_NAME, str(product))
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, product, loader=loader)
    if spec is None:
        raise AdapterBuildError(
            f"starling.torch: {product} cannot be loaded; delete its folder to build it again"
        )
    module: ModuleType = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def loaded() -> bool:
    """Whether the adapter is in use by this process."""
    return load.cache_info().currsize > 0


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "starling" / "torch"


def _find_compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and shutil.which(shlex.split(name)[0]):
            return name
    raise AdapterBuildError(
        "starling.torch: the backend is compiled against the installed torch, and no C++ compiler was found. "
        "Remedy: install g++ 11 or newer (Debian: apt-get install g++), or set CXX."
    )


def _command(installation: Installation, compiler: str) -> list[str]:
    """Everything but the source and the product."""
    torch_root = Path(torch.__file__).resolve().parent
    includes = [
        torch_root / "include",
        torch_root / "include/torch/csrc/api/include",
        sysconfig.get_path("include"),
    ]
    return [
        *shlex.split(compiler),
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall"),
        f"-DTORCH_EXTENSION_NAME={_MODULE_NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{folder}" for folder in (installation.sources, installation.include)),
        *(f"-isystem{folder}" for folder in includes),
        *(f"-L{folder}" for folder in (installation.library.parent, torch_root / "lib")),
        f"-Wl,-rpath,{installation.library.parent}",
        "-Wl,--no-as-needed",
        *("-lstarling", "-lc10", "-ltorch_cpu", "-ltorch_python"),
    ]


def _sources(installation: Installation) -> list[Path]:
    return sorted(installation.sources.glob("*.cc"))


def _key(installation: Installation, command: list[str]) -> str:
    digest = hashlib.sha256()
    version = subprocess.run([*shlex.split(command[0]), "--version"], capture_output=True, check=False).stdout
    parts = [
        torch.__version__,
        starling.__version__,
        sysconfig.get_config_var("SOABI") or sys.version,
        *command,
    ]
    digest.update("\0".join(map(str, parts)).encode() + version)
    headers = [*sorted(installation.sources.glob("*.h")), installation.include / "starling/starling.h"]
    for path in [*_sources(installation), *headers]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the kernel frees the lock of one that dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(installation: Installation, command: list[str], product: Path, *, verbose: bool) -> None:
    # One translation unit: torch's headers are most of the work, and are read once.
    unit = product.with_suffix(".cc")
    unit.write_text("".join(f'#include "{path}"\n' for path in _sources(installation)))
    unfinished = product.with_suffix(f".{os.getpid()}.tmp")
    # Libraries come last on the line, behind what needs them.
    first_library = next(i for i, word in enumerate(command) if word.startswith("-Wl,"))
    line = [*command[:first_library], str(unit), "-o", str(unfinished), *command[first_library:]]
    print(
        f"starling: compiling the backend for torch {torch.__version__} (once; about half a minute)",
        file=sys.stderr,
    )
    started = time.monotonic()
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise AdapterBuildError(
            f"starling.torch: the compiler ran longer than {_BUILD_TIMEOUT_S} s"
        ) from None
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise AdapterBuildError(_failure(line, done.stderr))
    unfinished.replace(product)
    if verbose:
        print(f"starling: compiled {product} in {time.monotonic() - started:.0f} s", file=sys.stderr)


def _failure(line: list[str], output: str) -> str:
    if "Python.h" in output:
        remedy = "install the headers of this Python (Debian: apt-get install python3-dev)"
    elif "unrecognized" in output and "c++20" in output:
        remedy = "use g++ 11 or newer: set CXX to it"
    elif "No space left" in output or "Permission denied" in output:
        remedy = f"make {_cache_folder()} writable, or set XDG_CACHE_HOME to a folder with space"
    else:
        remedy = (
            f"torch {torch.__version__} may be newer than this version of starling; update starling-ccl, or "
            "report this output"
        )
    return (
        f"starling.torch: compiling the backend for torch {torch.__version__} failed.\nRemedy: {remedy}.\n"
        f"Command: {shlex.join(line)}\n{output[-8000:]}"
    )
