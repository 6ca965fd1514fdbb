"""Goal: the networks of these tests fail as they say: what is sent by a silent rail is lost, also one way alone, and
neither end is told; when it is no longer silent, what was sent by TCP comes after all.

Method: sockets at both ends of a rail, by nftables and without them.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hosts.network import Network, why_no_nftables, why_not

CLONE_NEWNET = 0x40000000
BOUND_S = 100


@pytest.fixture(scope="module", params=(True, False), ids=("nftables", "neighbours"))
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    if why_not() or (request.param and why_no_nftables()):
        pytest.skip(why_not() or why_no_nftables())
    with Network(nftables=request.param) as made:
        yield made


def in_host(network: Network, host: int, function: Callable[[], Any]) -> Any:
    """A socket stays in the namespace of the thread that made it; that thread ends."""

    def enter() -> Any:
        with open(f"/run/netns/{network.names[host]}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return function()

    with ThreadPoolExecutor(1) as other_thread:
        return other_thread.submit(enter).result()


def connected(network: Network) -> list[socket.socket]:
    """The two ends of a connection by rail 0, that of host 0 first."""
    there = network.address(1, 0)
    listener = in_host(network, 1, lambda: socket.create_server((there, 0)))
    with listener:
        near = in_host(network, 0, lambda: socket.create_connection(listener.getsockname(), BOUND_S))
        far, _ = listener.accept()
    far.settimeout(BOUND_S)
    return [near, far]


def until_sent_again(network: Network, host: int, before: int) -> None:
    """By its TCP: of what it sent no word has come back, though one has had the time."""
    deadline = time.monotonic() + BOUND_S
    while network.resent(host) <= before:
        assert time.monotonic() < deadline, f"host {host} has sent nothing again"
        time.sleep(0.01)


@pytest.mark.parametrize("to", (None, 0, 1))
def test_a_silent_rail_loses_without_a_word(network: Network, to: int | None) -> None:
    ends = connected(network)
    words = (b"from 0", b"from 1")
    resent = [network.resent(host) for host in range(2)]
    network.set_silent(0, True, to=to)
    try:
        for end, word in zip(ends, words, strict=True):
            end.sendall(word)
        if to is not None:  # the other way they come
            assert ends[1 - to].recv(100) == words[to]
        for host, end in enumerate(ends):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            if to is None or host == to:
                until_sent_again(network, 1 - host, resent[1 - host])
                end.setblocking(False)
                with pytest.raises(BlockingIOError) as nothing:
                    end.recv(100)
                assert nothing.value.errno == errno.EAGAIN
                end.settimeout(BOUND_S)
    finally:
        network.set_silent(0, False, to=to)
    for host, end in enumerate(ends):
        if to is None or host == to:
            assert end.recv(100) == words[1 - host]
        end.close()
