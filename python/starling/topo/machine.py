"""This host, as its system says: NUMA nodes, GPUs and network ports from sysfs, or from hwloc's XML.

Files are read below a root that can be replaced.
"""

from __future__ import annotations

import re
import socket
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from pathlib import Path

from starling.topo.model import Device, Host, Node, TopologyError

_PCI = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$")
_DISPLAYS = ("0x0300", "0x0302")  # classes of graphics and 3D controllers
_GPU_VENDORS = ("0x10de", "0x1002")


def read_sysfs(root: Path = Path("/"), name: str = "") -> Host:
    """Ports of RDMA devices count as the network interfaces that lie on them."""
    return Host(
        name or socket.gethostname(),
        tuple(sorted(_nodes(root), key=lambda node: node.number)),
        (*_gpus(root), *_nics(root)),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):  # a port that is down refuses to tell its speed
        return ""


def _number(path: Path, otherwise: int) -> int:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else otherwise


def _memory_bytes(meminfo: Path) -> int:
    total = re.search(r"MemTotal:\s+(\d+) kB", _text(meminfo))
    return int(total[1]) * 1024 if total else 0


def _nodes(root: Path) -> Iterator[Node]:
    folders = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    # What a virtual machine was given later its nodes do not always count.
    least = _memory_bytes(root / "proc/meminfo") if len(folders) == 1 else 0
    for folder in folders:
        memory = max(least, _memory_bytes(folder / "meminfo"))
        yield Node(int(folder.name.removeprefix("node")), _text(folder / "cpulist"), memory)


def _on_bus(device: Path) -> tuple[str, tuple[str, ...]]:
    """The address of a device, or of what it lies on (virtio), and what is above: the root complex and bridges."""
    parts = [part for part in device.resolve().parts if _PCI.match(part) or part.startswith("pci0")]
    return (parts[-1], tuple(parts[:-1])) if parts and _PCI.match(parts[-1]) else ("", ())


def _numa(device: Path) -> int:
    """Of a device, or of what it lies on."""
    for folder in (device.resolve(), *device.resolve().parents):
        if (folder / "numa_node").is_file():
            return _number(folder / "numa_node", -1)
    return -1


def _gpus(root: Path) -> Iterator[Device]:
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = _text(device / "class")[:6]
        if kind in _DISPLAYS and _text(device / "vendor") in _GPU_VENDORS:
            found.append(device)
    for index, device in enumerate(found):
        yield Device("gpu", f"gpu{index}", _numa(device), *_on_bus(device))


def _nics(root: Path) -> Iterator[Device]:
    for interface in sorted((root / "sys/class/net").glob("*")):
        if interface.name == "lo" or not (interface / "device").exists():
            continue  # neither loopback nor what only exists in software
        yield Device(
            "nic",
            interface.name,
            _numa(interface / "device"),
            *_on_bus(interface / "device"),
            up=_text(interface / "operstate") in ("up", "unknown"),
            speed_mbps=max(0, _number(interface / "speed", 0)),
        )


def read_hwloc(path: Path, name: str = "") -> Host:
    """From what ``lstopo --of xml`` wrote. Raises OSError, TopologyError."""
    try:
        top = Xml.parse(path).getroot()
    except Xml.ParseError as error:
        raise TopologyError(f"{path} is no XML of hwloc: {error}") from None
    if top.tag != "topology":
        raise TopologyError(f"{path} is no XML of hwloc: it begins with <{top.tag}>")
    found = _Found()
    for child in top:
        _walk(child, found, -1, ())
    if not name:
        infos = [info for machine in top.iter("object") for info in machine.findall("info")]
        name = next((info.get("value", "") for info in infos if info.get("name") == "HostName"), path.stem)
    return Host(name, tuple(found.nodes), (*found.gpus, *found.nics))


class _Found:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.gpus: list[Device] = []
        self.nics: list[Device] = []


def _walk(item: Xml.Element, found: _Found, numa: int, path: tuple[str, ...]) -> None:
    """PCI devices hang below what they are near to, which has its NUMA nodes as children."""
    if item.tag != "object":
        return
    kind = item.get("type", "")
    here = [child for child in item if child.get("type") == "NUMANode"]
    if len(here) == 1:
        numa = int(here[0].get("os_index", "-1"))
    if kind == "NUMANode":
        cores = _ranges(item.get("cpuset", ""))
        found.nodes.append(Node(int(item.get("os_index", "-1")), cores, int(item.get("local_memory", "0"))))
    elif kind == "Bridge":
        path = (
            *path,
            item.get("pci_busid") or f"host bridge {item.get('os_index') or item.get('gp_index', '')}",
        )
    elif kind == "PCIDev":
        _device(item, found, numa, path)
    for child in item:
        _walk(child, found, numa, path)


def _device(item: Xml.Element, found: _Found, numa: int, path: tuple[str, ...]) -> None:
    bus = item.get("pci_busid", "")
    described = item.get("pci_type", "")
    kind, _, rest = described.partition(" ")
    vendor = f"0x{rest.strip().lstrip('[')[:4]}"
    if f"0x{kind}" in _DISPLAYS and vendor in _GPU_VENDORS:
        found.gpus.append(Device("gpu", f"gpu{len(found.gpus)}", numa, bus, path))
    for child in item:
        if child.get("type") == "OSDev" and child.get("osdev_type") == "2":  # network
            found.nics.append(Device("nic", child.get("name", ""), numa, bus, path))


def _ranges(cpuset: str) -> str:
    """0-3,8 of hwloc's hexadecimal words, the highest first."""
    mask = 0
    for word in cpuset.split(","):
        mask = mask << 32 | int(word or "0", 16)
    cores = [core for core in range(mask.bit_length()) if mask >> core & 1]
    parts: list[str] = []
    for core in cores:
        if parts and core - 1 == int(parts[-1].rpartition("-")[2]):
            parts[-1] = f"{parts[-1].partition('-')[0]}-{core}"
        else:
            parts.append(str(core))
    return ",".join(parts)
