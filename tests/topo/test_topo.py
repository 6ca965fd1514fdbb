"""Goal: a host's devices are read from sysfs, hwloc's XML and files alike; rings stay on their rails.

Method: made-up hosts below another root and as XML; rings over 1 to 6 hosts of 1 to 8 GPUs, judged hop by hop; the
command, on files that it wrote itself and on wrong ones.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling.cli.root import app
from starling.topo import Cluster, Device, Host, in_leaf_order, rings_of
from starling.topo.draw import ring_line
from starling.topo.machine import read_hwloc, read_sysfs
from starling.topo.model import TopologyError, distance, read_cluster

COMPLEXES = ("pci0000:16", "pci0000:97")


def host(name: str, gpus: int, leaves: tuple[str, ...] = ()) -> Host:
    ports = [Device("nic", f"eth{k}", 0, leaf=leaf) for k, leaf in enumerate(leaves)]
    return Host(name, (), (*(Device("gpu", f"gpu{k}", 0) for k in range(gpus)), *ports))


@pytest.mark.parametrize("hosts", range(1, 7))
@pytest.mark.parametrize("gpus", (1, 2, 4, 8))
def test_rings(hosts: int, gpus: int) -> None:
    names = [f"h{k}" for k in range(hosts)]
    rings = rings_of([host(name, gpus) for name in names])
    assert len(rings) == gpus
    for ring in rings:
        assert sorted(ring.members) == [(name, gpu) for name in names for gpu in range(gpus)]
        assert [name for name, _ in ring.members] == [name for name in names for _ in range(gpus)]
        assert len(ring.hops) == (hosts if hosts > 1 else 0)
        by_host = [[gpu for name, gpu in ring.members if name == one] for one in names]
        for k, hop in enumerate(ring.hops):
            assert (hop.source_rail, hop.destination_rail) == (by_host[k][-1], by_host[(k + 1) % hosts][0])
        crossing = sum(hop.crosses for hop in ring.hops)
        # Odd ways from rail to rail close on three of them.
        assert crossing == (1 if hosts % 2 and hosts > 1 and gpus == 2 else 0)
    used = Counter(hop.source_rail for ring in rings for hop in ring.hops)
    assert len(set(used.values())) <= 1, "each rail carries as much as any other"
    alike = rings_of([host(name, gpus) for name in names], alternating=False)
    if hosts > 1 and gpus > 1:
        assert all(hop.crosses for ring in alike for hop in ring.hops)


def test_rings_need_equal_hosts() -> None:
    for counts in ((1, 2), (0, 0)):
        with pytest.raises(ValueError, match="equally many GPUs"):
            rings_of([host(f"h{k}", count) for k, count in enumerate(counts)])


def test_hosts_of_one_leaf_are_neighbours() -> None:
    hosts = [host(name, 1, (leaf,)) for name, leaf in (("n10", "b"), ("n2", "a"), ("n9", "b"), ("n1", "a"))]
    ordered = in_leaf_order(hosts)
    assert [one.name for one in ordered] == ["n1", "n2", "n9", "n10"]
    (ring,) = rings_of(ordered)
    assert [hop.leaves_leaf for hop in ring.hops] == [False, True, False, True]
    assert sum(hop.leaves_leaf for hop in rings_of(hosts)[0].hops) == 4


def fake_sysfs(root: Path) -> None:
    """Two nodes; in each a switch with a GPU and a port, and a second port beside the switch. One port is down."""
    for number, complex_ in enumerate(COMPLEXES):
        bus = complex_[-2:]
        node = root / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{4 * number}-{4 * number + 3}\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:       1048576 kB\n")
        switch = f"{complex_}/0000:{bus}:00.0/0000:{bus}:01.0"
        places = {
            "gpu": f"{switch}/0000:{bus}:02.0/0000:{bus}:08.0",
            "near": f"{switch}/0000:{bus}:03.0/0000:{bus}:09.0",
            "far": f"{complex_}/0000:{bus}:0a.0/0000:{bus}:0b.0",
        }
        for what, place in places.items():
            device = root / "sys/devices" / place
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{number}\n")
            (device / "class").write_text("0x030200\n" if what == "gpu" else "0x020000\n")
            (device / "vendor").write_text("0x10de\n" if what == "gpu" else "0x15b3\n")
            link = root / "sys/bus/pci/devices" / device.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(device)
            if what == "gpu":
                continue
            # As virtio does, one of them lies on a device of its own below the PCI device.
            below = device / "virtio0" if number and what == "far" else device
            below.mkdir(exist_ok=True)
            interface = root / f"sys/class/net/{what}{number}"
            interface.mkdir(parents=True)
            (interface / "device").symlink_to(below)
            (interface / "operstate").write_text("down\n" if (what, number) == ("near", 1) else "up\n")
            (interface / "speed").write_text("400000\n" if what == "near" else "-1\n")
    (root / "sys/class/net/lo").mkdir()
    (root / "sys/class/net/docker0").mkdir()


def test_sysfs(tmp_path: Path) -> None:
    fake_sysfs(tmp_path)
    read = read_sysfs(tmp_path, "here")
    assert [(node.number, node.cores, node.memory_bytes) for node in read.nodes] == [
        (0, "0-3", 2**30),
        (1, "4-7", 2**30),
    ]
    assert [(gpu.name, gpu.pci, gpu.numa) for gpu in read.gpus] == [
        ("gpu0", "0000:16:08.0", 0),
        ("gpu1", "0000:97:08.0", 1),
    ]
    ports = {nic.name: nic for nic in read.nics}
    assert set(ports) == {"near0", "far0", "near1", "far1"}
    assert ports["near0"].speed_mbps == 400000 and ports["far0"].speed_mbps == 0 and not ports["near1"].up
    assert ports["far1"].pci == "0000:97:0b.0"
    gpu = read.gpus[0]
    assert [distance(gpu, ports[name]) for name in ("near0", "far0", "near1")] == ["PIX", "NODE", "SYS"]
    # The port beside the second GPU is down: it takes the one of its node.
    assert [nic.name for _, nic in read.rails() if nic] == ["near0", "far1"]


def test_one_node_has_all_memory(tmp_path: Path) -> None:
    node = tmp_path / "sys/devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "meminfo").write_text("Node 0 MemTotal:       1024 kB\n")
    assert [n.memory_bytes for n in read_sysfs(tmp_path, "here").nodes] == [1 << 20]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       4096 kB\nMemFree:  1 kB\n")
    assert [n.memory_bytes for n in read_sysfs(tmp_path, "here").nodes] == [4 << 20]


def test_a_file_says_which_ports_a_gpu_takes(tmp_path: Path) -> None:
    fake_sysfs(tmp_path)
    told = Cluster((read_sysfs(tmp_path, "here"),)).as_json()
    assert all(device["ports"] == () for device in told["hosts"][0]["devices"])
    by_name = {device["name"]: device for device in told["hosts"][0]["devices"]}
    by_name["gpu0"]["ports"] = ["near1", "far1", "far0"]  # the first is down
    path = tmp_path / "told.json"
    path.write_text(json.dumps(told))
    (read,) = read_cluster(path).hosts
    assert [nic.name for _, nic in read.rails() if nic] == ["far1", "far1"]


HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f,0x00000103">
  <info name="HostName" value="big"/>
  <object type="Package" os_index="0">
   <object type="NUMANode" os_index="0" cpuset="0x00000103" local_memory="1024"/>
   <object type="Core" os_index="0"/>
   <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[16-19]">
    <object type="Bridge" bridge_type="1-1" pci_busid="0000:16:00.0" pci_type="0604 [8086:3c08] [0000:0000] 07">
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:17:00.0" pci_type="0604 [1000:c030] [0000:0000] 07">
      <object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1"/>
     </object>
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:17:01.0" pci_type="0604 [1000:c030] [0000:0000] 07">
      <object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0207 [15b3:1021] [15b3:0041] 00">
       <object type="OSDev" name="ib0" osdev_type="2"/>
       <object type="OSDev" name="mlx5_0" osdev_type="3"/>
      </object>
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1">
   <object type="NUMANode" os_index="1" cpuset="0x0000000f,0x0" local_memory="2048"/>
   <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[97-98]">
    <object type="PCIDev" pci_busid="0000:98:00.0" pci_type="0200 [8086:1521] [8086:1521] 01">
     <object type="OSDev" name="eth0" osdev_type="2"/>
    </object>
   </object>
  </object>
 </object>
</topology>
"""


def test_hwloc(tmp_path: Path) -> None:
    path = tmp_path / "big.xml"
    path.write_text(HWLOC)
    read = read_hwloc(path)
    assert read.name == "big"
    assert [(node.number, node.cores, node.memory_bytes) for node in read.nodes] == [
        (0, "0-1,8", 1024),
        (1, "32-35", 2048),
    ]
    assert [(gpu.pci, gpu.numa) for gpu in read.gpus] == [("0000:18:00.0", 0)]
    assert [(nic.name, nic.numa) for nic in read.nics] == [("ib0", 0), ("eth0", 1)]
    assert [distance(read.gpus[0], nic) for nic in read.nics] == ["PIX", "SYS"]
    for wrong in ("<topology", "<other/>"):
        path.write_text(wrong)
        with pytest.raises(TopologyError, match="no XML of hwloc"):
            read_hwloc(path)


def cluster_file(folder: Path, hosts: int = 4) -> Path:
    told = Cluster(
        tuple(host(f"n{k}", 2, (f"leaf{k % 2}a", f"leaf{k % 2}b")) for k in range(hosts))
    ).as_json()
    path = folder / "cluster.json"
    path.write_text(json.dumps(told))
    return path


def test_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    path = cluster_file(tmp_path)
    pictures = tmp_path / "rings.svg", tmp_path / "rings.png"
    for picture in pictures:
        shown = runner.invoke(app, ["topo", str(path), "--draw", str(picture)])
        assert shown.exit_code == 0, shown.output
    assert "ring 0: n0[0 1] ─1─ n2[1 0] ─0─ n1[0 1] ─1─ n3[1 0] ─0─" in shown.stdout
    assert "<svg" in pictures[0].read_text() and pictures[1].read_bytes().startswith(b"\x89PNG")
    told = runner.invoke(app, ["topo", str(path), "--json"])
    answer = json.loads(told.stdout)
    assert [ring["crossing"] for ring in answer["rings"]] == [0, 0]
    alike = json.loads(runner.invoke(app, ["topo", str(path), "--json", "--alike"]).stdout)
    assert [ring["crossing"] for ring in alike["rings"]] == [4, 4]
    again = tmp_path / "again.json"
    again.write_text(told.stdout)
    assert {one.name for one in read_cluster(again).hosts} == {"n0", "n1", "n2", "n3"}
    assert read_cluster(again).hosts[0] in read_cluster(path).hosts
    fake_sysfs(tmp_path / "root")
    own = runner.invoke(app, ["topo", "--root", str(tmp_path / "root")])
    assert own.exit_code == 0 and "gpu0 0000:16:08.0 ─ near0 (PIX)" in own.stdout


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"hosts": []}', '{"hosts": [{"name": "a"}, {"name": "a"}]}',
     '{"hosts": [{"name": "a", "devices": [{"kind": "fan", "name": "f"}]}]}',
     '{"hosts": [{"name": "a", "nodes": [{"cores": "0"}]}]}'],
)  # fmt: skip
def test_wrong_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    told = CliRunner().invoke(app, ["topo", str(path)])
    assert told.exit_code == 2 and "wrong.json" in told.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    path = str(cluster_file(tmp_path))
    for arguments in (["nowhere.json"], [path, path], [path, "--draw", "picture.gif"]):
        assert CliRunner().invoke(app, ["topo", *arguments]).exit_code == 2


def test_an_odd_ring_says_where_it_crosses() -> None:
    ring = rings_of([host(f"n{k}", 2) for k in range(3)])[0]
    assert ring_line(ring) == "ring 0: n0[0 1] ─1─ n1[1 0] ─0─ n2[0 1] ─1✕0─"
