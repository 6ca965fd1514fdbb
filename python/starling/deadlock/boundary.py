"""Where the command ends: what a user can mend becomes one line and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

from .configuration import ConfigurationError

screen = Console(stderr=True)  # progress and refusals; what was asked for goes to standard output


def refuse(error: Exception) -> NoReturn:
    """Says why, and exits with 2."""
    screen.print(f"[red]refused:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


class Boundary(typer.core.TyperGroup):
    """Commands whose refusals, full disks, closed pipes and interruptions end in words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            refuse(error)
        except BrokenPipeError:
            # The reader has seen enough. Python would complain again when it flushes what is left.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            where = error.filename or "the results"
            screen.print(f"[red]cannot write[/] {escape(str(where))}: {error.strerror}", highlight=False)
            screen.print("free some space, or choose another place", highlight=False)
            _forget_output()
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            screen.print("interrupted", highlight=False)
            raise typer.Exit(130) from None


def _forget_output() -> None:
    """What standard output did not take must not be tried again at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
