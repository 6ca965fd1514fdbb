"""`starling info`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

import starling


def _distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _settings() -> list[dict[str, str]]:
    """The table of environment settings, from the library."""
    from starling import _core

    return [{**row, "value": os.environ.get(row["name"], "")} for row in _core.settings_table()]


def _facts() -> dict[str, Any]:
    library = starling.library_path()
    return {
        "version": starling.__version__,
        "library": str(library),
        "library_found": library.is_file(),
        "headers": str(starling.include_dir()),
        "cuda": _cuda(library),
        "plans": sorted(
            path.stem
            for path in (Path(starling.__file__).parent / "plans").glob("*.*")
            if not path.stem.startswith("_")
        ),
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)),
            "shared_memory_free_mib": _shared_memory_free_mib(),
        },
        "python": platform.python_version(),
        "packages": {name: _distribution(name) for name in ("torch", "numpy", "mpi4py", "scikit-learn")},
        "settings": _settings(),
    }


def _cuda(library: Path) -> dict[str, Any]:
    """The CUDA part, "" if there is none, and the GPUs that this process sees."""
    from starling.bench.gpu_devices import visible

    part = library.with_name("libstarling_cuda.so")
    gpus, why = visible()
    return {"library": str(part) if part.is_file() else "", "gpus": gpus, "why_none": why}


def _shared_memory_free_mib() -> int:
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return space.f_bavail * space.f_frsize // 2**20


_JOIN = """
import json, starling
with starling.Communicator(timeout=30) as comm:
    print(json.dumps(vars(comm.large_messages)))
"""


def _large_messages() -> dict[str, Any]:
    """How they go between two processes of this machine, as these find it when they join."""
    job = str(uuid.uuid4())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _JOIN],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "STARLING_JOB": job},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate() for rank in ranks]
    if any(rank.returncode for rank in ranks):
        return {"error": (said[0][1] or said[1][1]).strip().splitlines()[-1]}
    return dict(json.loads(said[0][0]))


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    measure: Annotated[
        bool, typer.Option(help="Start two processes and time how large messages go between them.")
    ] = False,
) -> None:
    """Print the version, what is installed where, the machine, and the settings."""
    facts = _facts()
    if measure:
        facts["large_messages"] = _large_messages()
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        _print(facts)
    if not facts["library_found"]:
        typer.secho("the library is missing: build and install the package (make build)", fg="red", err=True)
        raise typer.Exit(1)


def _text_of(found: dict[str, Any]) -> str:
    if "error" in found:
        return f"messages: two processes could not join: {found['error']}"
    way = "are read where they lie" if found["read"] else "go through slots"
    if found["read_us"] is None:
        return f"messages between two processes {way}; nothing was timed"
    return (
        f"messages between two processes {way}: an all_gather of 512 KiB takes {found['slots_us']:.0f} us "
        f"through slots, {found['read_us']:.0f} us read"
    )


def _print(facts: dict[str, Any]) -> None:
    machine = facts["machine"]
    typer.echo(f"starling {facts['version']}")
    typer.echo(f"library  {facts['library']}")
    typer.echo(f"headers  {facts['headers']}")
    cuda = facts["cuda"]
    gpus = cuda["why_none"] or f"{cuda['gpus']} GPUs"
    typer.echo(f"cuda     {cuda['library'] or 'not built (make build-gpu)'}; {gpus}")
    typer.echo(
        f"machine  {machine['system']}, {machine['cores']} cores, "
        f"{machine['shared_memory_free_mib']} MiB free in /dev/shm"
    )
    if "large_messages" in facts:
        typer.echo(f"large    {_text_of(facts['large_messages'])}")
    typer.echo(f"python   {facts['python']}")
    for name, version in facts["packages"].items():
        typer.echo(f"{name:<8} {version or 'not installed'}")
    if facts["plans"]:
        typer.echo(f"plans    {', '.join(facts['plans'])}")
    if facts["settings"]:
        typer.echo("settings (environment; a value that is set stands last)")
        for row in facts["settings"]:
            value = f" = {row['value']}" if row["value"] else ""
            typer.echo(
                f"  {row['name']:<22} {row['type']}, default {row['default'] or 'none'}: {row['help']}{value}"
            )
