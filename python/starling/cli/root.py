"""Collective communication whose collectives yield: no order of calls can deadlock it.

Try: starling demo train, starling demo deadlock, starling bench -n 2, starling info.

Exit codes: 0 done; 1 something measured, checked or run came out wrong; 2 wrong options; 3 a package is missing
(of diagnose, whose --help says more: too little is known).
"""

from __future__ import annotations

import errno
import sys

import typer

import starling
from starling.cli.info import info
from starling.cli.lazy import Lazy, is_foreign, make_group, remedy_of
from starling.write_whole import CannotWriteError

COMMANDS = {
    "demo": Lazy("starling.demo.command:app", "Train a model, or survive a deadlock, in front of your eyes."),
    "bench": Lazy(
        "starling.bench.command:app", "Measure, with nccl-tests' columns, beside gloo and Open MPI."
    ),
    "deadlock": Lazy(
        "starling.deadlock.command:app", "How likely a training job is to deadlock without yielding."
    ),
    "soak": Lazy(
        "starling.sim.command:app", "Run the core in the simulator, under seeds, for as long as you like."
    ),
    "top": Lazy("starling.monitor.command:app", "Watch the ranks of this host: lanes, collectives, paths."),
    "torch": Lazy("starling.cli.torch_adapter:app", "Build the PyTorch backend ahead of its first use."),
    "compile": Lazy("starling.passes.command:compile_app", "Compile a program of the language into a plan."),
    "verify": Lazy("starling.passes.command:verify_app", "Judge a plan: structure, deadlock, races, result."),
    "draw": Lazy("starling.passes.command:draw_app", "Draw a program's graph, or a plan's schedule."),
    "diagnose": Lazy(
        "starling.diagnose.command:app", "Say who holds a job up: during a hang, and after a crash."
    ),
    "topo": Lazy(
        "starling.topo.command:app",
        "Show hosts, GPUs, ports and NUMA nodes, and rings that stay on their rails.",
    ),
    "tune": Lazy(
        "starling.tune.command:app", "Measure plans on this machine, and write the table of choices."
    ),
}
_there = {name: command for name, command in COMMANDS.items() if command.exists()}

app = typer.Typer(help=__doc__, no_args_is_help=True, cls=make_group(_there))
app.command()(info)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"starling {starling.__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


# A full disk, a file that may not be written, or is not there: no traceback helps.
_OF_FILES = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EISDIR,
    errno.ENOTDIR,
}  # fmt: skip


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except CannotWriteError as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        typer.secho(f"this needs {remedy_of(error)}", fg="red", err=True)
        sys.exit(3)
    except OSError as error:
        if error.errno not in _OF_FILES:
            raise
        where = f"{error.filename}: " if error.filename else ""
        typer.secho(f"{where}{error.strerror or error}", fg="red", err=True)
        sys.exit(1)
