"""Options and habits that the benchmark commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .results import write

BUSY = 0.5  # threads a core that want to run, on average over a minute

Programs = Annotated[
    Path | None, typer.Option("--programs", help="folder of the compiled programs", show_default=False)
]
Json = Annotated[
    Path | None, typer.Option("--json", help="write the results here; - prints JSON and nothing else")
]


def refuse(reason: object, code: int = 2) -> NoReturn:
    """Ends the command: 2 for what the caller must change, 1 for a measurement that failed."""
    typer.secho(f"refused: {reason}" if code == 2 else f"failed: {reason}", fg="red", err=True)
    raise typer.Exit(code)


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def finish(doc: dict[str, Any], json_path: Path | None) -> None:
    """Writes or prints the document."""
    if json_path is None:
        return
    if str(json_path) == "-":
        typer.echo(json.dumps(doc, indent=1))
    else:
        write(json_path, doc)


def speaker(json_path: Path | None) -> Callable[[str], None]:
    """Prints lines as they come, unless standard output belongs to the JSON. Says first if the machine is busy."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > BUSY * cores:
        typer.echo(
            f"note: in the last minute {load:.1f} threads wanted the {cores} cores of this process; "
            "beside other programs figures are too high, and differ: measure again when they have ended",
            err=True,
        )

    def say(text: str) -> None:
        if str(json_path) != "-":
            typer.echo(text)

    return say
