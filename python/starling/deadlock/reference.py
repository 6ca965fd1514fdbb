"""DFCCL §2.4.1 word by word, as slow as it comes: the yardstick of the engine.

Parts of collectives are *invoked*, *executing* or *successful*; after every invocation and synchronization the
dependency graph is built anew and searched for a cycle.
"""

from __future__ import annotations

import random

from . import engine
from .configuration import Configuration, GroupList

Part = tuple[int, int]  # collective, GPU
INVOKED, EXECUTING, SUCCESSFUL = "invoked", "executing", "successful"


def base_lists(groups: GroupList, gpus: int, order: str) -> list[list[int]]:
    """The list of each GPU before any disorder; collectives are numbered group by group."""
    first, numbers = 0, []
    for _, collectives in groups:
        numbers.append(range(first, first + collectives))
        first += collectives
    lists: list[list[int]] = []
    for gpu in range(gpus):
        mine = [numbers[g] for g, (members, _) in enumerate(groups) if gpu in members]
        if order == "concatenated":
            lists.append([collective for group in mine for collective in group])
        else:
            longest = max(map(len, mine))
            lists.append([group[i] for i in range(longest) for group in mine if i < len(group)])
    return lists


def draw_program(configuration: Configuration, rng: random.Random) -> engine.Program:
    """One random round: what each GPU would do, turn by turn."""
    groups = configuration.groups
    events: list[list[int]] = []
    synchronizes = configuration.model == "synchronization"
    for base in base_lists(groups, configuration.gpus, configuration.order):
        remaining, mine = list(base), []
        while remaining:
            if synchronizes and rng.random() < configuration.synchronization_probability:
                mine.append(engine.SYNCHRONIZE)
                continue
            at = 0
            while at < len(remaining) - 1 and rng.random() < configuration.disorder_probability:
                at += 1
            mine.append(remaining.pop(at))
        events.append(mine)
    members = [gpus for gpus, collectives in groups for _ in range(collectives)]
    group = [g for g, (_, collectives) in enumerate(groups) for _ in range(collectives)]
    return engine.Program(events, members, group)


class Simulation:
    """One round of given events."""

    def __init__(self, program: engine.Program, model: str) -> None:
        self.events = program.events
        self.members = program.members
        self.model = model
        self.state: dict[Part, str] = {}
        self.queue: list[list[int]] = [[] for _ in self.events]  # per GPU: collectives in order of invocation
        self.suspended = [False] * len(self.events)

    def deadlocks(self) -> bool:
        at = [0] * len(self.events)
        while any(at[gpu] < len(events) for gpu, events in enumerate(self.events)):
            for gpu, events in enumerate(self.events):
                if at[gpu] == len(events):
                    continue
                if events[at[gpu]] == engine.SYNCHRONIZE:
                    self._synchronize(gpu)
                else:
                    self._invoke(events[at[gpu]], gpu)
                at[gpu] += 1
                self._advance()
                if self._has_cycle():
                    return True
        return any(state != SUCCESSFUL for state in self.state.values())

    # The host of a GPU keeps invoking behind a synchronization; nothing of that executes until the suspension ends.
    # A second synchronization behind the first one stands in the queue like an invocation.
    def _invoke(self, collective: int, gpu: int) -> None:
        self.queue[gpu].append(collective)
        self.state[collective, gpu] = INVOKED

    def _synchronize(self, gpu: int) -> None:
        if self.model == "synchronization":
            self.queue[gpu].append(engine.SYNCHRONIZE)

    def _advance(self) -> None:
        """States move on until nothing changes."""
        while self._execute() | self._succeed():
            pass

    def _execute(self) -> bool:
        moved = False
        for gpu, queue in enumerate(self.queue):
            before_all_successful = True
            for collective in queue:
                if collective == engine.SYNCHRONIZE:
                    if not before_all_successful:
                        break  # suspended: what comes later is not executed
                    continue
                state = self.state[collective, gpu]
                if state == INVOKED and (self.model == "synchronization" or before_all_successful):
                    self.state[collective, gpu] = EXECUTING
                    moved = True
                before_all_successful &= self.state[collective, gpu] == SUCCESSFUL
        return moved

    def _succeed(self) -> bool:
        moved = False
        for collective, members in enumerate(self.members):
            if all(self.state.get((collective, gpu)) == EXECUTING for gpu in members):
                for gpu in members:
                    self.state[collective, gpu] = SUCCESSFUL
                moved = True
        return moved

    def _has_cycle(self) -> bool:
        edges: dict[Part, list[Part]] = {}
        for (collective, gpu), state in self.state.items():
            if state == EXECUTING:
                edges[collective, gpu] = [
                    (collective, other)
                    for other in self.members[collective]
                    if other != gpu and self.state.get((collective, other)) == INVOKED
                ]
            elif state == INVOKED:
                edges[collective, gpu] = [
                    (other, gpu) for other in self.queue[gpu] if self.state.get((other, gpu)) == EXECUTING
                ]
        done: set[Part] = set()

        def visit(part: Part, path: set[Part]) -> bool:
            if part in path:
                return True
            if part in done:
                return False
            path.add(part)
            found = any(visit(other, path) for other in edges.get(part, []))
            path.remove(part)
            done.add(part)
            return found

        return any(visit(part, set()) for part in edges)


def deadlocks(program: engine.Program, model: str) -> bool:
    """Whether the round ends in a cycle of the dependency graph."""
    return Simulation(program, model).deadlocks()
