"""Subcommands that are imported when they are called."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import Any

import typer
import typer.core
import typer.main


@dataclass(frozen=True)
class Lazy:
    """A subcommand: where its typer app is, and its line in the overview."""

    target: str  # module:attribute
    help: str

    def exists(self) -> bool:
        """Whether its module is installed; imports the packages above it only."""
        try:
            return importlib.util.find_spec(self.target.partition(":")[0]) is not None
        except ModuleNotFoundError:
            return False


def make_group(commands: dict[str, Lazy]) -> type[typer.core.TyperGroup]:
    """A group class that knows `commands` beside those that are added to it."""

    class LazyGroup(typer.core.TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*commands, *(name for name in super().list_commands(ctx) if name not in commands)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """For the overview and for completion: the name and its line."""
            if cmd_name in commands:
                return typer.core.TyperCommand(cmd_name, help=commands[cmd_name].help)
            return super().get_command(ctx, cmd_name)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """For the call: the real one."""
            if args and args[0] in commands:
                return args[0], load(args[0], commands[args[0]]), args[1:]
            return super().resolve_command(ctx, args)

    return LazyGroup


# Whose distribution has another name.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "torch": "'torch>=2.11'"}


def is_foreign(error: ModuleNotFoundError) -> bool:
    """Whether a package is missing, and not a part of this one."""
    return error.name is not None and error.name.split(".")[0] != "starling"


def remedy_of(error: ModuleNotFoundError) -> str:
    """What is missing, and how to get it."""
    package = str(error.name).split(".")[0]
    return f"{package}: pip install {_DISTRIBUTIONS.get(package, package)}"


def need(*packages: str) -> None:
    """Raises for the first that is not installed; imports none."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load(name: str, lazy: Lazy) -> Any:
    """The subcommand; exits with 3 and the remedy if something it needs is not installed."""
    module, _, attribute = lazy.target.partition(":")
    try:
        app = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        typer.secho(f"starling {name} needs {remedy_of(error)}", fg="red", err=True)
        sys.exit(3)
    command = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    command.name = name
    return command
