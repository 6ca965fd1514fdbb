"""``starling torch build``: compiles the PyTorch backend now, so that no training job has to."""

from __future__ import annotations

import typer

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `build` a subcommand, though it is the only one."""


@app.command()
def build() -> None:
    """Compile the adapter for the installed torch, unless it is in the cache; print where it is."""
    from starling.torch import build as build_adapter

    typer.echo(build_adapter(verbose=True))
