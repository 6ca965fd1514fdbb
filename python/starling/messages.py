"""Messages between two ranks of a communicator: send, recv, and several at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starling.arguments import explain, timeout_ns_of
from starling.errors import StarlingError, from_status
from starling.numbers import COLLECTIVES
from starling.request import Request, Stream, callback_of, handle_of, locked, start_of

__all__ = ["Array", "Callback", "Messages", "Recv", "Send"]

Array: TypeAlias = Any  # DLPack or the buffer protocol: numpy arrays, CPU tensors
Callback: TypeAlias = Callable[[StarlingError | None], Any]


@dataclass(frozen=True)
class Send:
    """A message of a ``Communicator.batch``."""

    buffer: Array
    peer: int
    tag: int = 0


@dataclass(frozen=True)
class Recv:
    """A message of a ``Communicator.batch``; peer None: from any rank."""

    buffer: Array
    peer: int | None = None
    tag: int = 0


class Messages(ABC):
    """The half of a ``Communicator`` that sends and receives; arguments that all operations have, see there."""

    _core: Any

    def send(
        self,
        input: Array,
        peer: int,
        tag: int = 0,
        priority: int = 0,
        timeout: float | None = None,
        *,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """Sends ``input`` to ``peer``. Messages of one (sender, receiver, tag) arrive in order; others in any."""
        return self._message("send", input, peer, tag, priority, timeout, dtype, callback, stream, hold)

    def recv(
        self,
        output: Array,
        peer: int | None = None,
        tag: int = 0,
        priority: int = 0,
        timeout: float | None = None,
        *,
        dtype: str | None = None,
        callback: Callback | None = None,
        stream: Stream = None,
        hold: bool = False,
    ) -> Request:
        """Receives a message of exactly this size from ``peer``; None: from any rank, see ``Request.source``."""
        return self._message(
            "recv",
            output,
            -1 if peer is None else peer,
            tag,
            priority,
            timeout,
            dtype,
            callback,
            stream,
            hold,
        )

    def batch(
        self,
        messages: Iterable[Send | Recv],
        timeout: float | None = None,
        *,
        stream: Stream = None,
        hold: bool = False,
    ) -> list[Request]:
        """Submits sends and receives that begin together, in any order; a request for each.

        stream, hold: as everywhere, for all of them. None stands behind another, so a held stream may have crossed
        ones: what is put into it later begins after all. Up to 8 of different pairs or tags are one kernel.
        """
        listed = list(messages)
        for message in listed:
            if not isinstance(message, Send | Recv):
                raise TypeError(f"a message is {message!r:.80}; pass a starling.Send or starling.Recv")
        buffers = [(locked(message.buffer),) for message in listed]
        calls = [
            (
                COLLECTIVES["send" if isinstance(message, Send) else "recv"],
                message.buffer,
                -1 if message.peer is None else message.peer,
                message.tag,
            )
            for message in listed
        ]
        try:
            submitted, status, text = self._core.submit_messages(
                calls, timeout_ns_of(timeout), start_of(stream, hold), handle_of(stream)
            )
        except TypeError as error:
            explained = (explain(error, peer=peer, tag=tag) for _, _, peer, tag in calls)
            raise next((one for one in explained if one is not error), error) from None
        requests = [
            self._keep(Request(core, held))
            for core, held in zip(submitted, buffers, strict=True)
            if core is not None
        ]
        if status != 0:
            raise from_status(status, text)
        return requests

    def _message(
        self,
        kind: str,
        buffer: Array,
        peer: int,
        tag: int,
        priority: int,
        timeout: float | None,
        dtype: str | None,
        callback: Callback | None,
        stream: Stream,
        hold: bool,
    ) -> Request:
        buffers = (locked(buffer),)
        try:
            core = self._core.submit_message(
                COLLECTIVES[kind],
                buffer,
                peer,
                tag,
                dtype,
                priority,
                timeout_ns_of(timeout),
                callback_of(callback, buffers),
                start_of(stream, hold),
                handle_of(stream),
            )
        except TypeError as error:
            raise explain(error, peer=peer, tag=tag, dtype=dtype, priority=priority) from None
        return self._keep(Request(core, buffers))

    @abstractmethod
    def _keep(self, request: Request) -> Request:
        """Holds the request's buffers until it is done."""
