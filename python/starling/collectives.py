"""Collectives of a communicator: one method each, with its contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from starling.arguments import explain, reduction_of, timeout_ns_of
from starling.messages import Array, Callback
from starling.numbers import COLLECTIVES
from starling.request import Request, Stream, callback_of, handle_of, locked, start_of

__all__ = ["Collectives"]

Counts: TypeAlias = Sequence[int] | None


class Collectives(ABC):
    """The half of a ``Communicator`` that all ranks call; arguments that all operations have, see there."""

    _core: Any
    rank: int

    def all_reduce(
        self,
        input: Array,
        output: Array | None = None,
        op: str = "sum",
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        scalar: float = 1.0,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """``output`` = the reduction of all ranks' ``input``: same shape, bitwise the same on every rank.

        op: sum, prod, min, max, avg, premul_sum (of inputs multiplied by ``scalar``), band, bor, bxor.
        """
        return self._submit(
            "all_reduce",
            input,
            output,
            op,
            lane,
            priority,
            timeout,
            algorithm,
            dtype,
            callback,
            stream,
            hold,
            scalar=scalar,
        )

    def all_gather(
        self,
        input: Array | None,
        output: Array,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        counts: Counts = None,
        offsets: Counts = None,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """``output`` = all ranks' inputs, one after the other: size times the elements of ``input``.

        counts, offsets: elements of rank r's part and where it begins in ``output``, alike on all ranks;
            offsets None: one after the other.
        input: None: in place, this rank's part of ``output``.
        """
        return self._submit(
            "all_gather", input, output, "sum", lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            output_counts=counts, output_offsets=offsets,
        )  # fmt: skip

    def reduce_scatter(
        self,
        input: Array,
        output: Array | None = None,
        op: str = "sum",
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        scalar: float = 1.0,
        counts: Counts = None,
        offsets: Counts = None,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """``output`` = this rank's part of the reduction of all ranks' ``input``, which holds size parts.

        counts, offsets: as in ``all_gather``, of ``input``. output: None: in place, this rank's part of ``input``.
        """
        return self._submit(
            "reduce_scatter", input, output, op, lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            scalar=scalar, input_counts=counts, input_offsets=offsets,
        )  # fmt: skip

    def broadcast(
        self,
        input: Array,
        output: Array | None = None,
        root: int = 0,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """``output`` = the root's ``input``. Without ``output``: ``input`` is read at the root, written elsewhere."""
        if output is None:
            input, output = (input, None) if self.rank == root else (None, input)
        return self._submit(
            "broadcast",
            input,
            output,
            "sum",
            lane,
            priority,
            timeout,
            algorithm,
            dtype,
            callback,
            stream,
            hold,
            root=root,
        )

    def reduce(
        self,
        input: Array,
        output: Array | None = None,
        op: str = "sum",
        root: int = 0,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        scalar: float = 1.0,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """The root's ``output`` = the reduction of all ranks' ``input``; other ranks' output is not touched."""
        return self._submit(
            "reduce", input, output, op, lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            scalar=scalar, root=root,
        )  # fmt: skip

    def all_to_all(
        self,
        input: Array,
        output: Array | None = None,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        input_counts: Counts = None,
        input_offsets: Counts = None,
        output_counts: Counts = None,
        output_offsets: Counts = None,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """Part r of ``input`` goes to rank r; part r of ``output`` came from rank r. Both hold size parts.

        input_counts[r] here must equal output_counts[this rank] on rank r. Pass both counts or neither. In place
        with counts: only where counts and offsets of both sides are equal.
        """
        return self._submit(
            "all_to_all", input, output, "sum", lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            input_counts=input_counts, input_offsets=input_offsets,
            output_counts=output_counts, output_offsets=output_offsets,
        )  # fmt: skip

    def gather(
        self,
        input: Array | None,
        output: Array | None = None,
        root: int = 0,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        counts: Counts = None,
        offsets: Counts = None,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """The root's ``output`` = all ranks' ``input``; elsewhere it is not touched and may be None.

        counts, offsets: as in ``all_gather``, on every rank. input: None at the root: in place.
        """
        return self._submit(
            "gather", input, output, "sum", lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            root=root, output_counts=counts, output_offsets=offsets,
        )  # fmt: skip

    def scatter(
        self,
        input: Array | None,
        output: Array | None = None,
        root: int = 0,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        algorithm: str | None = None,
        *,
        counts: Counts = None,
        offsets: Counts = None,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """``output`` = this rank's part of the root's ``input``; elsewhere the input may be None.

        counts, offsets: as in ``reduce_scatter``, on every rank. output: None at the root: in place.
        """
        return self._submit(
            "scatter", input, output, "sum", lane, priority, timeout, algorithm, dtype, callback, stream, hold,
            root=root, input_counts=counts, input_offsets=offsets,
        )  # fmt: skip

    def barrier(
        self,
        lane: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
        *,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """Complete when every rank has submitted it."""
        return self._submit(
            "barrier", None, None, "sum", lane, priority, timeout, None, None, callback, stream, hold
        )

    def _submit(
        self,
        kind: str,
        input: Array | None,
        output: Array | None,
        op: str,
        lane: str | None,
        priority: int,
        timeout: float | None,
        algorithm: str | None,
        dtype: str | None,
        callback: Callback | None,
        stream: Stream,
        hold: bool,
        **rest: Any,
    ) -> Request:
        buffers = (locked(input), locked(output))
        try:
            core = self._core.submit(
                COLLECTIVES[kind],
                input,
                output,
                dtype,
                reduction_of(op),
                lane=lane,
                priority=priority,
                timeout_ns=timeout_ns_of(timeout),
                algorithm=algorithm,
                callback=callback_of(callback, buffers),
                start=start_of(stream, hold),
                stream=handle_of(stream),
                **rest,
            )
        except TypeError as error:
            raise explain(
                error, dtype=dtype, lane=lane, priority=priority, algorithm=algorithm, **rest
            ) from None
        return self._keep(Request(core, buffers))

    @abstractmethod
    def _keep(self, request: Request) -> Request:
        """Holds the request's buffers until it is done."""
