"""Forward passes of a pipeline, and which groups were called within them: a tensor group reduces activations there, a
data group has nothing to reduce before the backward pass.

Messages bound them: a pass begins when activations came from the stage below, on the first stage when the last ones
were sent and no gradients came since; it ends when its own are sent to the stage above.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from starling.diagnose.job import Job
from starling.diagnose.record import Record

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
SILENT = ("broadcast", "barrier")  # groups of either kind call these
Shape = tuple[int, int]  # of groups: ranks in each, and the distance from one to the next


@dataclass
class ForwardPasses:
    """Those that the ranks' last operations hold from begin to end."""

    number: int = 0
    called: Counter[Shape] = field(default_factory=Counter)  # in how many passes
    reduced: Counter[Shape] = field(default_factory=Counter)


def ends_of(job: Job, record: Record, lane: int) -> tuple[int, int] | None:
    """Sender and receiver of a lane of messages."""
    entry = record.lanes.get(lane)
    if entry is None or entry.source < 0 or entry.group >= len(record.groups):
        return None
    members = record.groups[entry.group].members
    if max(entry.source, entry.destination) >= len(members):
        return None
    return job.number(members[entry.source]), job.number(members[entry.destination])


def forward_passes(
    job: Job, pipeline: list[tuple[int, ...]], shapes: dict[tuple[int, int], Shape]
) -> ForwardPasses:
    """shapes: of groups, by key. None are known where no message ever went down: what went up may be anything."""
    found = ForwardPasses()
    if not any(_goes_down(job, record) for record in job.records):
        return found
    for record in job.records:
        own = job.number(record.id)
        column = next((group for group in pipeline if own in group), None)
        if column is not None and own != column[-1]:
            _add_passes(found, job, record, column, shapes)
    return found


def _goes_down(job: Job, record: Record) -> bool:
    ends = (ends_of(job, record, index) for index, lane in record.lanes.items() if lane.submitted)
    return any(pair is not None and pair[0] > pair[1] for pair in ends)


def _add_passes(
    found: ForwardPasses,
    job: Job,
    record: Record,
    column: tuple[int, ...],
    shapes: dict[tuple[int, int], Shape],
) -> None:
    """Of one rank."""
    own = job.number(record.id)
    place = column.index(own)
    above, below = column[place + 1], column[place - 1] if place else None
    state = _Stage(first=place == 0)
    for op in record.operations:
        lane = record.lanes.get(op.lane)
        if lane is None or op.submitted_ns < lane.opened_ns or lane.group >= len(record.groups):
            continue
        if lane.source < 0:
            state.calls(shapes.get(record.groups[lane.group].key), op.kind)
            continue
        message = ends_of(job, record, op.lane)
        if message == (own, above):
            within = state.sends_up()
            if within is not None:
                found.number += 1
                found.called.update({shape for shape, _ in within})
                found.reduced.update({shape for shape, kind in within if kind in REDUCING})
        elif message == (below, own):
            state.receives_activations()
        elif message == (above, own):
            state.receives_gradients()
        elif message == (own, below):
            state.sends_down()


@dataclass
class _Stage:
    """One rank's way through its messages. A receive that comes just before a send is of a later pass than the send."""

    first: bool
    begun: int = 0  # passes whose input is there
    called: list[tuple[Shape, str]] = field(default_factory=list)  # since the last message but gradients
    before: list[tuple[Shape, str]] = field(default_factory=list)  # until the last activations came
    gradients: bool = False  # came, and nothing was called since

    def calls(self, shape: Shape | None, kind: str) -> None:
        if self.gradients and self.first:
            self.begun = 0  # this is a backward pass, and the forward pass after it is not told from it
        self.gradients = False
        if shape is not None and kind not in SILENT:
            self.called.append((shape, kind))

    def receives_activations(self) -> None:
        self.begun += 1
        self.before, self.called = self.called, []

    def receives_gradients(self) -> None:
        self.gradients = True

    def sends_up(self) -> list[tuple[Shape, str]] | None:
        """What the pass that ends here called; None: its begin is not known."""
        within = None
        if self.begun:
            within = self.called or (self.before if self.begun > 1 else [])
        self.begun = 1 if self.first else max(0, self.begun - 1)
        self.called, self.before = [], []
        return within

    def sends_down(self) -> None:
        self.called, self.before = [], []
