"""A rank's memory, daemon and poller: what a GPU is to a process that uses one."""

from __future__ import annotations

import atexit
import enum
import os
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from starling import _core
from starling.arguments import LARGEST_FACTOR, LARGEST_NS, check, check_number

if TYPE_CHECKING:
    from types import TracebackType

    from starling.comm import Communicator

__all__ = ["Context", "Order", "Scheduling", "Statistics", "TraceRecord", "default_context", "live_contexts"]


_MOST_RECORDS = 1 << 24  # a block keeps its newest 16384


class Order(enum.IntEnum):
    """Order of a daemon's task queue."""

    FIFO = 0
    PRIORITY = 1


@dataclass(frozen=True)
class Scheduling:
    """How willing a rank is to wait (DFCCL §4.3). All ranks should use the same. 0: the library's choice."""

    initial_budget_ns: int = 0
    """Of the front task."""
    minimum_budget_ns: int = 0
    """No task gets less; 1 means one poll."""
    success_factor: int = 0
    """A finished instruction multiplies the budget of the next; 1: it stays."""
    position_shift: int = 0
    """The task at position p starts with ``initial_budget_ns >> (p * position_shift)``."""
    quit_period_ns: int = 0
    """Without progress for so long, the daemon leaves."""
    residency_limit_ns: int = 0
    """It leaves after so long in any case; at least 100 us."""
    order: Order = Order.FIFO
    fixed: bool = False
    """No stickiness: every budget is ``initial_budget_ns``."""
    unbounded: bool = False
    """Yielding switched off, to show what other libraries do; such a program can hang for ever."""
    in_turn: bool = False
    """DFCCL's way: wait on each task in turn for its budget. Else those that can go on run, with short budgets while
    there are several."""

    def __post_init__(self) -> None:
        for name in ("initial_budget_ns", "minimum_budget_ns", "quit_period_ns", "residency_limit_ns"):
            check_number(name, getattr(self, name), LARGEST_NS)
        for name in ("success_factor", "position_shift"):
            check_number(name, getattr(self, name), LARGEST_FACTOR)
        for name in ("fixed", "unbounded", "in_turn"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is {getattr(self, name)!r:.80}; pass True or False")
        if not isinstance(self.order, int):
            raise TypeError(f"order is {self.order!r:.80}; pass a starling.Order")


@dataclass(frozen=True)
class Statistics:
    """Counters of one rank since its context was made; bytes and slots are of now."""

    submissions: int
    completions: int
    launches: int
    quits_idle: int
    quits_stuck: int
    quits_drained: int
    parks: int
    resumes: int
    context_saves: int
    context_loads: int
    instructions: int
    queue_peak: int
    lanes: int
    lane_bytes: int
    """Memory of all lanes on this rank, their slots included."""
    pool_slots: int
    pool_slots_used: int


_EVENTS = ("launch", "quit", "fetch", "run", "park", "complete", "publish", "fault")


@dataclass(frozen=True)
class TraceRecord:
    """One event of a block of the daemon."""

    time_ns: int
    """Monotonic clock of the host: ``time.monotonic_ns()``."""
    event: str
    """launch, quit, fetch, run, park, complete, publish or fault."""
    lane: int
    """Its name: ``Context.lane_name``."""
    sequence: int
    block: int
    detail: int
    """park: the instruction << 32 | the rank waited for."""


# Contexts that are alive: device synchronization and the end of the process concern them all. Python gives a
# process one interpreter, so one list.
_live: set[Context] = set()
_live_lock = threading.Lock()


class Context:
    """One rank's side of everything. One a process; ranks that are threads of one process have one each.

    Args:
        blocks: threads of the daemon, thread blocks on a GPU; 0: ``STARLING_BLOCKS``, or the library's choice.
        scheduling: a ``Scheduling``, or None for the library's choice.
        arena_bytes: address space of the shared segment (memory is used where touched only); 0: the default.
        pool_bytes: of the pool of large slots; 0: the default.
        completion_queue: "ring", "packed_ring" or "slots" (DFCCL §5); None: the default.
        device: where the daemon runs and the buffers of all operations lie: "cpu", or "cuda:0" and so on. On a
            GPU buffers are CUDA tensors (anything with DLPack) or pinned memory; an operation begins when it is
            submitted, so what wrote its buffers must have finished: it is not ordered with CUDA streams.

    May be used from any thread. Use it as a context manager, or call ``destroy()``; what is left at exit is
    destroyed then.
    """

    def __init__(
        self,
        blocks: int = 0,
        scheduling: Scheduling | None = None,
        *,
        arena_bytes: int = 0,
        pool_bytes: int = 0,
        completion_queue: str | None = None,
        device: str = "cpu",
    ) -> None:
        check_number("blocks", blocks, LARGEST_FACTOR)
        check_number("arena_bytes", arena_bytes, LARGEST_NS)
        check_number("pool_bytes", pool_bytes, LARGEST_NS)
        check(device=device, completion_queue=completion_queue)
        if not isinstance(scheduling, Scheduling | None):
            raise TypeError(f"scheduling is {scheduling!r:.80}; pass a starling.Scheduling, or None")
        self.device = device
        self._communicators: set[Communicator] = set()
        self._ending = threading.Lock()
        self._core = _core.Context(
            blocks=blocks,
            arena_bytes=arena_bytes,
            pool_bytes=pool_bytes,
            scheduling=asdict(scheduling) if scheduling else {},
            completion_queue=completion_queue,
            device=device,
        )
        with _live_lock:
            _live.add(self)

    def attach(self, communicator: Communicator) -> None:
        """By a communicator that is made: it lives until it is destroyed, or the context is."""
        self._communicators.add(communicator)

    def detach(self, communicator: Communicator) -> None:
        """By a communicator that is destroyed."""
        self._communicators.discard(communicator)

    @property
    def handle(self) -> int:
        """The ``starling_context*`` as a number, for code that calls the C API; 0 after ``destroy()``."""
        return int(self._core.handle)

    @property
    def blocks(self) -> int:
        """Blocks of the daemon: a plan with more cannot run."""
        return int(self._core.blocks)

    def synchronize(self) -> None:
        """Device synchronization: returns when nothing that was resident at the call is resident any more.

        As ``cudaDeviceSynchronize``. It does not wait for parked operations: the daemon quits under it and is
        started again.
        """
        self._core.synchronize()

    def profile(self) -> Scheduling:
        """Measures this machine and sets the scheduling from it; returns what it chose."""
        return _scheduling_of(self._core.profile())

    def statistics(self) -> Statistics:
        return Statistics(**self._core.statistics())

    def trace(self, most: int = 1 << 16) -> list[TraceRecord]:
        """The newest records of all blocks, oldest first, at most ``most``."""
        check_number("most", most, _MOST_RECORDS)
        return [
            TraceRecord(time_ns, _EVENTS[event], lane, sequence, block, detail)
            for time_ns, sequence, detail, lane, block, event in self._core.trace(most)
        ]

    def lane_name(self, lane: int) -> str:
        """Name of a lane by its number in the trace; "" if there is none."""
        check_number("lane", lane, LARGEST_FACTOR)
        return str(self._core.lane_name(lane))

    def destroy(self) -> None:
        """Destroys its communicators, then itself; waits (bounded) for what is under way. May be repeated."""
        with self._ending:
            # Children keep their parents' lanes in use: youngest first.
            for communicator in sorted(self._communicators, key=lambda one: one.creation, reverse=True):
                communicator.destroy()
            self._core.destroy()
        with _live_lock:
            _live.discard(self)

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a failure here, peers must not wait for operations that will never come.
        if error is not None:
            for communicator in list(self._communicators):
                communicator.abort(f"{type(error).__name__}: {error}")
        self.destroy()


def _scheduling_of(fields: dict[str, Any]) -> Scheduling:
    return Scheduling(**{**fields, "order": Order(fields["order"])})


def live_contexts() -> list[Context]:
    """The contexts of this process that are not destroyed."""
    with _live_lock:
        return list(_live)


_default: list[Context] = []
_default_lock = threading.Lock()


def default_context() -> Context:
    """The context of this process, made at the first call."""
    with _default_lock:
        if not _default or _default[0].handle == 0:
            _default[:] = [Context()]
        return _default[0]


def _end() -> None:
    """At exit: no callback enters Python any more, and nothing of this rank stays behind in /dev/shm."""
    _core.end_callbacks()
    for context in live_contexts():
        for communicator in list(context._communicators):
            communicator.abort_if_busy("the process ended while operations were under way")
        context.destroy()


def _after_fork() -> None:
    """In a forked child: what it inherited is its parent's, and is left alone; it may make contexts of its own."""
    global _live_lock, _default_lock
    _live_lock, _default_lock = threading.Lock(), threading.Lock()  # a thread that is not here may hold them
    _live.clear()
    _default.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_after_fork)
