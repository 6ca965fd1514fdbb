"""Two hosts with two rails between them, as network namespaces of this machine.

Each host has a /dev/shm of its own, so that its ranks know their neighbours from those of the other host by what they
can share, and nothing else. A rail can be taken down, or made silent: frames go to an address that nobody has.
"""

import os
import shutil
import subprocess
from types import TracebackType

HOSTS = 2
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


class Network:
    """Use it as a context; the namespaces end with it. ``ipv6``: they have IPv6 addresses alone."""

    def __init__(self, *, ipv6: bool = False) -> None:
        self.ipv6 = ipv6
        self.moved: set[tuple[int, int]] = set()

    def __enter__(self) -> "Network":
        kind = "6" if self.ipv6 else "4"
        self.names = [f"starling-{os.getpid()}-ip{kind}-{host}" for host in range(HOSTS)]
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        for rail, device in enumerate(RAILS):
            ends = ["type", "veth", "peer", "name", device, "netns", self.names[1]]
            subprocess.run(["ip", "link", "add", device, "netns", self.names[0], *ends], check=True)
            for host in range(HOSTS):
                self.set_up(host, rail, True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

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
        """Either host sends little by the rail, with all that it has to wait. False: the kernel has no tbf."""
        for name in self.names:
            command = ["tc", "-n", name, "qdisc", "replace" if slow else "del", "dev", RAILS[rail], "root"]
            # A probe behind what is queued must still be answered in time: 300 ms.
            limits = ["tbf", "rate", "2mbit", "burst", "4kb", "latency", "2s"] if slow else []
            try:
                if subprocess.run([*command, *limits], capture_output=True, check=False).returncode != 0:
                    return False
            except FileNotFoundError:
                return False
        return True

    def set_silent(self, rail: int, silent: bool) -> None:
        """What either host sends by the rail is lost, and nobody is told."""
        for host in range(HOSTS):
            entry = [self.address(1 - host, rail), "dev", RAILS[rail]]
            if silent:
                self.ip(host, "neigh", "replace", *entry, "lladdr", NOBODY, "nud", "permanent")
            else:
                self.ip(host, "neigh", "del", *entry)
