"""What can go wrong, by who can do something about it.

Every error of the library is a ``StarlingError``; its text says what failed, where, and the remedy. Subclasses
are also the builtin exception that fits, so ``except TimeoutError`` works.
"""

from __future__ import annotations

__all__ = [
    "AbortedError",
    "ExhaustedError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "OperationTimeoutError",
    "PeerFailedError",
    "StarlingError",
    "SystemFailureError",
    "UnsupportedError",
    "WaitTimeoutError",
]


class StarlingError(Exception):
    """Any failure of the library. ``status`` is the C API's number, 0 where there is none."""

    status = 0


class InvalidArgumentError(StarlingError, ValueError):
    """Misuse by the caller."""

    status = 1


class MismatchError(StarlingError):
    """Ranks called different operations in one place of a lane. Every rank of the lane gets it."""

    status = 2


class OperationTimeoutError(StarlingError, TimeoutError):
    """An operation did not finish within its timeout, or ranks did not meet; the text says who waits for what."""

    status = 3


class WaitTimeoutError(OperationTimeoutError):
    """``Request.wait(timeout)`` gave up; the operation goes on."""


class PeerFailedError(StarlingError, ConnectionError):
    """A rank died or left."""

    status = 4


class AbortedError(StarlingError):
    """``Communicator.abort`` was called, on this rank or another."""

    status = 5


class UnsupportedError(StarlingError, NotImplementedError):
    """The combination of arguments has no meaning or no implementation."""

    status = 6


class InternalError(StarlingError):
    """A broken invariant: a bug of the library. Please report it."""

    status = 7


class SystemFailureError(StarlingError, OSError):
    """The operating system refused: no memory, no space in /dev/shm, ..."""

    status = 8


class ExhaustedError(StarlingError):
    """A resource of the library itself ran out; the text names the setting to raise."""

    status = 9


_BY_STATUS: dict[int, type[StarlingError]] = {
    kind.status: kind
    for kind in (
        InvalidArgumentError,
        MismatchError,
        OperationTimeoutError,
        PeerFailedError,
        AbortedError,
        UnsupportedError,
        InternalError,
        SystemFailureError,
        ExhaustedError,
    )
}


def from_status(status: int, message: str) -> StarlingError:
    """The exception that belongs to a status of the C API."""
    return _BY_STATUS.get(status, StarlingError)(message)
