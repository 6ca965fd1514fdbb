"""What paths did while they were watched: as CSV, and as counter tracks of a trace for ui.perfetto.dev."""

from __future__ import annotations

import csv
from pathlib import Path as FilePath
from typing import Any, TextIO

from starling.monitor.views import Anomaly, Path, Rank, Sample

COLUMNS = (
    "job",
    "rank",
    "pid",
    "peer",
    "path",
    "link",
    "port",
    "posted_ns",
    "completed_ns",
    "bytes",
    "left_bytes",
    "window_transfers",
    "window_bytes_per_second",
    "window_starved_ns",
)
MOST_IN_TRACE = 1_000_000


class Recording:
    """Is given what a watcher looked at and took; writes CSV as it comes, and keeps what a trace needs."""

    def __init__(self, csv_path: FilePath | None = None, trace: bool = False) -> None:
        self._file: TextIO | None = csv_path.open("w", newline="") if csv_path else None
        self._csv = csv.writer(self._file) if self._file else None
        if self._csv:
            self._csv.writerow(COLUMNS)
        self._trace = trace
        self._ranks: dict[str, Rank] = {}
        self._paths: dict[tuple[str, int], Path] = {}
        self._samples: list[Sample] = []
        self._anomalies: list[tuple[str, int, Anomaly]] = []

    def add(
        self, ranks: list[Rank], samples: list[Sample], anomalies: list[tuple[str, int, Anomaly]]
    ) -> None:
        for rank in ranks:
            self._ranks[rank.segment] = rank
            for path in rank.paths:
                self._paths[rank.segment, path.ring] = path
        if self._csv:
            self._csv.writerows(self._row(sample) for sample in samples)
        if self._trace:
            self._samples += samples[: MOST_IN_TRACE - len(self._samples)]
            self._anomalies += anomalies

    def _row(self, sample: Sample) -> tuple[Any, ...]:
        rank, path = self._ranks[sample.segment], self._paths[sample.segment, sample.ring]
        return (
            rank.job or "",
            rank.rank,
            rank.pid,
            path.peer,
            path.path,
            path.link,
            path.name,
            sample.posted_ns,
            sample.completed_ns,
            sample.bytes,
            sample.left_bytes,
            sample.transfers,
            f"{sample.bytes_per_second:.6g}",
            sample.starved_ns,
        )

    def close(self) -> None:
        if self._file:
            self._file.close()

    def tracks(self, zero_ns: int | None = None) -> list[dict[str, Any]]:
        """Events for Chrome's trace JSON: of each path its throughput and what is under way, and its anomalies as
        slices. Times begin at `zero_ns` (None: the first transfer); a rank is a process, as in starling.timeline.
        """
        if zero_ns is None:
            zero_ns = self.start_ns()
        events: list[dict[str, Any]] = []
        for sample in self._samples:
            rank, path = self._ranks[sample.segment], self._paths[sample.segment, sample.ring]
            at = {"ph": "C", "pid": rank.rank, "ts": (sample.completed_ns - zero_ns) / 1e3}
            gigabytes = {"GB/s": round(sample.bytes_per_second / 1e9, 6)}
            events.append(at | {"name": f"{_title(path)}: window", "args": gigabytes})
            events.append(at | {"name": f"{_title(path)}: under way", "args": {"bytes": sample.left_bytes}})
        threads: set[tuple[int, int]] = set()
        for segment, ring, anomaly in self._anomalies:
            rank, path = self._ranks[segment], self._paths[segment, ring]
            thread = 1_000_000 + path.peer * 8 + path.path
            if (rank.rank, thread) not in threads:
                threads.add((rank.rank, thread))
                named = {"name": _title(path)}
                events.append(
                    {"ph": "M", "pid": rank.rank, "tid": thread, "name": "thread_name", "args": named}
                )
            events.append(
                {
                    "ph": "X",
                    "pid": rank.rank,
                    "tid": thread,
                    "name": anomaly.cause,
                    "cat": "path",
                    "cname": "terrible" if anomaly.cause == "network" else "grey",
                    "ts": (anomaly.begin_ns - zero_ns) / 1e3,
                    "dur": (anomaly.end_ns - anomaly.begin_ns) / 1e3,
                    "args": {
                        "lost us": anomaly.lost_ns / 1e3,
                        "GB/s": anomaly.bytes_per_second / 1e9,
                        "usual GB/s": anomaly.usual_bytes_per_second / 1e9,
                        "bytes under way": anomaly.left_bytes,
                    },
                }
            )
        return events

    def start_ns(self) -> int:
        """Of the first transfer; 0 if there was none."""
        return min((sample.posted_ns for sample in self._samples), default=0)

    def names(self) -> list[dict[str, Any]]:
        """Names of the ranks, where no timeline gives them."""
        ranks = {self._ranks[sample.segment].rank for sample in self._samples}
        return [
            {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
            for rank in ranks
        ]


def _title(path: Path) -> str:
    return f"to rank {path.peer} by {path.name} ({path.link})"
