"""`starling topo`: hosts, GPUs, ports and NUMA nodes, and the rings that stay on their rails."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from starling.topo.draw import picture, tree_of
from starling.topo.machine import read_hwloc, read_sysfs
from starling.topo.model import Cluster, Host, TopologyError, distance, read_cluster
from starling.topo.rings import Ring, in_leaf_order, rings_of

app = typer.Typer(add_completion=False)
PICTURES = (".svg", ".png")


@app.command()
def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Topologies as --json writes them, or hwloc's XML (.xml): one a host, or several."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which this command reads too.")
    ] = False,
    draw: Annotated[Path | None, typer.Option(help="Draw a picture there: .svg or .png.")] = None,
    alike: Annotated[
        bool, typer.Option("--alike", help="Rings that pass all hosts alike, to compare with.")
    ] = False,
    root: Annotated[Path, typer.Option(hidden=True)] = Path("/"),
) -> None:
    """Show what is in this host, or in those of the files, and the rings over their GPUs.

    Rings enter and leave each host on one rail; hosts are ordered by their leaf switches. Exit codes: 0, 2 wrong usage.
    """
    try:
        cluster = _read(files or [], root)
        if draw is not None and draw.suffix not in PICTURES:
            raise TopologyError(f"{draw}: a picture is one of {', '.join(PICTURES)}")
        rings = _rings(cluster, alike)
        if draw is not None:
            picture(cluster, rings, draw)
    except (OSError, TopologyError) as error:
        typer.secho(f"starling topo: {error}", fg="red", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(_told(cluster, rings), indent=1))
    else:
        Console(highlight=False).print(tree_of(cluster, rings), soft_wrap=True)


def _read(files: list[Path], root: Path) -> Cluster:
    if not files:
        return Cluster((read_sysfs(root),), "this host")
    hosts: list[Host] = []
    for file in files:
        hosts += [read_hwloc(file)] if file.suffix == ".xml" else read_cluster(file).hosts
    twice = {host.name for host in hosts if [one.name for one in hosts].count(host.name) > 1}
    if twice:
        raise TopologyError(f"hosts in more than one file: {', '.join(sorted(twice))}")
    return Cluster(tuple(in_leaf_order(hosts)), ", ".join(map(str, files)))


def _rings(cluster: Cluster, alike: bool) -> list[Ring]:
    """None where hosts have no GPUs, or not equally many."""
    try:
        return rings_of(cluster.hosts, alternating=not alike)
    except ValueError:
        return []


def _told(cluster: Cluster, rings: list[Ring]) -> dict[str, Any]:
    rails = {
        host.name: [
            {
                "gpu": gpu.name,
                "nic": nic.name if nic else None,
                "distance": distance(gpu, nic) if nic else None,
            }
            for gpu, nic in host.rails()
        ]
        for host in cluster.hosts
    }
    told = [{**asdict(ring), "crossing": sum(hop.crosses for hop in ring.hops)} for ring in rings]
    return {**cluster.as_json(), "rails": rails, "rings": told}
