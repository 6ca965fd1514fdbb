"""An operation under way."""

from __future__ import annotations

import array
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from starling.arguments import wait_ns_of
from starling.errors import InvalidArgumentError, StarlingError, WaitTimeoutError, from_status

__all__ = ["Request", "Stream"]

Stream: TypeAlias = Any  # torch.cuda.Stream, anything with `cuda_stream`, or a cudaStream_t as an int

_IN_PROGRESS = 10


def locked(buffer: Any) -> Any:
    """What keeps the buffer where it is: objects that could move their memory are refused to, with ``BufferError``."""
    return memoryview(buffer) if isinstance(buffer, bytearray | array.array) else buffer


def handle_of(stream: Stream) -> int:
    """The cudaStream_t; 0 without a stream."""
    if stream is None or isinstance(stream, int):
        return stream or 0
    if not hasattr(stream, "cuda_stream"):
        raise TypeError(f"stream is {stream!r:.80}; pass a torch.cuda.Stream, or a cudaStream_t as an int")
    return int(stream.cuda_stream)


def start_of(stream: Stream, hold: bool) -> int:
    """The C API's starling_start."""
    if stream is None:
        if hold:
            raise InvalidArgumentError("hold=True without a stream; pass the stream that is to be held")
        return 0
    return 2 if hold else 1


class Request:
    """A submitted operation. It goes on whether anybody keeps the request or not.

    The buffers are kept alive until completion, and a ``bytearray`` or ``array.array`` among them cannot be resized
    until ``wait``, ``test`` or ``done`` has told so; do not write to the input, or touch the output, before.
    """

    __slots__ = ("__weakref__", "_buffers", "_core")

    def __init__(self, core: Any, buffers: tuple[Any, ...]) -> None:
        self._core = core
        self._buffers: tuple[Any, ...] = buffers

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the operation is complete; raises its error, a ``StarlingError``.

        timeout: seconds; ``WaitTimeoutError`` if they pass (the operation goes on). None: until it ends; the
            operation has a timeout of its own.
        """
        try:
            ended = self._core.wait(wait_ns_of(timeout))
        finally:
            _ = self.done  # gives the buffers back
        if not ended:
            raise WaitTimeoutError(f"the operation is still under way after {timeout} s")

    def test(self) -> bool:
        """Whether it is complete; never waits. Raises the operation's error."""
        if not self.done:
            return False
        self._core.check()
        return True

    def wait_on_stream(self, stream: Stream) -> None:
        """Work put into ``stream`` from now on begins after the operation, which was submitted on a stream.

        Does not wait itself. Raises the operation's error if it has failed; if it fails later the stream goes on, and
        ``test`` raises.
        """
        self._core.wait_on_stream(handle_of(stream))

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        ended = bool(self._core.status() != _IN_PROGRESS)
        if ended:
            self._buffers = ()
        return ended

    @property
    def source(self) -> int | None:
        """The rank that a receive got its message from; None while unknown."""
        rank = int(self._core.source())
        return None if rank < 0 else rank

    def exception(self) -> StarlingError | None:
        """The error that it ended with; None if it succeeded or has not ended."""
        try:
            self.test()
        except StarlingError as error:
            return error
        return None

    def add_done_callback(self, function: Callable[[Request], Any]) -> None:
        """Calls ``function(request)`` once, after the end: before this returns if it has ended, else on a thread of
        its own.

        It is called for failures too; ``request.test()`` raises the operation's error. What ``function`` raises is
        this call's here, and goes to ``threading.excepthook`` there. It may submit, and wait. At the end of the
        process callbacks that were not called yet are dropped. The ``callback`` argument of the operations costs
        less: it runs on the library's own thread, in the order of completion.
        """
        function = _checked_function(function)
        if self.done:
            function(self)
            return
        threading.Thread(target=self._call_when_done, args=(function,), daemon=True).start()

    def _call_when_done(self, function: Callable[[Request], Any]) -> None:
        with contextlib.suppress(StarlingError):  # the function asks the request
            self._core.wait(-1)
        function(self)


def _checked_function(function: Any) -> Any:
    if not callable(function):  # noticed on the library's thread it would have no caller
        raise TypeError(f"a callback is a function; got {function!r}")
    return function


def callback_of(
    function: Callable[[StarlingError | None], Any] | None, buffers: tuple[Any, ...] = ()
) -> Callable[[int, str], None] | None:
    """``function(error)`` as the C API calls it; ``buffers`` live until then."""
    if function is None:
        return None
    function = _checked_function(function)

    def call(status: int, message: str) -> None:
        _ = buffers
        function(from_status(status, message) if status else None)

    return call
