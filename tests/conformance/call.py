"""Runs cases on a communicator and compares: the rank's side of the suite, importable by its processes."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.cases import Case
from conformance.memory import CudaMemory, HostMemory, memory_of
from conformance.oracle import SCALAR, Expected, Layout
from starling import Communicator, Request
from starling.ir.element import DATA_TYPES

Array = npt.NDArray
GUARD = 32  # elements around every buffer that nobody may touch
UNDER_WAY = 8  # calls under way at a time, each in a lane of its own, in another order on every rank


@dataclass(frozen=True)
class Result:
    """Of one case on one rank. ``problem`` is "" if it went well; ``digest`` is of the output's bytes."""

    case: Case
    problem: str
    digest: str


class Guarded:
    """An array with untouched memory on both sides."""

    def __init__(self, data_type: str, length: int) -> None:
        self._all = np.full((length + 2 * GUARD) * DATA_TYPES[data_type].itemsize, 0xA5, np.uint8)
        self.array: Array = self._all.view(DATA_TYPES[data_type])[GUARD : GUARD + length]
        self.width = DATA_TYPES[data_type].itemsize

    def placed(self, memory: HostMemory | CudaMemory, view: Array | None = None) -> Any:
        return memory.place(self._all, self.array if view is None else view)

    def fetch(self, memory: HostMemory | CudaMemory) -> None:
        memory.fetch(self._all)

    def is_intact(self) -> bool:
        edge = GUARD * self.width
        return bool((self._all[:edge] == 0xA5).all() and (self._all[len(self._all) - edge :] == 0xA5).all())


class Call:
    """One case on this rank: its buffers, and what is expected of them."""

    def __init__(self, case: Case, rank: int, memory: HostMemory | CudaMemory) -> None:
        self.memory = memory
        self.case, self.expected = case, Expected(case, rank)
        self.rank = rank
        self.input = self._filled(self.expected.contribution(rank))
        self.kept_input = self.input.array.copy()
        wanted = self.expected.result()
        self.wanted = wanted
        self.out_layout = self._output_layout()
        length = self.out_layout.length if self.out_layout else (0 if wanted is None else len(wanted))
        self.output = Guarded(case.data_type, length)
        self.result: Array = self.output.array
        self.requests: list[Request] = []
        self.unused: list[Guarded] = []  # outputs of ranks that get nothing

    def _filled(self, content: Array) -> Guarded:
        guarded = Guarded(self.case.data_type, len(content))
        guarded.array[:] = content
        return guarded

    def _output_layout(self) -> Layout | None:
        if self.case.collective == "all_to_all":
            return self.expected.receives(self.rank)
        if self.case.collective == "all_gather" or (
            self.case.collective == "gather" and self.expected.is_root
        ):
            return self.expected.parts
        return None

    def submit(self, comm: Communicator, lane: str) -> None:
        case = self.case
        common: dict = {"algorithm": case.algorithm, "lane": lane}
        if case.data_type in ("bfloat16", "bool"):
            common["dtype"] = case.data_type
        if case.collective in ("all_reduce", "reduce_scatter", "reduce"):
            common |= {"op": case.reduce_op, "scalar": SCALAR}
        if case.collective in ("broadcast", "reduce", "gather", "scatter"):
            common["root"] = case.root
        if case.varying and case.collective != "all_to_all":
            common |= {"counts": self.expected.parts.counts, "offsets": self.expected.parts.offsets}
        calls: dict[str, Callable[[Communicator, dict], list[Request]]] = {
            "all_gather": self._all_gather,
            "reduce_scatter": self._reduce_scatter,
            "gather": self._gather,
            "scatter": self._scatter,
            "all_to_all": self._all_to_all,
            "send_recv": self._send_recv,
        }
        self.requests = calls.get(case.collective, self._alike)(comm, common)

    def _alike(self, comm: Communicator, common: dict) -> list[Request]:
        """all_reduce, broadcast, reduce: input and output have one shape."""
        if self.case.in_place:
            self.result = self.input.array
        elif self.wanted is None:
            self.unused.append(Guarded(self.case.data_type, len(self.input.array)))
            common["output"] = self.unused[0].placed(self.memory)
        else:
            common["output"] = self._result()
        return [getattr(comm, self.case.collective)(self._input(), **common)]

    def _all_gather(self, comm: Communicator, common: dict) -> list[Request]:
        if self.case.in_place:
            self.expected.parts.part(self.result, self.rank)[:] = self.input.array
        return [comm.all_gather(None if self.case.in_place else self._input(), self._result(), **common)]

    def _reduce_scatter(self, comm: Communicator, common: dict) -> list[Request]:
        output = None if self.case.in_place else self._result()
        if output is None:
            self.result = self.expected.parts.part(self.input.array, self.rank)
        return [comm.reduce_scatter(self._input(), output, **common)]

    def _gather(self, comm: Communicator, common: dict) -> list[Request]:
        if not self.expected.is_root:
            return [comm.gather(self._input(), None, **common)]
        if self.case.in_place:
            self.expected.parts.part(self.result, self.rank)[:] = self.input.array
        return [comm.gather(None if self.case.in_place else self._input(), self._result(), **common)]

    def _scatter(self, comm: Communicator, common: dict) -> list[Request]:
        if not self.expected.is_root:
            return [comm.scatter(None, self._result(), **common)]
        output = None if self.case.in_place else self._result()
        if output is None:
            self.result = self.expected.parts.part(self.input.array, self.rank)
        return [comm.scatter(self._input(), output, **common)]

    def _all_to_all(self, comm: Communicator, common: dict) -> list[Request]:
        if self.case.varying:
            sends, receives = self.expected.sends(self.rank), self.expected.receives(self.rank)
            common |= {"input_counts": sends.counts, "input_offsets": sends.offsets}
            common |= {"output_counts": receives.counts, "output_offsets": receives.offsets}
        if self.case.in_place:
            self.result = self.input.array
            return [comm.all_to_all(self._input(), **common)]
        return [comm.all_to_all(self._input(), self._result(), **common)]

    def _send_recv(self, comm: Communicator, common: dict) -> list[Request]:
        """Around the ring; the lane's name becomes the tag."""
        tag = 1 + int(common["lane"])
        dtype = common.get("dtype")
        return [
            comm.send(self._input(), (self.rank + 1) % comm.size, tag, dtype=dtype),
            comm.recv(self._result(), (self.rank - 1) % comm.size, tag, dtype=dtype),
        ]

    def _input(self) -> Any:
        return self.input.placed(self.memory)

    def _result(self) -> Any:
        return self.output.placed(self.memory)

    def problem(self) -> str:
        """Waits, and says what is wrong; "" if nothing."""
        for request in self.requests:
            request.wait(60)
        for buffer in (self.input, self.output, *self.unused):
            buffer.fetch(self.memory)
        if not (self.input.is_intact() and self.output.is_intact()):
            return "memory beside a buffer was written"
        if self._input_must_stay() and self.input.array.tobytes() != self.kept_input.tobytes():
            return "the input was written"
        if self.wanted is None:
            return ""
        got = self._without_gaps()
        if got.tobytes() == self.wanted.tobytes():
            return ""
        wrong = np.flatnonzero(got.view(np.uint8) != self.wanted.view(np.uint8)) // self.output.width
        return (
            f"element {wrong[0]} (first of {len(set(wrong))}): {got[wrong[0]]}, not {self.wanted[wrong[0]]}"
        )

    def _without_gaps(self) -> Array:
        if self.out_layout is None or self.result is self.input.array:
            return np.ascontiguousarray(self.result)
        gaps = np.ones(len(self.result), bool)
        for rank in range(self.case.ranks):
            self.out_layout.part(gaps, rank)[:] = False
        if not (self.result[gaps].view(np.uint8) == 0xA5).all():
            raise AssertionError(f"{self.case}: gaps of the output were written")
        return np.concatenate([self.out_layout.part(self.result, r) for r in range(self.case.ranks)])

    def _input_must_stay(self) -> bool:
        return not self.case.in_place

    def digest(self) -> str:
        return hashlib.sha256(self.result.tobytes()).hexdigest()[:16] if self.wanted is not None else ""


def run_cases(comm: Communicator, cases: Sequence[Case], seed: int) -> list[Result]:
    """All cases, several under way at a time, submitted in an order of this rank's own."""
    order = random.Random(seed * 100 + comm.rank)
    results = []
    memory = memory_of(comm.context.device)
    for first in range(0, len(cases), UNDER_WAY):
        calls = [Call(case, comm.rank, memory) for case in cases[first : first + UNDER_WAY]]
        for lane in order.sample(range(len(calls)), len(calls)):
            calls[lane].submit(comm, str(lane))
        for call in calls:
            try:
                results.append(Result(call.case, call.problem(), call.digest()))
            except Exception as error:  # the case's name is the point
                raise AssertionError(f"{call.case}: {type(error).__name__}: {error}") from error
    return results
