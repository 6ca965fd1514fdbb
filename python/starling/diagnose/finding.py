"""What is wrong, as people and programs read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing that holds a job up."""

    kind: str
    what: str
    remedy: str
    ranks: tuple[int, ...] = ()
    """The culprits."""
    lane: str = ""
    sequence: int | None = None
    details: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Those that are slow, by their ports."""

    def line(self) -> str:
        return f"{self.what}; remedy: {self.remedy}"


@dataclass(frozen=True)
class RankView:
    """A line of the table of ranks."""

    rank: int
    host: str
    pid: int
    state: str
    calls: int
    last: str
    waits: str


@dataclass(frozen=True)
class Diagnosis:
    """Of one job. The first finding is the verdict; none: it is healthy, if enough of it is known."""

    job: str
    size: int
    findings: tuple[Finding, ...]
    ranks: tuple[RankView, ...] = ()
    notes: tuple[str, ...] = ()
    live: bool = True
    not_known: str = ""
    """Why it cannot be called healthy, though nothing was found."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        return not self.findings and not self.not_known

    @property
    def verdict(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": self.healthy}
