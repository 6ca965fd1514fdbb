"""What happened between two looks, by the second."""

from __future__ import annotations

from dataclasses import dataclass, field

from starling.monitor.views import Lane, Path, Rank

QUITS = ("quits_idle", "quits_stuck", "quits_drained")


@dataclass
class Rates:
    """Remembers the last look; what is new has no rate yet."""

    _time_ns: int = 0
    _before: dict[str, Rank] = field(default_factory=dict)
    _now_ns: int = 0
    _now: dict[str, Rank] = field(default_factory=dict)

    def look(self, ranks: list[Rank], now_ns: int) -> None:
        self._time_ns, self._before = self._now_ns, self._now
        self._now_ns, self._now = now_ns, {rank.segment: rank for rank in ranks}

    def operations(self, rank: Rank) -> float | None:
        before = self._before.get(rank.segment)
        if before is None:
            return None
        # Lanes that were removed took their counts with them.
        return self._per_second(sum(max(self._completed(before, lane), 0) for lane in rank.lanes))

    def lane(self, rank: Rank, lane: Lane) -> float | None:
        before = self._before.get(rank.segment)
        return None if before is None else self._per_second(self._completed(before, lane))

    def bytes(self, rank: Rank, path: Path) -> float | None:
        before = self._before.get(rank.segment)
        known = {one.ring: one.bytes for one in before.paths} if before else {}
        return self._per_second(path.bytes - known[path.ring]) if path.ring in known else None

    def transfers(self, rank: Rank, path: Path) -> float | None:
        before = self._before.get(rank.segment)
        known = {one.ring: one.transfers for one in before.paths} if before else {}
        return self._per_second(path.transfers - known[path.ring]) if path.ring in known else None

    def counters(self, rank: Rank, *names: str) -> float | None:
        before = self._before.get(rank.segment)
        if before is None or before.counters is None or rank.counters is None:
            return None
        return self._per_second(sum(rank.counters[name] - before.counters[name] for name in names))

    @staticmethod
    def _completed(before: Rank, lane: Lane) -> int:
        known = {one.region: one.completed for one in before.lanes if one.name == lane.name}
        return lane.completed - known.get(lane.region, 0)

    def _per_second(self, difference: int) -> float | None:
        seconds = (self._now_ns - self._time_ns) * 1e-9
        return difference / seconds if seconds > 0 else None
