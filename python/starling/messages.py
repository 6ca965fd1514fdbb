"""Messages between two ranks of a communicator: send, recv, and several at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starling.arguments import explain, timeout_ns_of
from starling.errors import StarlingError
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

    def batch(self, messages: Iterable[Send | Recv], timeout: float | None = None) -> list[Request]:
        """Submits sends and receives together, in any order; a request for each."""
        return [
            self.send(message.buffer, message.peer, message.tag, timeout=timeout)
            if isinstance(message, Send)
            else self.recv(message.buffer, message.peer, message.tag, timeout=timeout)
            for message in messages
        ]

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
