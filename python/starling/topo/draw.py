"""A topology as a tree in the terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.tree import Tree

from starling.topo.model import Cluster, Device, Host, distance
from starling.topo.rings import Ring
from starling.write_whole import whole

_COLORS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#666666")
_CROSSES = "#d00000"


def tree_of(cluster: Cluster, rings: Sequence[Ring]) -> Tree:
    """Hosts, their NUMA nodes, and in them the devices; each GPU with its rail."""
    top = Tree(
        f"[bold]{len(cluster.hosts)} host{'s' if len(cluster.hosts) != 1 else ''}[/] ({escape(cluster.source)})"
    )
    for host in cluster.hosts:
        branch = top.add(f"[bold]{escape(host.name)}[/]")
        numbers = [node.number for node in host.nodes]
        for node in host.nodes:
            memory = f", {node.memory_bytes / 2**30:.0f} GiB" if node.memory_bytes else ""
            inside = branch.add(f"NUMA node {node.number}: cores {node.cores or '?'}{memory}")
            # Where there is one node, what does not know its own is in it.
            own = [
                d
                for d in host.devices
                if d.numa == node.number or (len(numbers) == 1 and d.numa not in numbers)
            ]
            _add(inside, host, own)
        rest = [d for d in host.devices if len(numbers) != 1 and d.numa not in numbers]
        if rest:
            _add(branch.add("on no known NUMA node"), host, rest)
    for ring in rings:
        top.add(escape(ring_line(ring)))
    return top


def _add(branch: Tree, host: Host, devices: Sequence[Device]) -> None:
    rails = {gpu.name: nic for gpu, nic in host.rails()}
    for device in devices:
        text = f"{device.name} {device.pci}".rstrip()
        nic = rails.get(device.name)
        if device.kind == "gpu" and nic is not None:
            text += f" ─ {nic.name} ({distance(device, nic)})"
        if device.kind == "nic":
            text += f" {device.speed_mbps / 1000:g} Gb/s" if device.speed_mbps else ""
            text += "" if device.up else " down"
            text += f" → {device.leaf}" if device.leaf else ""
        branch.add(escape(text))


def ring_line(ring: Ring) -> str:
    """ring 0: a[0 1] ─1─ b[1 0] ─0─: hosts with their GPUs in order, and the rail between them."""
    parts: list[str] = []
    at = 0
    hops = list(ring.hops)
    while at < len(ring.members):
        host = ring.members[at][0]
        gpus = [gpu for name, gpu in ring.members if name == host]
        at += len(gpus)
        parts.append(f"{host}[{' '.join(map(str, gpus))}]")
        if hops:
            hop = hops.pop(0)
            rails = f"{hop.source_rail}" if not hop.crosses else f"{hop.source_rail}✕{hop.destination_rail}"
            parts.append(f"─{rails}─")
    return f"ring {ring.channel}: " + " ".join(parts)


def picture(cluster: Cluster, rings: Sequence[Ring], path: Path) -> None:
    """Hosts as columns, GPUs as rows, rings as lines between them; red: a hop that leaves its rail. SVG or PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    rows = max((len(host.gpus) or len(host.nics) for host in cluster.hosts), default=1) or 1
    figure = Figure(figsize=(2.2 * len(cluster.hosts) + 1, 0.7 * rows + 1.6))
    axes = figure.add_subplot()
    places = {host.name: column for column, host in enumerate(cluster.hosts)}
    for host, column in places.items():
        axes.add_patch(Rectangle((column - 0.3, -0.6), 0.6, rows + 0.2, fill=False, edgecolor="#888888"))
        axes.text(column, -0.8, host, ha="center", va="bottom", fontsize=10, weight="bold")
    for host_ in cluster.hosts:
        ports = {gpu.name: nic for gpu, nic in host_.rails()}
        for row, device in enumerate(host_.gpus or host_.nics):
            nic = ports.get(device.name)
            label = device.name + (f"\n{nic.name}{f' {nic.leaf}' if nic.leaf else ''}" if nic else "")
            axes.text(places[host_.name], row, label, ha="center", va="center", fontsize=8)
    for ring in rings:
        shift = (ring.channel - (len(rings) - 1) / 2) * 0.06
        for hop in ring.hops:
            begin, end = places[hop.source], places[hop.destination]
            color = _CROSSES if hop.crosses else _COLORS[ring.channel % len(_COLORS)]
            back = end < begin
            axes.annotate(
                "",
                xy=(end + (0.3 if back else -0.3), hop.destination_rail + shift),
                xytext=(begin + (-0.3 if back else 0.3), hop.source_rail + shift),
                arrowprops={
                    "arrowstyle": "->",
                    "color": color,
                    "connectionstyle": f"arc3,rad={0.25 if back and begin - end > 1 else 0}",
                },
            )
    axes.set_xlim(-0.7, max(len(places) - 0.3, 0.7))
    axes.set_ylim(rows, -1.3)
    axes.axis("off")
    figure.tight_layout()
    with whole(path) as draft:
        figure.savefig(draft)
