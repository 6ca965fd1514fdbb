"""Hosts with two rails between them, as network namespaces of this machine: two wires between two, else two switches.

Each host has a /dev/shm of its own, so that its ranks know their neighbours from those of the other host by what they
can share, and nothing else. A rail can be taken down, or made silent, also one way: nftables drop what comes in, or,
where there are none, frames go out to an address that nobody has. Either way no error and no reset tells of it.
"""

import functools
import itertools
import os
import shutil
import subprocess
from types import TracebackType

RAILS = ("rail0", "rail1")
NOBODY = "02:00:00:00:00:99"


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "no ip(8) here (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"starling-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces are not permitted: {made.stderr.strip()}"
    pair = ["ip", "-n", name, "link", "add", "rail0", "type", "veth", "peer", "name", "rail1"]
    linked = subprocess.run(pair, capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no veth pairs: {linked.stderr.strip()}" if linked.returncode != 0 else ""


@functools.cache
def why_no_nftables() -> str:
    """Why they cannot drop what comes in by a device; empty if they can. Asks the kernel in a namespace."""
    if shutil.which("nft") is None:
        return "no nft(8) here (Debian: nftables)"
    name = f"starling-nft-{os.getpid()}"
    hook = "{ type filter hook ingress device lo priority 0; policy drop; }"
    words = f"add table netdev starling; add chain netdev starling lo {hook}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        tried = subprocess.run(
            ["ip", "netns", "exec", name, "nft", words], capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
    return f"the kernel has no nftables of devices: {tried.stderr.strip()}" if tried.returncode else ""


class Network:
    """Use it as a context; the namespaces end with it. ``ipv6``: they have IPv6 addresses alone. ``nftables``: whether
    they make rails silent; None: where there are any."""

    def __init__(self, hosts: int = 2, *, ipv6: bool = False, nftables: bool | None = None) -> None:
        self.ipv6 = ipv6
        self.nftables = nftables if nftables is not None else why_no_nftables() == ""
        self.moved: set[tuple[int, int]] = set()
        name = f"starling-{os.getpid()}-ip{6 if ipv6 else 4}"
        self.names = [f"{name}-{host}" for host in range(hosts)]
        self._switch = [f"{name}-switch"] if hosts > 2 else []

    def __enter__(self) -> "Network":
        for name in [*self.names, *self._switch]:
            subprocess.run(["ip", "netns", "add", name], check=True)
        for rail, device in enumerate(RAILS):
            self._wire(device)
            for host in range(len(self.names)):
                self.set_up(host, rail, True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in [*self.names, *self._switch]:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _wire(self, device: str) -> None:
        if not self._switch:
            ends = ["type", "veth", "peer", "name", device, "netns", self.names[1]]
            subprocess.run(["ip", "link", "add", device, "netns", self.names[0], *ends], check=True)
            return
        switch = ["ip", "-n", *self._switch, "link"]
        subprocess.run([*switch, "add", device, "type", "bridge"], check=True)
        subprocess.run([*switch, "set", device, "up"], check=True)
        for host, name in enumerate(self.names):
            port = f"{device}.{host}"
            ends = ["type", "veth", "peer", "name", device, "netns", name]
            subprocess.run([*switch, "add", port, *ends], check=True)
            subprocess.run([*switch, "set", port, "master", device, "up"], check=True)

    def ip(self, host: int, *words: str) -> None:
        subprocess.run(["ip", "-n", self.names[host], *words], check=True)

    def address(self, host: int, rail: int) -> str:
        number = host + (11 if (host, rail) in self.moved else 1)
        return f"fd00:77:0:{rail}::{number}" if self.ipv6 else f"10.77.{rail}.{number}"

    def set_up(self, host: int, rail: int, up: bool) -> None:
        """The host's port goes down, or comes up; the other end of the wire loses its carrier.

        The address is set again each time that it comes up: a port that goes down loses it if it is of IPv6.
        """
        self.ip(host, "link", "set", RAILS[rail], "up" if up else "down")
        if up:
            address = f"{self.address(host, rail)}/64" if self.ipv6 else f"{self.address(host, rail)}/24"
            self.ip(host, "addr", "replace", address, "dev", RAILS[rail], *(["nodad"] if self.ipv6 else []))

    def move(self, host: int, rail: int) -> None:
        """The host's port has another address when it comes up; or, the second time, the first one again."""
        self.ip(host, "addr", "flush", "dev", RAILS[rail])
        self.moved ^= {(host, rail)}

    def set_slow(self, rail: int, slow: bool) -> bool:
        """Every host sends little by the rail, with all that it has to wait. False: the kernel has no tbf."""
        # A probe behind what is queued must still be answered in time: 300 ms.
        return self._limit(rail, ["rate", "2mbit", "burst", "4kb", "latency", "2s"] if slow else [])

    def set_rate(self, rail: int, rate: str) -> bool:
        """Every host sends so much by the rail ("1gbit"), no more. False: the kernel has no tbf."""
        return self._limit(rail, ["rate", rate, "burst", "256kb", "latency", "100ms"])

    def _limit(self, rail: int, words: list[str]) -> bool:
        for name in self.names:
            command = ["tc", "-n", name, "qdisc", "replace" if words else "del", "dev", RAILS[rail], "root"]
            limits = ["tbf", *words] if words else []
            try:
                if subprocess.run([*command, *limits], capture_output=True, check=False).returncode != 0:
                    return False
            except FileNotFoundError:
                return False
        return True

    def resent(self, host: int) -> int:
        """Segments that the host's TCP has sent again so far."""
        inside = ["ip", "netns", "exec", self.names[host], "cat", "/proc/net/snmp"]
        text = subprocess.run(inside, check=True, capture_output=True, text=True).stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])

    def set_silent(self, rail: int, silent: bool, *, to: int | None = None) -> None:
        """What is sent by the rail to that host, or to any, is lost, and nobody is told."""
        for host, receiver in itertools.permutations(range(len(self.names)), 2):
            if to is None or receiver == to:
                if self.nftables:
                    self._drop(receiver, rail, silent)
                else:
                    self._misdirect(host, receiver, rail, silent)

    def _drop(self, host: int, rail: int, drops: bool) -> None:
        """All frames, where they come in."""
        chain = f"netdev starling {RAILS[rail]}"
        hook = "{ type filter hook ingress device " + RAILS[rail] + " priority 0; policy drop; }"
        made = f"add table netdev starling; add chain {chain} {hook}"
        # Added first, so that there is one to delete, however often this is called.
        words = made if drops else f"{made}; delete chain {chain}"
        subprocess.run(["ip", "netns", "exec", self.names[host], "nft", words], check=True)

    def _misdirect(self, host: int, receiver: int, rail: int, loses: bool) -> None:
        """What that one sends to this one, where it goes out."""
        entry = [self.address(receiver, rail), "dev", RAILS[rail]]
        if loses:
            self.ip(host, "neigh", "replace", *entry, "lladdr", NOBODY, "nud", "permanent")
        else:
            self.ip(host, "neigh", "del", *entry)
