"""What a command that starts processes does when it is told to end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def told_to_end() -> Iterator[None]:
    """SIGTERM raises in the main thread, as Ctrl-C does: ranks, whose sessions are their own, are ended, and files that
    were made for them go. Once: a time limit's signal may come twice, to the process and to its group."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
