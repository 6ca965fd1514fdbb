"""Lanes: ordered streams of operations. Operations of different lanes may be issued in any order on each rank."""

import contextlib
from collections.abc import Iterator

from starling.torch import _adapter


@contextlib.contextmanager
def lane(name: str | None, *, priority: int = 0, algorithm: str | None = None) -> Iterator[None]:
    """Collectives that this thread issues inside go to lane ``name`` of their group.

    Ranks match the operations of one lane by their order in it, and need no common order across lanes. Scopes
    nest. The scope is the thread's: backward hooks run on other threads and open their own scope.

    name: None is the group's default lane.
    priority: larger first, where the scheduling is by priority.
    algorithm: None lets the library choose; else "ring", "one_shot", ...
    """
    adapter = _adapter.load()
    adapter.enter_lane(name, priority, algorithm)
    try:
        yield
    finally:
        adapter.leave_lane()
