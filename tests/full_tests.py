"""FULL_TESTS=1 in the environment: all cases of tests that otherwise take a part of them, the same part each time."""

import os
from collections.abc import Iterable
from typing import TypeVar

FULL = os.environ.get("FULL_TESTS") == "1"
Case = TypeVar("Case")


def part(cases: Iterable[Case], every: int = 2) -> list[Case]:
    """The first of ``every`` so many, and so on."""
    return list(cases)[:: 1 if FULL else every]
