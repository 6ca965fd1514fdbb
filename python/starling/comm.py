"""A group of ranks, and the operations on it.

Operations of one lane match across ranks by their order in the lane; operations of different lanes may be
submitted in any order on each rank, and nothing can deadlock. ``lane="name"`` names the lane; without it an
operation goes to the communicator's default lane.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starling import _core
from starling.arguments import check, explain, reduction_of, timeout_ns_of
from starling.collectives import Collectives
from starling.context import Context, default_context
from starling.environment import place
from starling.errors import InvalidArgumentError, StarlingError, from_status
from starling.messages import Array, Callback, Messages
from starling.numbers import COLLECTIVES
from starling.request import Request, Stream, callback_of, handle_of, locked, start_of
from starling.stores import FileStore, Store

if TYPE_CHECKING:
    from types import TracebackType

    from starling.ir import Plan
    from starling.lang import Program

__all__ = ["Communicator", "LargeMessages", "wait_all"]

_creations = itertools.count()
SM_FREE: list[bool | str | None] = [None, False, "auto", True]  # as starling_sm_free numbers them


@dataclass(frozen=True)
class LargeMessages:
    """How a communicator's large messages go: read out of each other's buffers, or through slots of shared memory.

    slots_us, read_us: of an all_gather of 512 KiB, timed when ranks that are processes joined; None: not timed, because
        of ``STARLING_PULL``, of ranks that may not read each other or have no core each, or because they are threads.
    """

    read: bool
    slots_us: float | None
    read_us: float | None


@dataclass(frozen=True)
class _Registered:
    kind: int
    count: int
    dtype: str
    root: int
    rank: int
    size: int


def _groups_of_built_in(name: str) -> tuple[int, int]:
    """Of a plan that nobody added: one of the library's that is no standard collective has one group in each buffer."""
    known = _core.plan.algorithms("custom").split()
    if str(name).partition("@")[0].partition(":")[0] not in known:
        raise InvalidArgumentError(
            f"no plan named '{name}' was added; call add_plan first, on every rank, or name one of the library's: "
            + ", ".join(known)
        )
    return 1, 1


class Communicator(Collectives, Messages):
    """A group of ranks. Collective: returns when all ranks have joined.

    Args:
        context: this rank's; None: the process's own, made at the first call.
        rank, size: None: as the launcher says (torchrun, mpirun, srun), else a group of one.
        name: the same on all ranks, unique per group within the store, and among the groups of these ranks that live.
        store: where the ranks meet (``starling.stores``); None: files in /dev/shm for the job that
            ``STARLING_JOB`` or the launcher names.
        timeout: seconds, of joining and of every operation without its own; None: ``STARLING_TIMEOUT_S``.
        sm_free: whether copy engines move messages between GPUs, of hosts too, at no cost in multiprocessors: True,
            False, or "auto" for those for which it is faster; the least willing rank decides. None:
            ``STARLING_SM_FREE``.

    Every operation is asynchronous: it returns a ``Request`` at once and never waits for other ranks. Common
    arguments of all of them:

        lane: name of the lane; None: the default lane.
        priority: larger first, where the context's order is ``Order.PRIORITY``.
        timeout: seconds; then the operation fails with an error that says who waits for what.
        algorithm: "ring", "one_shot", "two_shot", ...; None: chosen by size.
        dtype: instead of the buffers' own, of the same size: ``dtype="bfloat16"`` for uint16 arrays.
        callback: called with the error, or None, on the library's thread; it may submit, and must not wait.
        stream: a CUDA stream of the context's GPU (``torch.cuda.current_stream()``, or a handle as an int): the
            operation begins after the stream's earlier work. None: at once; what wrote its buffers must have ended.
        hold: the stream's later work begins after the operation. False: ``Request.wait_on_stream`` orders that.

    Buffers are contiguous, in CPU memory, and belong to the operation until it is complete: numpy arrays, torch
    tensors, or anything with DLPack or the buffer protocol. ``output=None`` means in place, where it is possible; all
    ranks work in place, or none does (but for reduce, broadcast, gather and scatter).
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        rank: int | None = None,
        size: int | None = None,
        name: str = "world",
        store: Store | None = None,
        timeout: float | None = None,
        sm_free: bool | str | None = None,
    ) -> None:
        if sm_free not in SM_FREE:
            raise InvalidArgumentError(f"sm_free is {sm_free!r}; pass True, False, 'auto' or None")
        if (rank is None) != (size is None):
            raise InvalidArgumentError("rank without size, or size without rank; pass both or neither")
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"context is {context!r}; pass a starling.Context, or None for the process's own")
        if rank is None or size is None:
            here = place()
            rank, size = (here.rank, here.size) if here else (0, 1)
        check(rank=rank, size=size, name=name)
        if rank < 0 or size < 1:
            raise InvalidArgumentError(f"rank {rank} of {size} ranks; ranks are 0 to size - 1")
        if context is None:
            try:
                context = default_context()
            except StarlingError as error:
                if store is not None:
                    with contextlib.suppress(StarlingError):
                        self.decline(str(error), rank=rank, size=size, name=name, store=store)
                raise
        core = _core.Communicator(
            context=context._core,
            rank=rank,
            size=size,
            name=name,
            store=store,
            timeout_ns=timeout_ns_of(timeout),
            sm_free=SM_FREE.index(sm_free),
        )
        self._adopt(core, context)

    def _adopt(self, core: Any, context: Context) -> None:
        self._core = core
        self.context = context
        self.rank: int = core.rank
        self.size: int = core.size
        self.creation = next(_creations)
        self._under_way: deque[Request] = deque()
        self._sweep_at = 64
        self._registered: dict[int, _Registered] = {}
        self._plans: dict[str, Plan] = {}
        self._ending = threading.Lock()
        context.attach(self)

    @staticmethod
    def decline(reason: str, *, rank: int, size: int, name: str = "world", store: Store) -> None:
        """By a rank that cannot join, for want of a context, say: the others fail at once, with the reason."""
        check(reason=reason, rank=rank, size=size, name=name)
        _core.decline(rank, size, name, store, reason)

    @classmethod
    def _child(cls, core: Any, context: Context) -> Communicator | None:
        if core is None:
            return None
        child = cls.__new__(cls)
        child._adopt(core, context)
        return child

    @classmethod
    def from_mpi(
        cls, mpi_comm: Any, context: Context | None = None, *, timeout: float | None = None
    ) -> Communicator:
        """The same ranks as an mpi4py communicator; all of them must be on this host. Collective over it."""
        rank, size = mpi_comm.Get_rank(), mpi_comm.Get_size()
        folder = mpi_comm.bcast(tempfile.mkdtemp(prefix="starling-mpi-") if rank == 0 else None, root=0)
        try:
            return cls(context, rank=rank, size=size, name=folder, store=FileStore(folder), timeout=timeout)
        finally:
            mpi_comm.Barrier()
            if rank == 0:
                shutil.rmtree(folder, ignore_errors=True)

    # ---- the group -----------------------------------------------------------------------------------------

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Collective over this communicator: ranks of one color form a group, ordered by (key, rank).

        Returns None where ``color`` is negative.
        """
        check(color=color, key=key)
        return self._child(self._core.split(color, key), self.context)

    def subgroup(self, ranks: Sequence[int], name: str) -> Communicator | None:
        """The group of these ranks, in this order; they alone call it, with the same list and name.

        Never waits for other ranks. Returns None on a rank that is not among them. A name may be used again: the n-th
        subgroup of one list and name is the n-th on all of its ranks.
        """
        check(ranks=ranks, name=name)
        return self._child(self._core.subgroup(list(ranks), name), self.context)

    def abort(self, reason: str) -> None:
        """Fails every operation of the communicator, on every rank, with ``AbortedError`` and this reason."""
        check(reason=reason)
        self._core.abort(reason)

    def abort_if_busy(self, reason: str) -> None:
        """``abort`` if an operation is under way here."""
        if any(not request.done for request in list(self._under_way)):
            with contextlib.suppress(StarlingError):
                self.abort(reason)

    def error(self) -> StarlingError | None:
        """The first failure of the communicator; None if there was none."""
        status, message = self._core.error()
        return from_status(status, message) if status else None

    def set_timeout(self, timeout: float) -> None:
        """Seconds; of every operation from now on that has none of its own."""
        self._core.set_timeout(timeout_ns_of(timeout))

    def destroy(self) -> None:
        """Waits (bounded) for operations under way; fails those that do not end. May be repeated."""
        with self._ending:  # a second thread returns when it is destroyed, not while it is
            try:
                self._core.destroy()
            finally:
                self.context.detach(self)
                self._under_way.clear()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # peers must not wait for operations that will never come
            self.abort(f"{type(error).__name__}: {error}")
        self.destroy()

    # ---- plans of one's own ----------------------------------------------------------------------------------

    def add_plan(self, plan: Plan | Program | str, sizes: tuple[int, int] | None = None) -> None:
        """Adds a plan, a program (compiled for this rank's daemon), or a plan's text; it is proved here.

        Every rank adds the same plans in the same order, before it calls what they serve; nothing is exchanged. From
        then on ``run_plan(name, ...)`` and ``algorithm=name`` run it.

        sizes: of the operations that run it without being told, smallest and largest, in bytes of the larger of a
            rank's buffers with all its parts; None: those of the plan, if its program (``sizes=``) or MSCCL XML says
            so, else by name only. Of several that fit, the one added last is taken.
        """
        from starling import ir
        from starling.lang import Program

        if isinstance(plan, Program):
            plan = plan.compile(blocks=self.context.blocks, verify=False)
        plan = ir.parse(plan) if isinstance(plan, str) else plan
        if not isinstance(plan, ir.Plan):
            raise TypeError(
                f"plan is {plan!r:.80}; pass a plan, a program of starling.lang, or a plan's text"
            )
        smallest, largest = sizes or plan.sizes or (1, 0)
        self._core.add_plan(ir.to_text(plan), smallest, largest)
        self._plans[plan.name] = plan

    def use_table(self, path: str) -> int:
        """Follows a table of choices that ``starling tune`` wrote, where an operation is not told its algorithm and no
        plan was added for it. Every rank uses the same table before its first operation. Returns the number of rows for
        groups like this; 0: none, which the log says, and the library's own choice stays.

        ``STARLING_TABLE=path`` does the same for every communicator.
        """
        return int(self._core.use_table(str(path)))

    @property
    def topology(self) -> str:
        """By which tables know the group: "cpu:threads:ranks=4:per_host=4:blocks=1:cores=2"."""
        return str(self._core.topology)

    @property
    def sm_free(self) -> bool | str:
        """Whether copy engines move messages, as the ranks have agreed: True, False, or "auto"."""
        agreed: bool | str | None = SM_FREE[self._core.sm_free]
        assert agreed is not None
        return agreed

    @property
    def large_messages(self) -> LargeMessages:
        """How the group's large messages go; the same on all ranks, from the beginning."""
        read, slots_ns, read_ns = self._core.large_messages
        timed = slots_ns > 0
        return LargeMessages(read, slots_ns / 1e3 if timed else None, read_ns / 1e3 if timed else None)

    def run_plan(
        self,
        name: str,
        input: Array | None,
        output: Array | None = None,
        op: str = "sum",
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        *,
        scalar: float = 1.0,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """Runs the plan of this name. ``output=None``: in place, for plans that are.

        Buffers are those of the plan's collective; of a collective of one's own, each buffer holds the plan's groups,
        all equally long. Of the library's that have no method here, "all_to_next" needs no ``add_plan``: every rank's
        input becomes the next rank's output (include/starling/plan.h).
        """
        plan = self._plans.get(name)
        groups = (plan.input_groups, plan.output_groups) if plan is not None else _groups_of_built_in(name)
        if plan is not None and plan.collective != "custom":
            return self._submit(
                plan.collective, input, output, op, lane, priority, timeout, name, dtype, callback, stream, hold,
                scalar=scalar, root=plan.root,
            )  # fmt: skip
        buffers = (locked(input), locked(output))
        try:
            core = self._core.submit_custom(
                name, *groups, input, output, dtype, reduction_of(op), scalar, lane, priority,
                timeout_ns_of(timeout), callback_of(callback, buffers), start_of(stream, hold), handle_of(stream),
            )  # fmt: skip
        except TypeError as error:
            raise explain(error, dtype=dtype, scalar=scalar, lane=lane, priority=priority) from None
        return self._keep(Request(core, buffers))

    # ---- what is under way -----------------------------------------------------------------------------------

    def _keep(self, request: Request) -> Request:
        """Keeps the buffers of what is under way alive, also if the caller drops the request."""
        under_way = self._under_way
        under_way.append(request)
        # Other threads submit too: take first, then look.
        with contextlib.suppress(IndexError):
            while (oldest := under_way.popleft()).done:
                pass
            under_way.append(oldest)
        if len(under_way) > self._sweep_at:  # an old operation waits while later ones are complete
            for _ in range(len(under_way)):
                with contextlib.suppress(IndexError):
                    if not (oldest := under_way.popleft()).done:
                        under_way.append(oldest)
            self._sweep_at = max(64, 2 * len(under_way))
        return request

    # ---- registered collectives (DFCCL §3.2) -----------------------------------------------------------------

    def register(
        self,
        id: int,
        kind: str,
        count: int = 0,
        dtype: str = "float32",
        op: str = "sum",
        root: int = 0,
        devices: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        *,
        scalar: float = 1.0,
    ) -> None:
        """Registers collective ``id``: a lane of its own over ``devices`` (ranks, ascending; None: all).

        Never waits for other ranks; at any time, in any order on each rank. ``count`` is in elements of one part,
        as in the C API; ``root`` is a rank among the devices.
        """
        check(id=id, count=count, dtype=dtype, root=root, devices=devices, priority=priority, scalar=scalar)
        ranks = list(range(self.size)) if devices is None else list(devices)
        if kind not in COLLECTIVES or kind in ("send", "recv"):
            raise InvalidArgumentError(f"'{kind}' cannot be registered; use a collective's name")
        self._core.register(
            id, ranks, COLLECTIVES[kind], count, dtype, reduction_of(op), scalar, root, priority,
            timeout_ns_of(timeout),
        )  # fmt: skip
        self._registered[id] = _Registered(
            COLLECTIVES[kind], count, dtype, root, ranks.index(self.rank), len(ranks)
        )

    def run(
        self, id: int, input: Array | None, output: Array | None = None, callback: Callback | None = None
    ) -> None:
        """Runs collective ``id`` once; ``callback(error)`` is called on completion. Buffers as registered."""
        check(id=id)
        shape = self._registered.get(id)
        if shape is None:
            raise InvalidArgumentError(f"collective {id} is not registered; call register first")
        done = callback_of(callback or (lambda error: None), (locked(input), locked(output)))
        self._core.run(
            id, shape.kind, input, output, shape.dtype, shape.root, shape.rank, shape.size, shape.count, done
        )


def wait_all(requests: Iterable[Request], timeout: float | None = None) -> None:
    """Waits for all of them, each up to ``timeout`` seconds; raises the first error after all have ended."""
    first: StarlingError | None = None
    for request in requests:
        try:
            request.wait(timeout)
        except StarlingError as error:
            first = first or error
    if first is not None:
        raise first
