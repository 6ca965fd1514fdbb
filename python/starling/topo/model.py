"""A host and what is in it; several of them; and the file that can say it instead of the machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# From near to far, as nvidia-smi names them: one switch, several switches, one NUMA node, across nodes.
DISTANCES = ("PIX", "PXB", "NODE", "SYS")


class TopologyError(ValueError):
    """A file that does not say a topology; the text names the place."""


@dataclass(frozen=True)
class Device:
    kind: str  # gpu, nic
    name: str
    numa: int = -1  # -1: not known
    pci: str = ""  # 0000:17:00.0
    path: tuple[str, ...] = ()  # of bridges above it, from the root down
    leaf: str = ""  # of a port: the switch at the other end
    up: bool = True
    speed_mbps: int = 0  # of a port; 0: not known
    ports: tuple[str, ...] = ()  # of a GPU: those of its links, the preferred one first; none: the nearest


@dataclass(frozen=True)
class Node:
    """A NUMA node."""

    number: int
    cores: str = ""  # 0-3,8
    memory_bytes: int = 0


@dataclass(frozen=True)
class Host:
    name: str
    nodes: tuple[Node, ...] = ()
    devices: tuple[Device, ...] = ()

    @property
    def gpus(self) -> list[Device]:
        return [device for device in self.devices if device.kind == "gpu"]

    @property
    def nics(self) -> list[Device]:
        return [device for device in self.devices if device.kind == "nic"]

    def rails(self) -> list[tuple[Device, Device | None]]:
        """Each GPU with the port that it sends through: the first of its own that is up, or else the nearest; of
        equally near ones that with the fewest GPUs."""
        used: dict[str, int] = {}
        rails: list[tuple[Device, Device | None]] = []
        ports = [nic for nic in self.nics if nic.up]
        for gpu in self.gpus:
            if gpu.ports:
                own = [nic for nic in ports if nic.name in gpu.ports]
                nearest = min(own, key=lambda nic: gpu.ports.index(nic.name), default=None)
            else:
                nearest = min(
                    ports,
                    key=lambda nic: (DISTANCES.index(distance(gpu, nic)), used.get(nic.name, 0)),
                    default=None,
                )
            if nearest is not None:
                used[nearest.name] = used.get(nearest.name, 0) + 1
            rails.append((gpu, nearest))
        return rails


@dataclass(frozen=True)
class Cluster:
    hosts: tuple[Host, ...]
    source: str = field(default="", compare=False)

    def as_json(self) -> dict[str, Any]:
        return {"hosts": [asdict(host) for host in self.hosts]}


def distance(one: Device, other: Device) -> str:
    shared = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        shared += 1
    # The root port alone is the node's; below it is a switch.
    if shared > 1:
        return "PIX" if max(len(one.path), len(other.path)) - shared <= 1 else "PXB"
    return "SYS" if one.numa != other.numa else "NODE"


def read_cluster(path: Path) -> Cluster:
    """From a file as ``starling topo --json`` writes it. Raises OSError, TopologyError."""
    try:
        told = json.loads(path.read_text())
        hosts = tuple(_host(one) for one in told["hosts"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise TopologyError(f"{path} is no topology: {type(error).__name__}: {error}") from None
    names = [host.name for host in hosts]
    if len(set(names)) != len(names) or not names:
        raise TopologyError(f"{path}: hosts need names of their own, and there must be one")
    return Cluster(hosts, str(path))


def _host(told: dict[str, Any]) -> Host:
    devices = []
    for one in told.get("devices", ()):
        if one["kind"] not in ("gpu", "nic"):
            raise ValueError(f"a device of kind {one['kind']!r}: there are gpu and nic")
        lists = {name: tuple(one.get(name, ())) for name in ("path", "ports")}
        devices.append(Device(**{**one, **lists}))
    return Host(told["name"], tuple(Node(**node) for node in told.get("nodes", ())), tuple(devices))
