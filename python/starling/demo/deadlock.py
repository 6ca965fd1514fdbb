"""`starling demo deadlock`: two programs, with yielding and without, and who waited for whom."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starling import launch, timeline
from starling.context import Context, Scheduling
from starling.demo.programs import Program, run_rank
from starling.timeline import Event

_GRACE_S = 60.0  # beside the limit, after which ranks write where they are: to start, to join and to write


@dataclass(frozen=True)
class Wait:
    """At the end, `rank` held its place for `lane` and waited for `peer`, which held `peer_lane`."""

    rank: int
    lane: str
    peer: int
    peer_lane: str


@dataclass(frozen=True)
class Run:
    """What became of one program."""

    finished: bool
    right: bool
    ranks: list[dict[str, Any]]
    events: list[Event] = field(repr=False)
    waits: list[Wait]
    cycle: list[Wait]

    def total(self, name: str) -> int:
        return sum(rank["statistics"][name] for rank in self.ranks)

    def summary(self) -> dict[str, Any]:
        """For people and for JSON."""
        return {
            "finished": self.finished,
            "right": self.right,
            "iterations": min((rank["state"]["iterations"] for rank in self.ranks), default=0),
            "seconds": max((rank["state"]["seconds"] for rank in self.ranks), default=0.0),
            "parks": self.total("parks"),
            "quits": self.total("quits_stuck") + self.total("quits_idle") + self.total("quits_drained"),
            "stopped_at": {rank["state"]["rank"]: rank["state"]["doing"] for rank in self.ranks},
            "cycle": [wait.__dict__ for wait in self.cycle],
        }


def run(program: Program, ranks: int, *, yields: bool, limit_s: float) -> Run:
    """Runs the program on processes of this host; ends them after the limit."""
    # One block: what a GPU does whose multiprocessors are all taken. Without yielding its first task keeps it.
    context = {"blocks": 1, "scheduling": Scheduling(unbounded=not yields)}
    with tempfile.TemporaryDirectory(prefix="starling-demo-") as folder:
        launch.run_processes(
            ranks,
            functools.partial(run_rank, program, folder, limit_s),
            timeout=limit_s + _GRACE_S,
            check=False,
            context=context,
            operation_timeout=limit_s + 10 * _GRACE_S,
        )
        Context(pool_bytes=1 << 20).destroy()  # a new context removes what killed ranks left in /dev/shm
        facts = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank.*.json"))]
    facts.sort(key=lambda one: one["state"]["rank"])
    events = [Event(**event) for one in facts for event in one.pop("events")]
    finished = len(facts) == ranks and all(one["state"]["finished"] for one in facts)
    waits = [] if finished else who_waits_for_whom(events)
    return Run(
        finished=finished,
        right=finished and not any(one["state"]["wrong"] for one in facts),
        ranks=facts,
        events=events,
        waits=waits,
        cycle=shortest_cycle(waits),
    )


def who_waits_for_whom(events: list[Event]) -> list[Wait]:
    """A rank's block holds the operation that it ran last and did not finish. It waits for every rank that has not
    come to that operation, because it holds another."""
    held: dict[int, str] = {}
    for rank, pending in timeline.unfinished(events).items():
        running = [event for event in pending if event.event == "run"]
        if running:
            held[rank] = max(running, key=lambda event: event.time_ns).lane
    done = {(event.rank, event.lane, event.sequence) for event in events if event.event == "publish"}
    newest = {(event.rank, event.lane): event.sequence for event in events if event.event == "run"}
    waits = []
    for rank, lane in held.items():
        for peer, peer_lane in held.items():
            passed = (peer, lane, newest.get((rank, lane), 0)) in done
            if peer != rank and peer_lane != lane and not passed:
                waits.append(Wait(rank, lane, peer, peer_lane))
    return waits


def shortest_cycle(waits: list[Wait]) -> list[Wait]:
    """The ranks of a shortest circle of waits, as the waits between them; empty if there is none."""
    edges: dict[int, list[Wait]] = {}
    for wait in waits:
        edges.setdefault(wait.rank, []).append(wait)
    best: list[Wait] = []
    for start in edges:
        paths: list[list[Wait]] = [[wait] for wait in edges[start]]
        seen = {start}
        while paths and (not best or len(paths[0]) < len(best)):
            path = paths.pop(0)
            at = path[-1].peer
            if at == start:
                best = path
                break
            if at not in seen:
                seen.add(at)
                paths += [[*path, wait] for wait in edges.get(at, [])]
    return best
