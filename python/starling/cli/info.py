"""`starling info`."""

from __future__ import annotations

import json
import os
import platform
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
        "plans": sorted(path.stem for path in (Path(starling.__file__).parent / "plans").glob("*.*")),
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)),
            "shared_memory_free_mib": _shared_memory_free_mib(),
        },
        "python": platform.python_version(),
        "packages": {name: _distribution(name) for name in ("torch", "numpy", "mpi4py", "scikit-learn")},
        "settings": _settings(),
    }


def _shared_memory_free_mib() -> int:
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return space.f_bavail * space.f_frsize // 2**20


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the version, what is installed where, the machine, and the settings."""
    facts = _facts()
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        _print(facts)
    if not facts["library_found"]:
        typer.secho("the library is missing: build and install the package (make build)", fg="red", err=True)
        raise typer.Exit(1)


def _print(facts: dict[str, Any]) -> None:
    machine = facts["machine"]
    typer.echo(f"starling {facts['version']}")
    typer.echo(f"library  {facts['library']}")
    typer.echo(f"headers  {facts['headers']}")
    typer.echo(
        f"machine  {machine['system']}, {machine['cores']} cores, "
        f"{machine['shared_memory_free_mib']} MiB free in /dev/shm"
    )
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
