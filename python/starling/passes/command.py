"""`starling compile`, `starling verify` and `starling draw`.

A SOURCE is a program of the library (all_reduce/ring), a file of Python (file.py, file.py:function), a plan as text, or
MSCCL XML.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from starling import ir
from starling.errors import StarlingError
from starling.ir.plan import MOST_TILE_BYTES, is_tile
from starling.lang.errors import ProgramError
from starling.lang.msccl_blocks import XmlError
from starling.lang.msccl_write import DIALECTS, write
from starling.lang.program import Program
from starling.lang.source import SourceError, is_plan, own_lines, plan_of, program_of
from starling.passes.compiler import PASSES, run_passes
from starling.write_whole import CannotWriteError, write_whole

compile_app = typer.Typer(help="Compile a program into a plan, prove it, and write it.", add_completion=False)
verify_app = typer.Typer(help="Judge a plan: structure, deadlock, races, result.", add_completion=False)
draw_app = typer.Typer(
    help="Draw a program's graph, or a plan's schedule, as SVG or PNG.", add_completion=False
)

SOURCE = typer.Argument(help="all_reduce/ring, file.py[:function], a plan's text, or MSCCL XML")
RANKS = typer.Option(None, "--ranks", "-n", help="of the program's function")
OPTION = typer.Option([], "--option", "-O", help="NAME=VALUE, of the program's function; again for more")
BLOCKS = typer.Option(None, help="blocks of a rank at most")
POLICY = typer.Option("channels", help="channels or connections: what shares a block")


class What(str, Enum):
    chunks = "chunks"
    graph = "graph"
    schedule = "schedule"


def _options(words: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SourceError(f"'{word}' should be NAME=VALUE")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def _program(source: str, ranks: int | None, option: list[str], instead: str) -> Program:
    """For what a plan does not have any more."""
    if is_plan(source):
        raise SourceError(f"{source} is a plan, which has no graph any more; {instead}")
    return program_of(source, ranks, _options(option))


@contextmanager
def errors_told() -> Iterator[None]:
    """One line instead of a traceback. 1: what was given is wrong; 2: options to change, or a file to put elsewhere."""
    try:
        yield
    except CannotWriteError as error:
        _fail(str(error), 2)
    except OSError as error:
        if isinstance(error, StarlingError):
            _fail(str(error), 1)
        what = f"open {error.filename}" if error.filename is not None else "read or write a file"
        _fail(f"cannot {what}: {error.strerror or error}", 2)
    except (ProgramError, StarlingError, ir.PlanTextError, XmlError) as error:
        _fail(str(error), 1)
    except (SourceError, ValueError, TypeError) as error:
        _fail(str(error), 2)


def _fail(text: str, code: int) -> None:
    typer.secho(text, fg="red", err=True)
    raise typer.Exit(code)


def _described(plan: ir.Plan, slots: int) -> str:
    blocks = max(len(rank.blocks) for rank in plan.ranks)
    steps = sum(len(block.instructions) for rank in plan.ranks for block in rank.blocks)
    unsaid = ""
    if plan.collective == "custom" and plan.postcondition is None:
        unsaid = "; what its outputs must hold was not proved: text of version 1 does not say; compile the program anew"
    most = ir.lane_slots()
    too_deep = ""
    if slots > most:
        too_deep = (
            f", but lanes have {most}, and no communicator takes it: compile its program with --slots {most}, or let "
            "ranks receive between the sends that cross"
        )
    return (
        f"{plan.name}: {plan.collective} over {plan.rank_count} ranks is right: {steps} instructions, at most {blocks} "
        f"blocks, {slots} slots needed{too_deep}{unsaid}"
    )


@compile_app.command()
def compile_(
    source: str = SOURCE,
    ranks: int | None = RANKS,
    option: list[str] = OPTION,
    blocks: int | None = BLOCKS,
    policy: str = POLICY,
    slots: int = typer.Option(2, min=1, help="messages under way on a connection at most"),
    fusion: bool = typer.Option(True, help="fuse instructions"),
    tile_bytes: int = typer.Option(
        0, help="of a chunk that go at once, at most, a multiple of 16; 0: what SOURCE says"
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="of the plan's text; .xml: MSCCL XML"),
    dialect: str | None = typer.Option(
        None, help=f"of MSCCL XML: {', '.join(DIALECTS)}; default: azure, for a collective of your own msccl"
    ),
    dump: str | None = typer.Option(None, help=f"print what a pass leaves behind: {', '.join(PASSES)}"),
) -> None:
    """Compiles SOURCE and proves the plan. Exit codes: 0 it is right; 1 it is not; 2 wrong options, or no such file."""
    with errors_told():
        if not is_tile(tile_bytes):
            raise SourceError(
                f"--tile-bytes is {tile_bytes}; use a multiple of 16 up to {MOST_TILE_BYTES}, or 0 for what SOURCE says"
            )
        if dump is not None:
            from starling.passes.dump import dump as dumped

            made = _program(source, ranks, option, "dump the passes of the program that it was made of")
            with own_lines(source):
                passes = run_passes(made, blocks=blocks, policy=policy, slots=slots, fusion=fusion)
            sys.stdout.write(dumped(passes, dump))
            return
        plan = plan_of(
            source,
            ranks,
            _options(option),
            verify=True,
            blocks=blocks,
            policy=policy,
            slots=slots,
            fusion=fusion,
        )
        plan.tile_bytes = tile_bytes or plan.tile_bytes
        described = _described(plan, ir.verify(plan))
        if output is None:
            sys.stdout.write(ir.to_text(plan))
        elif output.suffix == ".xml":
            write_whole(output, write(plan, dialect=dialect))
        else:
            write_whole(output, ir.to_text(plan))
        typer.echo(described, err=True)


@verify_app.command()
def verify(source: str = SOURCE, ranks: int | None = RANKS, option: list[str] = OPTION) -> None:
    """Says whether SOURCE is right and can run, or what is wrong. Exit codes: 0 both; 1 not; 2 options, or no file."""
    with errors_told():
        plan = plan_of(source, ranks, _options(option), verify=True)
        slots = ir.verify(plan)
        if slots > ir.lane_slots():
            _fail(_described(plan, slots), 1)
        typer.echo(_described(plan, slots))


@draw_app.command()
def draw(
    source: str = SOURCE,
    output: Path = typer.Option(..., "--output", "-o", help="a file ending in .svg or .png"),
    ranks: int | None = RANKS,
    option: list[str] = OPTION,
    what: What = typer.Option(
        What.schedule,
        help="chunks: what the program says; graph: of instructions; schedule: a timeline by the cost model",
    ),
    size: int = typer.Option(65536, min=1, max=1 << 24, help="bytes of a part, for the schedule"),
    blocks: int | None = BLOCKS,
    policy: str = POLICY,
) -> None:
    """Draws SOURCE."""
    from starling.passes.draw import draw_chunks, draw_graph, draw_schedule

    with errors_told():
        if what is not What.schedule:
            made = _program(source, ranks, option, "draw it with --what schedule")
            if what is What.chunks:
                draw_chunks(made, output)
            else:
                with own_lines(source):
                    passes = run_passes(made, blocks=blocks, policy=policy)
                draw_graph(passes, output)
        else:
            plan = plan_of(source, ranks, _options(option), blocks=blocks, policy=policy)
            if is_plan(source):
                ir.verify(plan)  # what is no plan has no schedule
            draw_schedule(plan, output, size)
        typer.echo(f"wrote {output}")
