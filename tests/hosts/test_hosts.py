"""Goal: a group that spans hosts does what a group of one host does, over TCP, also while its links fail.

Method: two hosts as network namespaces, two rails between them (network.py); where that is not permitted, the tests
that need no failing link run over loopback. Rails go down, or fall silent, amid all-reduces whose every element is
checked.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comm.programs import disordered
from full_tests import FULL, part
from hosts import broken_paths, failovers, programs
from hosts.network import Network, why_not
from hosts.ranks import Job

SEED = 20261122
REASON = why_not()
GIVE_UP = {"STARLING_TCP_GIVE_UP_S": "4"}  # also of paths that are not there yet
POLLS = {"STARLING_LINK_POLLS": "1"}  # as for ranks on GPUs, whose blocks do not ring


@pytest.fixture(scope="module")
def network() -> Iterator[Network | None]:
    if REASON:
        yield None
        return
    with Network() as made:
        yield made


@pytest.fixture(scope="module")
def rails_of_ipv6() -> Iterator[Network]:
    """IPv6 alone, and link-local addresses beside those that count, as systems give them."""
    if REASON:
        pytest.skip(REASON)
    with Network(ipv6=True) as made:
        yield made


@pytest.fixture
def rails(network: Network | None) -> Iterator[Network]:
    if network is None:
        pytest.skip(REASON)
    yield network
    for host, rail in itertools.product(range(2), range(2)):
        network.set_up(host, rail, True)


@pytest.mark.parametrize("hosts", ([[0], [1]], [[0, 1], [2, 3]], [[0, 3], [1], [2]]), ids=str)
@pytest.mark.parametrize("settings", ({}, POLLS), ids=("rung", "polls"))
def test_collectives(network: Network | None, hosts: list[list[int]], settings: dict[str, str]) -> None:
    """Every collective, both kinds of blocks; also a host between whose ranks another's stand. FULL_TESTS=1: twice the
    cases."""
    if network is not None and len(hosts) > 2:
        hosts = [[0, 3], [1, 2]]
    arguments = {"seed": SEED, "share": len(hosts[0]), "shares": 40 if FULL else 80}
    job = Job(network, hosts, programs.conformance, arguments, blocks=len(hosts[0]), settings=settings)
    for problems in job.results():
        assert problems == []


def sent_by_host(hosts: list[list[int]], results: list[dict[int, float]]) -> list[float]:
    return [sum(sum(results[rank].values()) for rank in host) for host in hosts]


# Parts of the buffer that each host sends to the other: as few as can be. A ring over four ranks that are numbered
# host by host sends 1.5 for all_reduce, half of that for the two others; one over ranks in turns twice as much.
@pytest.mark.parametrize("hosts", ([[0, 1], [2, 3]], [[0, 3], [1, 2]], [[0, 2], [1, 3]]), ids=str)
@pytest.mark.parametrize(
    ("collective", "fewest"), [("all_reduce", 1), ("all_gather", 0.5), ("reduce_scatter", 0.5)]
)
def test_each_byte_crosses_once(
    network: Network | None, hosts: list[list[int]], collective: str, fewest: float
) -> None:
    arguments = {"collective": collective, "count": 1 << 18}
    sent = sent_by_host(hosts, Job(network, hosts, programs.crossing, arguments).results())
    assert all(fewest <= one < 1.1 * fewest for one in sent), sent


def test_hosts_of_unequal_size(network: Network | None) -> None:
    """The ring passes host after host, whatever the ranks' numbers: 2 (n - 1) / n from each."""
    hosts = [[0, 2, 3], [1, 4]]
    arguments = {"collective": "all_reduce", "count": 1 << 18}
    sent = sent_by_host(hosts, Job(network, hosts, programs.crossing, arguments).results())
    assert all(1.6 <= one < 1.1 * 1.6 for one in sent), sent


def test_hosts_in_the_order_of_their_leaves(tmp_path: Path) -> None:
    """Rank 0's file alone says that hosts 0 and 2 have one leaf switch, 1 and 3 another: rings go by that."""
    file = tmp_path / "topology.json"
    leaves = {"host a": "north", "b": "south", "c": "north", "d": "south"}
    port = {"kind": "nic", "name": "rail0", "up": True}
    hosts = [{"name": name, "devices": [port | {"leaf": leaf}]} for name, leaf in leaves.items()]
    file.write_text(json.dumps({"hosts": hosts}))
    arguments = {"collective": "all_reduce", "count": 1 << 18}
    settings = [{"STARLING_HOST_ID": name} for name in leaves]
    settings[0] |= {"STARLING_TOPOLOGY": str(file)}
    settings[1] |= {"STARLING_TOPOLOGY": "/rank/0/decides"}
    job = Job(None, [[0], [1], [2], [3]], programs.crossing, arguments, of_hosts=settings)
    sent = job.results()
    ring = [0, 2, 1, 3]
    for rank, after in zip(ring, [*ring[1:], ring[0]], strict=True):
        assert {peer for peer, parts in sent[rank].items() if parts > 0.5} == {after}, sent


@pytest.mark.parametrize("striping", "01")
def test_disorder(network: Network | None, striping: str) -> None:
    """DFCCL's programs 1 and 2: orders that hang other libraries, with and without device synchronizations."""
    for order, every in (("random", 0), ("latin", 3)):
        arguments = {"order": order, "iterations": 3, "synchronize_every": every, "seed": SEED}
        settings = {"STARLING_TCP_STRIPING": striping}
        Job(network, [[0, 1], [2, 3]], disordered, arguments, settings=settings).results()


@pytest.mark.parametrize("wanted", (False, True), ids=("auto", "tcp"))
def test_tcp_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    """Who has no RDMA reads so, once a rank, without asking for a log; who wants TCP reads nothing."""
    if not wanted and any(Path("/sys/class/infiniband").glob("*")):
        pytest.skip("this system has an RDMA device")
    log = tmp_path / "stderr"
    monkeypatch.delenv("STARLING_LOG", raising=False)
    settings = {"STARLING_LINK": "tcp" if wanted else "auto"}
    Job(None, [[0, 1], [2]], programs.cores_of_threads, settings=settings, stderr=log).results()
    lines = log.read_text().splitlines()
    said = [line for line in lines if "links to other hosts go over TCP: " in line]
    assert len(said) == (0 if wanted else 3), lines
    assert all(re.search("RDMA|verbs", line) for line in said), lines


@pytest.mark.parametrize("has", ("no library", "no functions"))
def test_tcp_is_said_where_verbs_cannot_be_opened(tmp_path: Path, has: str) -> None:
    """A libibverbs that is no library, and one that lacks what is called: TCP, and a line that says which."""
    file, log = tmp_path / "libibverbs.so.1", tmp_path / "stderr"
    file.touch()
    if has == "no functions":
        build = ["cc", "-shared", "-x", "c", "/dev/null", "-o", str(file)]
        subprocess.run(build, check=True)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("LD_LIBRARY_PATH"))))
    settings = {"STARLING_LINK": "auto", "LD_LIBRARY_PATH": path}
    Job(None, [[0], [1]], programs.cores_of_threads, settings=settings, stderr=log).results()
    lines = log.read_text().splitlines()
    said = [line for line in lines if "links to other hosts go over TCP: " in line]
    assert len(said) == 2, lines
    wanted = "libibverbs cannot be opened: " if has == "no library" else "libibverbs.so.1 here has no ibv_"
    assert all(wanted in line for line in said), lines


@pytest.mark.parametrize(
    ("settings", "pinned"),
    [({}, 0), ({"STARLING_LINK_CORES": "any"}, 0), ({"STARLING_LINK_CORES": "{core}"}, 1)],
    ids=("auto", "any", "a core"),
)
@pytest.mark.parametrize("polls", (False, True), ids=("rung", "polls"))
def test_threads_of_links_are_pinned(settings: dict[str, str], pinned: int, polls: bool) -> None:
    """To the cores that are named, and no other thread of the process; where a thread polls, one more sends batches."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("one core: all threads are on it")
    core = str(mine[-1])
    settings = {name: text.format(core=core) for name, text in settings.items()} | (POLLS if polls else {})
    pinned *= 2 if polls else 1
    arguments = {"core": core, "pinned": pinned}
    for cores in Job(None, [[0], [1]], programs.cores_of_threads, arguments, settings=settings).results():
        assert cores.count(core) == pinned, cores
        assert len(set(cores)) == (2 if pinned else 1), cores


@pytest.mark.parametrize("what", ("kind", "count", "large count", "reduction"))
def test_mismatch(network: Network | None, what: str) -> None:
    """Told to every rank on every host, and no byte of a wrong sum."""
    for first, second, _ in Job(network, [[0, 1], [2]], programs.mismatch, {"what": what}).results():
        for kind, text in (first, second):
            assert kind == "MismatchError" and "lane 'x'" in text, text


def test_packets_cannot_cross(network: Network | None) -> None:
    for kind, text in Job(network, [[0], [1]], programs.packets).results():
        assert kind == "UnsupportedError" and "one_shot_packets" in text and "slots" in text


@pytest.mark.parametrize("count", (10, 10_000))
def test_who_has_sent_may_leave(network: Network | None, count: int) -> None:
    assert all(Job(network, [[0, 1], [2]], programs.leave_after_sending, {"count": count}).results())


def test_lost_host(network: Network | None) -> None:
    """Every rank that is left is told which, and by which ports it was linked."""
    job = Job(network, [[0, 1], [2, 3]], programs.lose_a_host, settings=GIVE_UP)
    job.wait_for("running")
    job.kill_host(1)
    for kind, text in job.results(ranks=[0, 1]):
        assert kind == "PeerFailedError", text
        assert "no path to rank" in text and ("rail0 10.77.0.1" in text or network is None), text


@pytest.mark.parametrize("striping", "01")
@pytest.mark.parametrize("settings", ({}, POLLS), ids=("rung", "polls"))
def test_broken_paths(settings: dict[str, str], striping: str) -> None:
    """Sockets end amid all-reduces, path after path, both ways."""
    settings = settings | {"STARLING_TCP_STRIPING": striping}
    job = Job(None, [[0], [1]], broken_paths.through_broken_paths, {"seconds": 2.0}, settings=settings)
    (done, breaks, _), _ = job.results(100)
    assert min(done, breaks) >= broken_paths.LEAST


@pytest.mark.parametrize("settings", ({}, POLLS), ids=("rung", "polls"))
def test_a_peer_that_dies(settings: dict[str, str]) -> None:
    """No rank lives beside it that could tell of it."""
    settings = settings | {"STARLING_TCP_GIVE_UP_S": "1"}
    job = Job(None, [[0], [1]], broken_paths.lose_the_peer, settings=settings)
    ((kind, text, took),) = job.results(60, ranks=[0])
    assert kind == "PeerFailedError" and "no path to rank 1" in text, text
    assert took < 20  # not by the operation's timeout


def test_all_rails_silent(rails: Network) -> None:
    """As when the other host loses its power: nobody answers any more."""
    job = Job(rails, [[0], [1]], programs.lose_a_host, settings=GIVE_UP)
    job.wait_for("running")
    try:
        for rail in range(2):
            rails.set_silent(rail, True)
        for kind, text in job.results():
            assert kind == "PeerFailedError", text
            assert "rail0" in text and "rail1" in text, text
    finally:
        for rail in range(2):
            rails.set_silent(rail, False)


@pytest.mark.parametrize("striping", "01")
@pytest.mark.parametrize("fault", ("own port", "peer's port", "silent"))
def test_failing_rail(rails: Network, fault: str, striping: str) -> None:
    """The first rail fails and heals, then the second one, amid all-reduces."""
    go_through_failures(rails, fault, {"STARLING_TCP_STRIPING": striping})


@pytest.mark.parametrize("ipv6", (False, True), ids=("ipv4", "ipv6"))
@pytest.mark.parametrize("host", (0, 1))
def test_rail_heals_with_another_address(
    rails: Network, rails_of_ipv6: Network, host: int, ipv6: bool
) -> None:
    """The sender's own, and that of the rank that it calls: traffic comes back to the rail."""
    network = rails_of_ipv6 if ipv6 else rails
    job = Job(network, [[0], [1]], programs.all_reduces_with_counts)
    counts = failovers.Counts(job)
    try:
        counts.until_it_carries(0)
        for _ in range(2):
            network.set_up(host, 0, False)
            counts.until_it_carries(1)
            network.move(host, 0)
            network.set_up(host, 0, True)
            counts.until_it_carries(0)
        job.say("stop")
        assert job.results()[0] > 0
    finally:
        job.end()
        if network.moved:
            network.move(host, 0)
        network.set_up(host, 0, True)


@pytest.mark.parametrize("fault", ("own port", "peer's port", "silent"))
def test_ipv6(rails_of_ipv6: Network, fault: str) -> None:
    go_through_failures(rails_of_ipv6, fault, {})


def test_ipv6_disorder(rails_of_ipv6: Network) -> None:
    """The preferred rail is the second one."""
    arguments = {"order": "random", "iterations": 3, "synchronize_every": 3, "seed": SEED}
    settings = {"STARLING_TCP_INTERFACES": "rail1,rail0", "STARLING_TCP_FAMILY": "ipv6"}
    Job(rails_of_ipv6, [[0, 1], [2, 3]], disordered, arguments, settings=settings).results()


def test_ipv6_lost_host(rails_of_ipv6: Network) -> None:
    job = Job(rails_of_ipv6, [[0], [1]], programs.lose_a_host, settings=GIVE_UP)
    job.wait_for("running")
    job.kill_host(1)
    for kind, text in job.results(ranks=[0]):
        assert kind == "PeerFailedError", text
        # Of the flow that found it out first: there, or from there.
        assert re.search("rail0 fd00:77::1 (-> rail0|<-) fd00:77::2", text), text


def go_through_failures(rails: Network, fault: str, settings: dict[str, str]) -> None:
    hosts = [[0, 1], [2]]
    job = Job(rails, hosts, programs.all_reduces_until, settings=settings)
    try:
        last = 5
        for rail in (0, 1):
            job.wait_for(f"done.{last}")
            failovers.disturb(rails, fault, rail, True)
            last = next_done(job, last) + 20
            job.wait_for(f"done.{last}")
            failovers.disturb(rails, fault, rail, False)
            time.sleep(0.3)  # the rail comes back, and the flow with it
            last = next_done(job, last) + 5
        job.say("stop")
        assert all(count > last - 5 for count, _ in job.results())
    finally:
        job.end()
        for rail in (0, 1):
            for host in (0, 1):
                rails.set_up(host, rail, True)


def test_striped_rails_share_the_bytes(rails: Network) -> None:
    """Large messages alternate with the grants of those that come: what goes where must go by bytes. By rails that are
    slower than any processor, so that something is under way when the next one is sent."""
    if not all(rails.set_rate(rail, "50mbit") for rail in (0, 1)):
        pytest.skip("the kernel has no tbf, so nothing is under way when the next one is sent")
    arguments = {"count": 1 << 18}
    job = Job(
        rails, [[0], [1]], programs.timed_all_reduces, arguments, settings={"STARLING_TCP_STRIPING": "1"}
    )
    counts = failovers.Counts(job)
    try:
        counts.until("all-reduces", lambda now: now["done"] > 10)
        job.say("stop")
        job.results()
    finally:
        job.end()
        for rail in (0, 1):
            rails.set_slow(rail, False)
    (by_rail,) = counts.now["bytes"].values()
    assert min(by_rail) > 0.35 * sum(by_rail), counts.now


@pytest.mark.parametrize("striping", (False, True))
def test_many_failovers(rails: Network, striping: bool) -> None:
    """By chance, one after the other (failovers.py makes hundreds)."""
    assert failovers.run(rails, 8, SEED, striping=striping).count == 8


@pytest.mark.parametrize(
    ("order", "every", "striping"),
    part([("random", 0, False), ("random", 0, True), ("latin", 3, True), ("latin", 3, False)]),
)
def test_disorder_through_failovers(rails: Network, order: str, every: int, striping: bool) -> None:
    """As test_disorder, while rails that carry the programs fail: traffic has left them and come back."""
    found = failovers.run(
        rails,
        3,
        SEED,
        striping=striping,
        program=programs.disordered_with_counts,
        hosts=[[0, 1], [2, 3]],
        arguments={"order": order, "every": every, "seed": SEED},
        faults=("own port", "peer's port", "silent"),
    )
    assert found.count == 3 and found.iterations > 0


@pytest.mark.parametrize("striping", (False, True), ids=("primary-backup", "striping"))
def test_flapping_rail(rails: Network, striping: bool) -> None:
    """A rail fails and heals faster than any watchdog sees it, again and again; all-reduces go on meanwhile."""
    chance = random.Random(SEED)
    settings = {"STARLING_TCP_STRIPING": str(int(striping))}
    job = Job(rails, [[0], [1]], programs.all_reduces_with_counts, settings=settings)
    counts = failovers.Counts(job)
    try:
        for fault in ("own port", "peer's port", "silent"):
            counts.until_well(striping)
            closed, resent = counts.now["closed"], rails.resent(0)
            failovers.flap(rails, job, fault, 0, chance, 50)
            counts.until_well(striping)
            # It was felt: by the links, or, where it was over before the links asked, by TCP.
            left = failovers.grown(closed, counts.now["closed"], 0)
            assert left or (fault == "silent" and rails.resent(0) > resent)
        job.say("stop")
        assert min(job.results()) > 0
    finally:
        job.end()


def test_torch(rails: Network) -> None:
    """DDP over two hosts while a rail fails in every way, flaps, and heals: the same losses as undisturbed."""
    pytest.importorskip("torch")
    from starling.torch import _adapter

    _adapter.build()  # here, if need be, and not within the ranks' time
    job = Job(rails, [[0], [1]], programs.torch_training, communicator=False)
    counts = failovers.Counts(job)
    fault = ""
    try:
        for chosen in failovers.FAULTS:
            counts.until_it_carries(0)
            closed = counts.now["closed"]
            fault = chosen
            failovers.disturb(rails, fault, 0, True)
            counts.until_left(0, closed, fault)
            counts.until_it_carries(1)
            failovers.disturb(rails, fault, 0, False)
            fault = ""
        counts.until_it_carries(0)
        closed = counts.now["closed"]
        failovers.flap(rails, job, "own port", 0, random.Random(SEED), 20)
        counts.until_it_carries(0)
        assert failovers.grown(closed, counts.now["closed"], 0), "flaps were not felt"
        job.say("stop")
        for disturbed, undisturbed in job.results():
            assert disturbed == undisturbed
            assert disturbed[-1] < disturbed[0]
    finally:
        job.end()
        if fault:
            failovers.disturb(rails, fault, 0, False)


def next_done(job: Job, after: int) -> int:
    """The newest iteration that is done."""
    while (job.folder / f"done.{after + 1}").exists():
        after += 1
    return after
