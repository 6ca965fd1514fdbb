"""Key-value stores in which ranks meet. Anything with these two methods will do, PyTorch's too if wrapped."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Protocol

__all__ = ["FileStore", "InProcessStore", "Store"]

_POLL_S = 0.001


class Store(Protocol):
    """Used while a communicator is made, from any thread."""

    def set(self, key: str, value: bytes) -> None:
        """Writes the value, visible to all ranks."""

    def get(self, key: str, timeout: float) -> bytes:
        """Waits for the key up to ``timeout`` seconds; raises ``TimeoutError``. Any other ends the meeting."""


class InProcessStore:
    """For ranks that are threads of this process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = bytes(value)
            self._changed.notify_all()

    def get(self, key: str, timeout: float) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout):
                raise TimeoutError(f"no value of {key} within {timeout} s")
            return self._values[key]


class FileStore:
    """For processes that share a folder. Whoever made the folder removes it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        # Renamed when whole: a reader sees all of it or nothing.
        draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        draft.write_bytes(value)
        draft.rename(path)

    def get(self, key: str, timeout: float) -> bytes:
        path = self._path(key)
        deadline = time.monotonic() + timeout
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no value of {key} in {self._folder} within {timeout} s") from None
            time.sleep(_POLL_S)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()
