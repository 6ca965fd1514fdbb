"""`starling tune`: which plan for which size, measured here."""

from __future__ import annotations

from pathlib import Path

import typer

from starling import ir
from starling.lang.source import SourceError, plan_of
from starling.passes.command import errors_told
from starling.tune.measure import COLLECTIVES
from starling.tune.measure import tune as measured

app = typer.Typer(help=__doc__, add_completion=False)


@app.command()
def tune(
    sources: list[str] = typer.Argument(
        None, help="programs of your own that take part: file.py[:function], a plan's text, or MSCCL XML"
    ),
    output: Path = typer.Option(Path("starling_table.json"), "--output", "-o", help="the table"),
    ranks: int = typer.Option(4, "--ranks", "-n", min=1, help="threads that take part"),
    collectives: str = typer.Option(
        "", "--collectives", "-C", help=f"{', '.join(COLLECTIVES)}; default: those of SOURCES, or all"
    ),
    smallest: int = typer.Option(64, "--begin", "-b", min=1, help="bytes"),
    largest: int = typer.Option(1 << 22, "--end", "-e", help="bytes"),
    factor: int = typer.Option(8, "--factor", "-f", min=2, help="from one size to the next"),
    blocks: int = typer.Option(1, min=1, help="of each rank's daemon"),
    most: int = typer.Option(4, min=1, help="plans a size that the cost model lets through"),
    repetitions: int = typer.Option(15, min=1, help="measurements of a plan and size; the median counts"),
) -> None:
    """Prunes by the cost model, measures and checks the best few, and writes the table that every rank loads.

    Programs of your own are measured at every size.

    Exit codes: 0 done; 1 a program is wrong; 2 wrong options, or no file.
    """
    with errors_told():
        own = [plan_of(source, ranks, blocks=blocks) for source in sources or []]
        for plan in own:
            ir.verify(plan)
        names = [name.strip() for name in collectives.split(",") if name.strip()]
        names = list(dict.fromkeys([*names, *(plan.collective for plan in own)])) or list(COLLECTIVES)
        unknown = [name for name in names if name not in COLLECTIVES]
        if unknown:
            raise SourceError(f"cannot tune {', '.join(unknown)}; there are {', '.join(COLLECTIVES)}")
        if not output.absolute().parent.is_dir():
            raise SourceError(f"there is no folder {output.parent} for the table")
        sizes = [smallest]
        while sizes[-1] * factor <= largest:
            sizes.append(sizes[-1] * factor)
        table = measured(
            names, ranks, sizes, own=own, blocks=blocks, most=most, repetitions=repetitions, report=typer.echo
        )
        table.save(output)
        typer.echo(f"wrote {output}: {len(table.rows)} rows, {len(table.plans)} plans")
