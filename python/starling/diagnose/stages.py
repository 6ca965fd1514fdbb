"""Which part of a parallel training job a rank is: its stage of the pipeline, tensor group and data group (ICCL,
section 5), from the groups that its job made and what they call.

Groups of equal size and stride that split the ranks are a dimension, once they call anything. The one whose ranks
exchange messages is the pipeline. What reduces in its forward passes is tensor parallel, what calls nothing in them
data parallel. Where they do not tell, of several dimensions one that calls at least twice as often as each other is
tensor parallel, one that calls at most half as often data parallel. The rest may be either, and is called so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from starling.diagnose import words
from starling.diagnose.forward import SILENT, ForwardPasses, Shape, ends_of, forward_passes
from starling.diagnose.job import Job
from starling.diagnose.record import Group

EITHER = "tensor or data"
FEWEST_PASSES = 4  # of which to judge
MOST, FEW = 0.75, 0.25  # of the passes: in so many, and in no more
FACTOR = 2  # between calls of two dimensions that are not of one kind


@dataclass(frozen=True)
class Dimension:
    kind: str  # pipeline, tensor, data, or EITHER
    groups: tuple[tuple[int, ...], ...]  # ranks, in order
    why: str  # what its calls have shown

    def place(self, rank: int) -> int:
        """Of the rank in its group."""
        return next((group.index(rank) for group in self.groups if rank in group), -1)

    @property
    def size(self) -> int:
        return len(self.groups[0])

    def is_layer(self, ranks: set[int]) -> bool:
        """Are they all that have one place in their groups: a whole stage, if this is the pipeline?"""
        return any(ranks == set(layer) for layer in zip(*self.groups, strict=True))

    def __str__(self) -> str:
        return f"groups like {words.ranks(self.groups[0])} are {self.kind} parallel: {self.why}"


def dimensions(job: Job) -> list[Dimension]:
    """The pipeline first. Empty where no groups split the job, or those that do have called nothing."""
    found: dict[Shape, set[tuple[int, ...]]] = defaultdict(set)
    shapes: dict[tuple[int, int], Shape] = {}  # by a group's key
    for record in job.records:
        for group in record.groups:
            shape = _shape_of(job, group)
            if shape is not None:
                shapes[group.key] = shape
                found[shape].add(tuple(job.number(member) for member in group.members))
    whole = {shape: sorted(groups) for shape, groups in found.items() if _splits(groups, job.size)}
    messages, calls = _messages(job), _calls(job, shapes)
    pipeline = max(whole, key=lambda shape: messages[shape[1]], default=None)
    told = []
    passes = ForwardPasses()
    if pipeline is not None and messages[pipeline[1]]:
        told.append(Dimension("pipeline", tuple(whole[pipeline]), f"{messages[pipeline[1]]} messages"))
        passes = forward_passes(job, whole.pop(pipeline), shapes)
    kinds = _kinds({shape: calls[shape] for shape in whole if calls[shape].ever}, passes)
    return told + [Dimension(kind, tuple(whole[shape]), why) for shape, (kind, why) in kinds.items()]


def _shape_of(job: Job, group: Group) -> Shape | None:
    """None: not all of its ranks are equally far from each other, or they are the whole job."""
    ranks = [job.number(member) for member in group.members]
    strides = {b - a for a, b in pairwise(ranks)}
    if not 1 < len(ranks) < job.size or len(strides) != 1 or min(strides) < 1:
        return None
    return len(ranks), strides.pop()


def _splits(groups: set[tuple[int, ...]], size: int) -> bool:
    """Is each rank in one of them?"""
    ranks = [rank for group in groups for rank in group]
    return sorted(ranks) == list(range(size))


def _messages(job: Job) -> dict[int, int]:
    """All that the ranks ever sent to others and received from them, by distance."""
    messages: dict[int, int] = defaultdict(int)
    for record in job.records:
        for index, lane in record.lanes.items():
            ends = ends_of(job, record, index)
            if ends is not None and ends[0] != ends[1]:
                messages[abs(ends[0] - ends[1])] += lane.submitted
    return messages


@dataclass
class Calls:
    """Of the groups of a shape."""

    ever: int = 0
    lately: int = 0  # of what the records still have, without what groups of both kinds call

    def outnumber(self, other: Calls) -> bool:
        """In both counts: the first has what a job calls to set itself up, the second may hold part of a step."""
        return self.ever >= FACTOR * other.ever and self.lately >= max(1, FACTOR * other.lately)


def _calls(job: Job, shapes: dict[tuple[int, int], Shape]) -> dict[Shape, Calls]:
    calls: dict[Shape, Calls] = defaultdict(Calls)
    for record in job.records:
        of_lane: dict[int, Calls] = {}
        for index, lane in record.lanes.items():
            if lane.source < 0 and lane.group < len(record.groups):
                shape = shapes.get(record.groups[lane.group].key)
                if shape is not None:
                    of_lane[index] = calls[shape]
                    calls[shape].ever += lane.submitted
        for op in record.operations:
            if op.lane in of_lane and op.kind not in SILENT:
                of_lane[op.lane].lately += 1
    return calls


def _kinds(calls: dict[Shape, Calls], passes: ForwardPasses) -> dict[Shape, tuple[str, str]]:
    """Kind and reason of each, of what is not the pipeline."""
    told = {shape: _by_passes(shape, passes) for shape in calls}
    ordered = sorted(calls, key=lambda shape: (-calls[shape].ever, shape[1]))
    kinds = {kind for kind, _ in told.values()}
    if len(ordered) > 1:
        (most, second), (last_but_one, least) = ordered[:2], ordered[-2:]
        # What gathers in forward passes and reduces in none may be data parallel with sharded parameters.
        known = passes.number >= FEWEST_PASSES
        if not known and calls[most].outnumber(calls[second]):
            told[most] = ("tensor", f"{calls[most].ever} calls against {calls[second].ever}")
        undecided = told[least][0] == EITHER and "data" not in kinds
        if undecided and calls[last_but_one].outnumber(calls[least]):
            told[least] = ("data", f"{calls[least].ever} calls against {calls[last_but_one].ever}")
    return {shape: told[shape] for shape in ordered}


def _by_passes(shape: Shape, passes: ForwardPasses) -> tuple[str, str]:
    number, called, reduced = passes.number, passes.called[shape], passes.reduced[shape]
    if number < FEWEST_PASSES:
        return EITHER, f"only {number} forward passes are known" if number else "no forward passes are known"
    if reduced >= MOST * number:
        return "tensor", f"they reduced in {reduced} of {number} forward passes"
    if called <= FEW * number:
        return "data", f"they called in {called} of {number} forward passes"
    return EITHER, f"they called in {called} of {number} forward passes, and reduced in {reduced}"


def name_of(known: list[Dimension], ranks: set[int]) -> str:
    """pipeline stage 1 of 2, tensor rank 0 of 2: of what all of the ranks share. "" if nothing."""
    told = []
    for dimension in known:
        places = {dimension.place(rank) for rank in ranks}
        if len(places) == 1:
            what = "stage" if dimension.kind == "pipeline" else "rank"
            told.append(f"{dimension.kind} {what} {places.pop()} of {dimension.size}")
    return ", ".join(told)
