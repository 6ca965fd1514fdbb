"""Runs a function on N ranks of this host: as threads of this process, or as processes.

For tests, examples and notebooks; large jobs start with torchrun, mpirun or srun (``starling.environment``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from starling.comm import Communicator
from starling.context import Context
from starling.errors import AbortedError, StarlingError
from starling.stores import FileStore, InProcessStore, Store

__all__ = [
    "LaunchTimeoutError",
    "Outcome",
    "RankDiedError",
    "RanksFailedError",
    "run_processes",
    "run_threads",
]

RankFunction = Callable[[Communicator], Any]
_Arguments = tuple[Mapping[str, Any], Mapping[str, Any]]  # of a rank's context, and of its communicator

_GRACE_S = 10.0  # for threads that were told to stop


class RankDiedError(StarlingError):
    """A process of a rank ended without a result."""


class LaunchTimeoutError(StarlingError, TimeoutError):
    """A rank had no result at the timeout; it was killed (a process) or aborted (a thread)."""


@dataclass(frozen=True)
class Outcome:
    """What became of one rank."""

    rank: int
    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    """Of the error, as text."""


class RanksFailedError(StarlingError):
    """Some ranks failed. ``outcomes`` has all ranks; the text has the first errors."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)
        failed = [one for one in outcomes if one.error is not None]
        lines = [f"{len(failed)} of {len(outcomes)} ranks failed"]
        lines += [f"rank {one.rank}: {type(one.error).__name__}: {one.error}" for one in failed]
        if failed[0].trace:
            lines.append(f"rank {failed[0].rank}'s trace:\n{failed[0].trace}")
        super().__init__("\n".join(lines))


def run_threads(
    size: int,
    function: RankFunction,
    *,
    timeout: float = 60.0,
    check: bool = True,
    context: Mapping[str, Any] | None = None,
    communicator: Mapping[str, Any] | None = None,
    operation_timeout: float | None = None,
) -> Any:
    """Calls ``function(communicator)`` on ``size`` ranks, each a thread with a context of its own.

    Returns the list of results, by rank; raises ``RanksFailedError`` if any rank failed. With ``check=False``
    it returns a list of ``Outcome`` and raises nothing.

    timeout: seconds for the whole; then operations are aborted, and threads that do not end are left alone.
    context: arguments of each rank's ``Context``; a function among them is called with the rank.
    communicator: more arguments of each rank's ``Communicator``.
    operation_timeout: the communicators' timeout, in seconds.
    """
    ranks = _ThreadedRanks()
    outcomes: list[Outcome | None] = [None] * size

    def run(rank: int) -> None:
        outcomes[rank] = _run_rank(
            rank,
            size,
            function,
            ranks,
            (dict(context or {}), dict(communicator or {})),
            operation_timeout or timeout,
            ranks.keep,
        )

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    try:
        for thread in threads:
            thread.start()
        late = _join(threads, time.monotonic() + timeout)
    except BaseException:  # Ctrl-C: the ranks' threads do not see it, and some may not have begun
        ranks.stop("interrupted")
        _join(threads, time.monotonic() + _GRACE_S)
        raise
    if late:
        ranks.stop(f"not finished within {timeout} s")
        _join(threads, time.monotonic() + _GRACE_S)
    finished = [
        outcome or Outcome(rank, error=LaunchTimeoutError(f"rank {rank} did not end within {timeout} s"))
        for rank, outcome in enumerate(outcomes)
    ]
    return _results(finished, check)


def run_processes(
    size: int,
    function: RankFunction,
    timeout: float = 60.0,
    *,
    check: bool = True,
    context: Mapping[str, Any] | None = None,
    communicator: Mapping[str, Any] | None = None,
    operation_timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """As ``run_threads``, each rank a process. At the timeout, or if this call is interrupted, all are killed.

    function: a function of a module (processes import it), with picklable results; or a ``functools.partial``.
    environment: variables for the ranks' processes, before they use the library.
    """
    folder = tempfile.mkdtemp(prefix="starling-launch-")
    spawner = multiprocessing.get_context("forkserver")
    spawner.set_forkserver_preload(["numpy", "starling.launch"])
    receivers: dict[Connection, int] = {}
    processes = []
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + timeout
    try:
        for rank in range(size):
            receiver, sender = spawner.Pipe(duplex=False)
            arguments = (dict(context or {}), dict(communicator or {}))
            job = (rank, size, function, folder, arguments, operation_timeout or timeout)
            process = spawner.Process(
                target=_process_main, args=(sender, dict(environment or {}), job), daemon=True
            )
            process.start()
            sender.close()
            processes.append(process)
            receivers[receiver] = rank
        _collect(receivers, processes, outcomes, deadline)
        for rank in range(size):
            if rank not in outcomes:
                error = LaunchTimeoutError(f"rank {rank} did not end within {timeout} s and was killed")
                outcomes[rank] = Outcome(rank, error=error)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
        for process in processes:
            process.join()
        shutil.rmtree(folder, ignore_errors=True)
    return _results([outcomes[rank] for rank in range(size)], check)


def _run_rank(
    rank: int,
    size: int,
    function: RankFunction,
    store: Store,
    arguments: _Arguments,
    timeout: float,
    keep: Callable[[Communicator], None] = lambda communicator: None,
) -> Outcome:
    try:
        try:
            own_arguments = {
                name: value(rank) if callable(value) else value for name, value in arguments[0].items()
            }
            context = Context(**own_arguments)
        except Exception as error:
            with contextlib.suppress(StarlingError):
                Communicator.decline(str(error), rank=rank, size=size, name="launch", store=store)
            raise
        with (
            context as own,
            Communicator(
                own, rank=rank, size=size, name="launch", store=store, timeout=timeout, **arguments[1]
            ) as communicator,
        ):
            keep(communicator)
            value = function(communicator)
        return Outcome(rank, value)
    except _StoppedError as stopped:
        return Outcome(rank, error=AbortedError(str(stopped)), trace=traceback.format_exc())
    except BaseException as error:
        return Outcome(rank, error=error, trace=traceback.format_exc())


def _results(outcomes: list[Outcome], check: bool) -> Any:
    if not check:
        return outcomes
    if any(outcome.error is not None for outcome in outcomes):
        raise RanksFailedError(outcomes)
    return [outcome.value for outcome in outcomes]


# ---- threads ---------------------------------------------------------------------------------------------------


class _StoppedError(BaseException):
    """Ends a rank that is joining, as Ctrl-C does."""


class _ThreadedRanks(InProcessStore):
    """Where the ranks of one run meet, and how they are stopped: those too that come later."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._communicators: list[Communicator] = []
        self._reason: str | None = None

    def get(self, key: str, timeout: float) -> bytes:
        if self._reason is not None:
            raise _StoppedError(self._reason)
        return super().get(key, timeout)

    def keep(self, communicator: Communicator) -> None:
        """By a rank that has joined."""
        with self._lock:
            self._communicators.append(communicator)
            reason = self._reason
        if reason is not None:
            raise _StoppedError(reason)

    def stop(self, reason: str) -> None:
        with self._lock:
            self._reason = reason
            joined = list(self._communicators)
        for communicator in joined:
            with contextlib.suppress(StarlingError):
                communicator.abort(reason)


def _join(threads: Sequence[threading.Thread], deadline: float) -> bool:
    """Whether any is still running at the deadline."""
    for thread in threads:
        if thread.ident is not None:  # else it was never started
            thread.join(max(0.0, deadline - time.monotonic()))
    return any(thread.is_alive() for thread in threads)


# ---- processes -------------------------------------------------------------------------------------------------


def _collect(
    receivers: dict[Connection, int],
    processes: Sequence[Any],
    outcomes: dict[int, Outcome],
    deadline: float,
) -> None:
    """Reads every rank's outcome until all have sent one, or died, or the deadline is there."""
    while receivers and (left := deadline - time.monotonic()) > 0:
        for ready in wait(list(receivers), left):
            assert isinstance(ready, Connection)
            rank = receivers.pop(ready)
            try:
                outcomes[rank] = ready.recv()
            except EOFError:
                processes[rank].join()
                outcomes[rank] = Outcome(rank, error=RankDiedError(f"rank {rank} {_end_of(processes[rank])}"))
            ready.close()
    for process in processes:  # let those that sent their outcome leave by themselves
        process.join(max(0.0, deadline - time.monotonic()))


def _end_of(process: Any) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code} and no result"


def _process_main(sender: Connection, environment: Mapping[str, str], job: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    rank, size, function, folder, context, timeout = job
    outcome = _run_rank(rank, size, function, FileStore(folder), context, timeout)
    try:
        pickled = pickle.dumps(outcome)
        pickle.loads(pickled)  # an exception's class may refuse only here
    except Exception as error:
        text = f"{type(outcome.error).__name__}: {outcome.error}" if outcome.error else f"result: {error}"
        pickled = pickle.dumps(Outcome(rank, error=StarlingError(text), trace=outcome.trace))
    sender.send_bytes(pickled)
    sender.close()


def _end_with_parent() -> None:
    """A rank whose launcher died would otherwise wait for its timeouts."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
