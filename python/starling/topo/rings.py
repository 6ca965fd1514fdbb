"""Rings over the GPUs of several hosts that enter and leave each host on one rail (ICCL, section 5, Fig. 16).

A ring that enters every host at GPU a and leaves at GPU b goes from rail b to rail a between any two hosts: through
leaf and spine. Here every other host is passed the other way round, so that each hop stays on its rail::

     host 0        host 1        host 2        host 3
    a ... b ────▶ b ... a ────▶ a ... b ────▶ b ... a ──▶ back to host 0 on rail a

With an odd number of hosts the last two take a third rail, so that the way closes: from b to c, and from c to a. Where
hosts have two GPUs, one hop of each ring crosses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starling.topo.model import Host


@dataclass(frozen=True)
class Hop:
    """Between hosts: indices of the GPU, which are its rail."""

    source: str
    source_rail: int
    destination: str
    destination_rail: int
    leaves: tuple[str, str]  # at both ends; "": not known

    @property
    def crosses(self) -> bool:
        return self.source_rail != self.destination_rail

    @property
    def leaves_leaf(self) -> bool:
        """Through the spine, as far as leaves are known."""
        return "" not in self.leaves and self.leaves[0] != self.leaves[1]


@dataclass(frozen=True)
class Ring:
    channel: int
    members: tuple[tuple[str, int], ...]  # host and index of its GPU, in order
    hops: tuple[Hop, ...]


def in_leaf_order(hosts: Sequence[Host]) -> list[Host]:
    """Hosts of one leaf switch beside each other; then by name, numbers in it as numbers."""
    return sorted(
        hosts, key=lambda host: (sorted({nic.leaf for nic in host.nics if nic.up}), _natural(host.name))
    )


def _natural(name: str) -> list[tuple[int, str]]:
    parts: list[tuple[int, str]] = []
    for char in name:
        if char.isdigit() and parts and parts[-1][1] == "":
            parts[-1] = (parts[-1][0] * 10 + int(char), "")
        else:
            parts.append((int(char), "") if char.isdigit() else (-1, char))
    return parts


def rings_of(hosts: Sequence[Host], alternating: bool = True) -> list[Ring]:
    """A ring for each rail, hosts in the order given; each rail carries as many hops as any other.

    alternating: every other host is passed the other way round. Without it, all alike: what is compared with.
    Raises ValueError if hosts differ in their number of GPUs, or have none.
    """
    rails = {len(host.gpus) for host in hosts}
    if len(rails) != 1 or 0 in rails:
        raise ValueError(f"rings need hosts with equally many GPUs, not {sorted(rails)}")
    count = rails.pop()
    return [_ring(hosts, channel, count, alternating) for channel in range(count)]


def _ring(hosts: Sequence[Host], channel: int, rails: int, alternating: bool) -> Ring:
    visits = []
    for k, host in enumerate(hosts):
        left = len(hosts) - k if alternating and len(hosts) % 2 and len(hosts) > 1 and rails > 2 else 0
        if left in (1, 2):
            order = _passed(channel + 3 - left, channel if left == 1 else channel + 2, rails)
        else:
            order = _passed(channel, channel + 1, rails)
            if alternating and k % 2:
                order.reverse()
        visits.append((host, order))
    members = tuple((host.name, gpu) for host, order in visits for gpu in order)
    return Ring(channel, members, tuple(_hops(visits)))


def _passed(into: int, out: int, rails: int) -> list[int]:
    """All GPUs of a host, in by one and out by the other, the rest downwards between."""
    into, out = into % rails, out % rails
    between = [(into - k) % rails for k in range(1, rails)]
    return [into, *(gpu for gpu in between if gpu != out), *([out] if rails > 1 else [])]


def _hops(visits: Sequence[tuple[Host, list[int]]]) -> Iterator[Hop]:
    if len(visits) < 2:
        return
    for k, (host, order) in enumerate(visits):
        after, next_order = visits[(k + 1) % len(visits)]
        out, into = order[-1], next_order[0]
        ports = host.rails()[out][1], after.rails()[into][1]
        leaves = (ports[0].leaf if ports[0] else "", ports[1].leaf if ports[1] else "")
        yield Hop(host.name, out, after.name, into, leaves)
