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


def load(name: str, lazy: Lazy) -> Any:
    """The subcommand; exits with 3 and the remedy if something it needs is not installed."""
    module, _, attribute = lazy.target.partition(":")
    try:
        app = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "starling":
            raise
        typer.secho(f"starling {name} needs {error.name}: pip install {error.name}", fg="red", err=True)
        sys.exit(3)
    command = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    command.name = name
    return command
