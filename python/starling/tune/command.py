"""`starling tune`: which plan for which size, measured here."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help=__doc__, add_completion=False)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@app.command()
def tune(
    output: Path = typer.Option(Path("starling_table.json"), "--output", "-o", help="the table"),
    ranks: int = typer.Option(4, "--ranks", "-n", help="threads that take part"),
    collectives: str = typer.Option(",".join(COLLECTIVES), "--collectives", "-C"),
    smallest: int = typer.Option(64, "--begin", "-b", help="bytes"),
    largest: int = typer.Option(1 << 22, "--end", "-e", help="bytes"),
    factor: int = typer.Option(8, "--factor", "-f", help="from one size to the next"),
    blocks: int = typer.Option(1, help="of each rank's daemon"),
    most: int = typer.Option(4, help="plans a size that the cost model lets through"),
    repetitions: int = typer.Option(15),
) -> None:
    """Prunes by the cost model, measures and checks the best few, and writes the table that every rank loads."""
    from starling.tune.measure import tune as measured

    names = [name.strip() for name in collectives.split(",")]
    unknown = [name for name in names if name not in COLLECTIVES]
    if unknown or factor < 2 or smallest < 1:
        typer.secho(
            f"cannot tune {', '.join(unknown) or 'these sizes'}; there are {', '.join(COLLECTIVES)}",
            fg="red",
            err=True,
        )
        raise typer.Exit(2)
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    table = measured(
        names, ranks, sizes, blocks=blocks, most=most, repetitions=repetitions, report=typer.echo
    )
    table.save(output)
    typer.echo(f"wrote {output}: {len(table.rows)} rows, {len(table.plans)} plans")
