"""What the watcher sees, in Prometheus' text format; as a file for the node exporter, or served over HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path as FilePath

from starling.monitor.views import Lane, Path, Rank

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Name, kind, meaning; then where the value comes from.
_RANK: Sequence[tuple[str, str, str, str]] = (
    ("launches", "counter", "residencies of the daemon, added up over its blocks", "launches"),
    ("parks", "counter", "times that a block put an operation aside that could not go on", "parks"),
    ("resumes", "counter", "times that a block went on with one that had been put aside", "resumes"),
    ("quits_idle", "counter", "residencies that ended for want of work", "quits_idle"),
    ("quits_stuck", "counter", "residencies that ended because nothing could go on", "quits_stuck"),
    ("quits_drained", "counter", "residencies that ended because another block wanted to", "quits_drained"),
    ("instructions", "counter", "instructions that blocks have finished", "instructions"),
)
_LANE: Sequence[tuple[str, str, str, Callable[[Lane], float]]] = (
    ("submitted", "counter", "operations that the program has called", lambda lane: lane.submitted),
    ("completed", "counter", "operations that have ended, well or not", lambda lane: lane.completed),
    ("broken", "gauge", "1: a fault has ended the lane", lambda lane: int(bool(lane.fault))),
)
_PATH: Sequence[tuple[str, str, str, Callable[[Path], float]]] = (
    ("transfers", "counter", "transfers that have landed", lambda path: path.transfers),
    ("bytes", "counter", "bytes that have landed", lambda path: path.bytes),
    ("under_way_bytes", "gauge", "bytes posted and not landed", lambda path: path.left_bytes),
    (
        "waiting_seconds",
        "gauge",
        "age of the oldest transfer under way",
        lambda path: path.waiting_ns * 1e-9,
    ),
    (
        "window_bytes_per_second",
        "gauge",
        "throughput of the last window of transfers",
        lambda path: path.bytes_per_second,
    ),
    (
        "straight_bytes",
        "counter",
        "payload over RDMA that nobody copied on its way",
        lambda path: path.straight_bytes,
    ),
    ("copied_bytes", "counter", "payload over RDMA that was copied", lambda path: path.copied_bytes),
    ("closed", "counter", "times that the path was closed", lambda path: path.closed),
    (
        "slow_seconds",
        "counter",
        "time lost to the network, against the path's history",
        lambda path: path.slow_ns * 1e-9,
    ),
    ("slow_periods", "counter", "how often that was", lambda path: path.slow_count),
    (
        "starved_seconds",
        "counter",
        "time in which the path had nothing to send, where it usually has",
        lambda path: path.starved_ns * 1e-9,
    ),
    ("starved_periods", "counter", "how often that was", lambda path: path.starved_count),
)


def prometheus_text(ranks: Iterable[Rank]) -> str:
    """The ranks that live, of all jobs."""
    alive = [rank for rank in ranks if rank.state == "alive"]
    lines: list[str] = []
    _family(lines, "starling_up", "gauge", "1: the rank lives")
    lines += [f"starling_up{_labels(rank)} 1" for rank in alive]
    for name, kind, meaning, counter in _RANK:
        full = _family(lines, f"starling_{name}", kind, meaning)
        lines += [f"{full}{_labels(rank)} {rank.counters[counter]}" for rank in alive if rank.counters]
    for name, kind, meaning, lane_value in _LANE:
        full = _family(lines, f"starling_lane_{name}", kind, meaning)
        for rank in alive:
            lines += [
                f"{full}{_labels(rank, lane=_lane_label(rank, lane))} {lane_value(lane)}"
                for lane in rank.lanes
            ]
    for name, kind, meaning, path_value in _PATH:
        full = _family(lines, f"starling_path_{name}", kind, meaning)
        for rank in alive:
            lines += [
                f"{full}{_labels(rank, peer=str(path.peer), path=str(path.path), link=path.link, port=path.name)}"
                f" {path_value(path):.10g}"
                for path in rank.paths
            ]
    return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, kind: str, meaning: str) -> str:
    full = f"{name}_total" if kind == "counter" else name
    lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
    return full


def _lane_label(rank: Rank, lane: Lane) -> str:
    """Lanes may share a name, of groups of their own: a series has one value."""
    twins = [one.region for one in rank.lanes if one.name == lane.name]
    return lane.name if len(twins) == 1 else f"{lane.name}#{sorted(twins).index(lane.region)}"


def _labels(rank: Rank, **more: str) -> str:
    labels = {"job": rank.job or "", "rank": str(rank.rank), "pid": str(rank.pid)}
    # Ranks that are threads of one process, and have joined nothing yet.
    labels["segment"] = rank.segment.rpartition(".")[2]
    labels |= more
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def write_file(path: FilePath, text: str) -> None:
    """Whole at once, as the node exporter's textfile collector asks."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text)
    draft.replace(path)


def make_server(port: int, look: Callable[[], list[Rank]], address: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Answers GET /metrics at this port (0: a free one). Run its serve_forever().

    ``address``: an IPv4 or IPv6 address or a name of this host; "0.0.0.0" or "::" is all of its interfaces. Nobody
    is asked who he is: by default only this host's processes are answered. Raises OSError if it cannot be served at.
    """
    family, _, _, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]

    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] not in ("/", "/metrics"):
                self.send_error(404)
                return
            body = prometheus_text(look()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Server((str(where[0]), int(where[1])), Handler)
