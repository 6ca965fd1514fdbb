"""What is wrong with a program, in its own words: every message names the user's file and line."""

import sys
from dataclasses import dataclass
from pathlib import Path

_HERE = str(Path(__file__).parent)  # as frames name it, symbolic links and all


@dataclass(frozen=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NOWHERE = Place("the compiler", 0)


def caller() -> Place:
    """The innermost line that is not the language's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


class ProgramError(ValueError):
    """The program is wrong; ``place`` is its line."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(f"{place}: {text}")
        self.place = place


class StaleReferenceError(ProgramError):
    """A reference to chunks that were overwritten since it was made."""


class UninitialisedChunkError(ProgramError):
    """A chunk that nothing has written yet."""


class PostconditionError(ProgramError):
    """At its end the program does not hold what its collective promises."""
