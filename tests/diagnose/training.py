"""What the ranks of a training job call, step by step, as frameworks do."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.records import Call, records_of
from starling.diagnose.record import OPERATIONS, Record

Kinds = tuple[str, ...]
SUMS: Kinds = ("all_reduce",) * 4
SEQUENCE: Kinds = ("all_gather", "reduce_scatter") * 2  # tensor parallel along the sequence
Event = tuple[str, str | int]  # a kind in a dimension, or "to" and "from" a stage


@dataclass(frozen=True)
class Training:
    """Rank: tensor place, then data place, then stage, as Megatron-LM counts."""

    stages: int = 1
    tensor: int = 1
    data: int = 1
    order: str = "gpipe"  # or 1f1b
    micro_batches: int = 4
    steps: int = 3
    in_pass: Kinds = SUMS  # tensor groups, forward and backward
    after_step: Kinds = ("all_reduce",) * 3  # data groups
    before_steps: Kinds = ()
    in_forward: Kinds = ()
    in_backward: Kinds = ()
    backward: bool = True
    receives_first: bool = False  # of a send and a receive of one moment
    posted_ahead: bool = False  # the receives of a step's activations

    @property
    def size(self) -> int:
        return self.stages * self.tensor * self.data

    def groups(self, dimension: str) -> list[list[int]]:
        sizes = {"tensor": self.tensor, "data": self.data, "pipeline": self.stages}
        strides = {"tensor": 1, "data": self.tensor, "pipeline": self.tensor * self.data}
        size, stride = sizes[dimension], strides[dimension]
        firsts = [rank for rank in range(self.size) if rank // stride % size == 0]
        return [[first + stride * k for k in range(size)] for first in firsts]

    def records(self, made: Sequence[str] = ("tensor", "data", "pipeline")) -> list[Record]:
        """made: dimensions that have groups."""
        groups = [
            (dimension, group)
            for dimension in made
            for group in self.groups(dimension)
            if 1 < len(group) < self.size
        ]
        lanes: dict[str, int | tuple[int, int]] = {}
        kinds: dict[str, str] = {}
        calls = []
        for rank in range(self.size):
            mine = {dimension: k + 1 for k, (dimension, group) in enumerate(groups) if rank in group}
            sequences: dict[str, itertools.count[int]] = {}
            of_rank: list[Call] = []
            for what, where in self._events(rank // (self.tensor * self.data)):
                if what in ("to", "from"):
                    assert isinstance(where, int)
                    other = rank % (self.tensor * self.data) + where * self.tensor * self.data
                    pair = (rank, other) if what == "to" else (other, rank)
                    name, kind = f"{pair[0]} to {pair[1]}", "send/recv"
                    lanes[name] = pair
                elif where in mine:
                    assert isinstance(where, str)
                    name, kind = f"{what} of {where} {mine[where]}", what
                    lanes[name] = mine[where]
                else:
                    continue
                kinds[name] = kind
                position = next(sequences.setdefault(name, itertools.count()))
                begin = 900 - 0.01 * len(of_rank)
                of_rank.append((name, position, begin, begin - 0.005))
            calls.append(of_rank)
        made_by_hand = records_of(calls, [group for _, group in groups], lanes, kinds)
        return [dataclasses.replace(r, operations=r.operations[-OPERATIONS:]) for r in made_by_hand]

    def _events(self, stage: int) -> list[Event]:
        events: list[Event] = [(kind, "data") for kind in self.before_steps]
        for _ in range(self.steps):
            if self.posted_ahead and stage:
                events += [("from", stage - 1)] * self.micro_batches
            for forward in self._passes(stage):
                events += self._forward(stage) if forward else self._backward(stage)
            events += [(kind, "data") for kind in self.after_step]
        if self.receives_first:
            for k, ((first, _), (second, _)) in enumerate(itertools.pairwise(events)):
                if (first, second) == ("to", "from"):
                    events[k : k + 2] = events[k + 1], events[k]
        return events

    def _passes(self, stage: int) -> list[bool]:
        """Of a step; True: forward."""
        ahead = self.micro_batches
        if self.order == "1f1b":
            ahead = min(ahead, self.stages - stage - 1)
        passes = [True] * ahead + [True, False] * (self.micro_batches - ahead) + [False] * ahead
        return passes if self.backward else [True] * self.micro_batches

    def _forward(self, stage: int) -> list[Event]:
        events: list[Event] = [("from", stage - 1)] if stage and not self.posted_ahead else []
        events += [(kind, "data") for kind in self.in_forward]
        events += [(kind, "tensor") for kind in self.in_pass]
        return events + ([("to", stage + 1)] if stage < self.stages - 1 else [])

    def _backward(self, stage: int) -> list[Event]:
        events: list[Event] = [("from", stage + 1)] if stage < self.stages - 1 else []
        events += [(kind, "tensor") for kind in self.in_pass]
        events += [(kind, "data") for kind in self.in_backward]
        return events + ([("to", stage - 1)] if stage else [])
