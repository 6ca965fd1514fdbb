"""Planted bugs: an edit as small as the slip that would make it, and what makes copies of sources with it.

Run at build time by the make_mutants.py of a folder, whose catalogue lists the edits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    name: str
    what: str  # in words, for the table
    file: str  # in the catalogue's folder of sources
    find: str  # occurs exactly once there
    replace: str
    campaign: str = "mixed"  # of the simulator, where the hunt looks


def mutated(text: str, mutation: Mutation, catalogue: str) -> str:
    """The text with the edit. An edit whose text is not found exactly once: the catalogue must follow the code."""
    if text.count(mutation.find) != 1:
        raise SystemExit(
            f"mutation {mutation.name}: its text occurs {text.count(mutation.find)} times in {mutation.file}; "
            f"bring {catalogue} up to date"
        )
    return text.replace(mutation.find, mutation.replace)


def said_in_source(headers: Iterable[str]) -> str:
    """A comment that changes with the headers: who looks at a source alone, as a build that has begun, compiles it."""
    return f"// {hashlib.sha256(''.join(headers).encode()).hexdigest()[:16]}"


def write_if_changed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
