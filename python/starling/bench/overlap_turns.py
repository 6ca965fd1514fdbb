"""What libraries in turns found of one kernel beside one collective, on one base: `starling bench overlap`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    """Of one library in one round: each time measured once, a mean over ranks, in microseconds."""

    library: str
    kernel_alone_us: float
    kernel_beside_us: float
    collective_alone_us: float
    collective_beside_us: float
    beside_throughout: bool


def rows(turns: list[Turn]) -> Iterator[dict[str, Any]]:
    """One for each library: medians of its turns, but for the kernel alone, which no library has a part in.

    That is the median of all turns, and so slowdowns of all libraries are on one base.
    """
    base_us = statistics.median(turn.kernel_alone_us for turn in turns)
    for library in dict.fromkeys(turn.library for turn in turns):
        mine = [turn for turn in turns if turn.library == library]
        own_us = statistics.median(turn.kernel_alone_us for turn in mine)
        kernel_us = statistics.median(turn.kernel_beside_us for turn in mine)
        alone_us = statistics.median(turn.collective_alone_us for turn in mine)
        collective_us = statistics.median(turn.collective_beside_us for turn in mine)
        yield {
            "library": library,
            "kernel_alone_us": round(base_us, 1),
            "kernel_alone_in_own_turns_us": round(own_us, 1),
            "kernel_beside_us": round(kernel_us, 1),
            "kernel_slowdown": round(kernel_us / base_us, 3),
            "collective_alone_us": round(alone_us, 1),
            "collective_beside_us": round(collective_us, 1),
            "collective_slowdown": round(collective_us / alone_us, 3),
            "beside_throughout": all(turn.beside_throughout for turn in mine),
        }
