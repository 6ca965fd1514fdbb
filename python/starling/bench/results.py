"""Result files: what was measured, by which command and commit, on which machine, when."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import starling
from starling.write_whole import write_whole

SCHEMA = 1


def document(
    benchmark: str, settings: dict[str, Any], rows: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """The JSON document of one benchmark run."""
    return {
        "schema": SCHEMA,
        "benchmark": benchmark,
        **origin(),
        "version": starling.__version__,
        "settings": settings,
        **more,
        "rows": rows,
    }


def origin() -> dict[str, Any]:
    """By what, where and when something is measured."""
    return {
        "command": command(),
        "environment": environment(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
    }


def command() -> str:
    """What was typed: a script by its name in the repository, or ``starling``."""
    script = Path(sys.argv[0])
    known = [folder for folder in ("bench", "tests", "scripts") if folder in script.absolute().parent.parts]
    if script.suffix != ".py" or script.name == "__main__.py" or not known:
        return shlex.join(["starling", *sys.argv[1:]])
    parts = script.absolute().parts
    at = max(len(parts) - 1 - parts[::-1].index(folder) for folder in known)
    return shlex.join(["python", *["/".join(parts[at:])], *sys.argv[1:]])


def environment() -> dict[str, str]:
    """What of the environment changes how libraries run; of files their names alone."""
    ours = {name for name in os.environ if name.startswith(("STARLING_", "NCCL_"))}
    ours.discard("NCCL_VERSION")  # what images say of themselves: no setting, and not what PyTorch carries
    ours |= {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_VISIBLE_DEVICES",
        "RANKS_PER_GPU",
    } & set(os.environ)
    return {name: os.environ[name].rsplit("/", 1)[-1] for name in sorted(ours)}


def write(path: Path, doc: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(doc, indent=1) + "\n")


def commit() -> str:
    """The commit of the clone we run in, marked if files differ from it; "" outside a clone."""
    found = _git("rev-parse", "--short=12", "HEAD")
    if not found:
        return ""
    return found + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "torch": _version_of("torch"),
        "openmpi": _openmpi_version(),
        **({"gpus": gpus} if (gpus := _gpus()) else {}),
    }


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return found[1] if found else platform.machine()


def _gpus() -> str:
    """As "2 x NVIDIA H200, driver 580.0"; "" without GPUs."""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        text = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    lines = text.strip().splitlines()
    if not lines:
        return ""
    name, _, driver = lines[0].partition(", ")
    return f"{len(lines)} x {name}, driver {driver}"


def _version_of(distribution: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _openmpi_version() -> str:
    try:
        text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""
    found = re.search(r"\(Open MPI\) (\S+)", text)
    return found[1] if found else ""
