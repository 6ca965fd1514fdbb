"""Which part of a parallel training job a rank is: its stage of the pipeline, tensor group and data group (ICCL,
section 5), from the groups that its job made and what they call.

Groups of equal size and stride that split the ranks are a dimension. The one whose ranks exchange messages is the
pipeline; of the others the one that calls most often is tensor parallel, the one that calls least often data parallel.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from starling.diagnose.job import Job


@dataclass(frozen=True)
class Dimension:
    kind: str  # pipeline, tensor, data
    groups: tuple[tuple[int, ...], ...]  # ranks, in order

    def place(self, rank: int) -> int:
        """Of the rank in its group."""
        return next((group.index(rank) for group in self.groups if rank in group), -1)

    @property
    def size(self) -> int:
        return len(self.groups[0])

    def layer(self, place: int) -> set[int]:
        """The ranks that have this place in their groups: a stage, if this is the pipeline."""
        return {group[place] for group in self.groups}


def dimensions(job: Job) -> list[Dimension]:
    """Empty where the job's groups split it no two ways."""
    messages: dict[int, int] = defaultdict(int)  # by distance
    calls: dict[tuple[int, int], int] = defaultdict(int)  # by (size, stride)
    found: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    for record in job.records:
        called: dict[int, int] = defaultdict(int)  # by group
        for lane in record.lanes.values():
            if lane.source < 0:
                called[lane.group] += lane.submitted
            elif lane.key in job.lanes:
                numbers = [job.number(member) for member in job.lanes[lane.key].members]
                messages[abs(numbers[0] - numbers[-1])] += lane.submitted
        for index, group in enumerate(record.groups):
            ranks = tuple(job.number(member) for member in group.members)
            strides = {b - a for a, b in pairwise(ranks)}
            if not 1 < len(ranks) < job.size or len(strides) != 1 or min(strides) < 1:
                continue
            shape = (len(ranks), strides.pop())
            found[shape].add(ranks)
            calls[shape] += called[index]
    whole = {shape: sorted(groups) for shape, groups in found.items() if _splits(groups, job.size)}
    if len(whole) < 2:
        return []
    pipeline = max(whole, key=lambda shape: messages[shape[1]])
    kinds = {pipeline: "pipeline"} if messages[pipeline[1]] else {}
    rest = sorted(
        (shape for shape in whole if shape not in kinds), key=lambda shape: (-calls[shape], shape[1])
    )
    for shape, kind in ((rest[0], "tensor"), (rest[-1], "data")) if len(rest) > 1 else ((rest[0], "data"),):
        kinds[shape] = kind
    return [Dimension(kind, tuple(whole[shape])) for shape, kind in kinds.items()]


def _splits(groups: set[tuple[int, ...]], size: int) -> bool:
    """Is each rank in one of them?"""
    ranks = [rank for group in groups for rank in group]
    return sorted(ranks) == list(range(size))


def name_of(job: Job, ranks: set[int]) -> str:
    """pipeline stage 1 of 2; tensor rank 0 of 2: of what all of the ranks share, the pipeline first. "" if nothing."""
    told = []
    for dimension in sorted(dimensions(job), key=lambda d: d.kind != "pipeline"):
        places = {dimension.place(rank) for rank in ranks}
        if len(places) == 1:
            what = "stage" if dimension.kind == "pipeline" else "rank"
            told.append(f"{dimension.kind} {what} {places.pop()} of {dimension.size}")
    return ", ".join(told)
