"""What is wrong with an argument: by name, with what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any

from starling.errors import InvalidArgumentError
from starling.numbers import REDUCTIONS

__all__ = [
    "LARGEST_FACTOR",
    "LARGEST_NS",
    "check",
    "check_number",
    "explain",
    "reduction_of",
    "timeout_ns_of",
    "wait_ns_of",
]

LARGEST_NS = (1 << 63) - 1
LARGEST_FACTOR = (1 << 32) - 1
_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 64)


@dataclass(frozen=True)
class _Rule:
    fits: Callable[[Any], bool]
    wanted: str
    of_type: Callable[[Any], bool] = lambda value: False
    """Of the right type, so that what does not fit is a ``ValueError``."""


def _whole(value: Any) -> bool:
    try:
        index(value)
    except TypeError:
        return False
    return True


def _number_in(limits: range) -> _Rule:
    if limits.start == 0:
        wanted = "a whole number from 0 on"
    else:
        wanted = f"a whole number from {limits.start} to {limits.stop - 1}"
    return _Rule(lambda value: _whole(value) and index(value) in limits, wanted, _whole)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and _encodes(value)


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Iterable) and all(_whole(one) and index(one) in _UINT64 for one in value)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


_TEXT = _Rule(_is_text, "text without a zero byte", _is_str)
_OPTIONAL_TEXT = _Rule(
    lambda value: value is None or _is_text(value), "text without a zero byte, or None", _is_str
)
_TYPE_NAME = _Rule(lambda value: value is None or _is_text(value), "the name of a type, such as 'bfloat16'")
_RANKS = _Rule(_are_numbers, "a list of ranks")
_COUNTS = _Rule(
    lambda value: value is None or _are_numbers(value), "a list of whole numbers from 0 on, or None"
)

_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("rank", "size", "root", "peer", "priority", "color", "key"), _number_in(_INT32)),
    **dict.fromkeys(("name", "reason", "device"), _TEXT),
    **dict.fromkeys(("lane", "algorithm", "completion_queue"), _OPTIONAL_TEXT),
    **dict.fromkeys(("input_counts", "input_offsets", "output_counts", "output_offsets"), _COUNTS),
    "count": _number_in(_UINT64),
    "devices": _Rule(lambda value: value is None or _are_numbers(value), "a list of ranks, or None"),
    "dtype": _TYPE_NAME,
    "id": _number_in(_INT64),
    "ranks": _RANKS,
    "scalar": _Rule(lambda value: isinstance(value, Real), "a number"),
    "tag": _number_in(_UINT64),
}


def _problem(name: str, value: Any) -> Exception | None:
    rule = _RULES[name]
    if rule.fits(value):
        return None
    kind = InvalidArgumentError if rule.of_type(value) else TypeError
    return kind(f"{name} is {value!r:.80}; pass {rule.wanted}")


def check(**arguments: Any) -> None:
    """Raises for the first that is not what its name asks for."""
    for name, value in arguments.items():
        if (problem := _problem(name, value)) is not None:
            raise problem


def explain(error: TypeError, **arguments: Any) -> Exception:
    """For an operation that was refused for the type of an argument: what to raise, with that argument's name.

    Operations are not checked before: that would cost each of them a microsecond.
    """
    problems = (_problem(name, value) for name, value in arguments.items())
    return next((problem for problem in problems if problem is not None), error)


def check_number(name: str, value: Any, most: int) -> None:
    """Raises unless it is a whole number from 0 to ``most``."""
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r:.80}; pass a whole number")
    if not 0 <= value <= most:
        raise InvalidArgumentError(f"{name} is {value}; pass a number from 0 to {most}")


def reduction_of(op: str) -> int:
    """The C API's number of a reduction."""
    reduction = REDUCTIONS.get(op) if isinstance(op, str) else None
    if reduction is None:
        raise InvalidArgumentError(f"reduction {op!r:.80} does not exist; use one of {', '.join(REDUCTIONS)}")
    return reduction


def timeout_ns_of(timeout: float | None) -> int:
    """Seconds of an operation as the C API's nanoseconds; None: 0, "not given"."""
    if timeout is None:
        return 0
    return max(1, _ns_of(timeout, smallest=math.ulp(0.0)))


def wait_ns_of(timeout: float | None) -> int:
    """Seconds of a wait as the C API's nanoseconds; None: -1, without a bound."""
    return -1 if timeout is None else _ns_of(timeout, smallest=0)


def _ns_of(timeout: float, smallest: float) -> int:
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout is {timeout!r:.80}; pass a number of seconds, or None")
    if not smallest <= timeout < LARGEST_NS / 1e9:  # not a number is refused too
        sign = "no negative" if smallest == 0 else "a positive"
        raise InvalidArgumentError(f"timeout is {timeout!r} s; pass {sign} number of seconds, or None")
    return int(timeout * 1e9)
