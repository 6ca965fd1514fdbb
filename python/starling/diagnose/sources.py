"""Where records come from: ranks of this user on this host, dead or alive, and files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from starling.diagnose.record import HEADER_BYTES, NotARecordError, Record, State, job_in, parse

SHARED = Path("/dev/shm")
PREFIX = "starling-flight."
_FLOCK = struct.Struct("hhqqi4x")
_BETWEEN_LOOKS_S = 0.02


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the segment: it lives. Not for segments of this process."""
    try:
        with path.open("rb+") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _state_of(path: Path, data: bytes) -> State:
    """Closing a segment of our own would let go of its lock, and with it of our life in our peers' eyes."""
    with contextlib.suppress(NotARecordError):
        if parse(data, "live").pid == os.getpid():
            return "live"
    segment = path.with_name("starling." + path.name.removeprefix(PREFIX))
    return "live" if _is_locked(segment) else "dead"


def of_this_host(folder: Path = SHARED) -> list[Record]:
    """Records in /dev/shm of this user's ranks."""
    looks: dict[Path, bytes] = {}
    for path in sorted(folder.glob(PREFIX + "*")):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.geteuid():
                looks[path] = path.read_bytes()
    time.sleep(_BETWEEN_LOOKS_S if looks else 0)
    records = []
    for path, data in looks.items():
        state = _state_of(path, data)
        try:
            again = path.read_bytes()
        except OSError:
            continue  # it has left since, in order
        with contextlib.suppress(NotARecordError):
            records.append(parse(again, state, data, time.time_ns()))
    return records


def job_of_segment(segment: str, folder: Path = SHARED) -> str:
    """As the user or the launcher of the segment's rank calls its job; "" if that is not known."""
    path = folder / (PREFIX + segment.removeprefix("starling."))
    with contextlib.suppress(OSError, NotARecordError), path.open("rb") as file:
        return job_in(file.read(HEADER_BYTES))
    return ""


def of_files(paths: Iterable[Path]) -> list[Record]:
    """Of files, and of all ``*.flight`` in folders. Of two of one rank the later. Raises OSError, NotARecordError."""
    newest: dict[int, Record] = {}
    for path in paths:
        files = sorted(path.glob("*.flight")) if path.is_dir() else [path]
        if not files:
            raise NotARecordError(f"{path}: there are no flight records (*.flight)")
        for file in files:
            try:
                record = parse(file.read_bytes(), "dead")
            except NotARecordError as error:
                raise NotARecordError(f"{file}: {error}") from None
            if record.id not in newest or record.seen_ns > newest[record.id].seen_ns:
                newest[record.id] = record
    return list(newest.values())
