"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: str | Path, text: str) -> None:
    """Writes `text` beside `path`, then renames it: on a full disk what was there before stays as it is.

    What is no file (/dev/stdout, a named pipe) is written to. Raises ``OSError`` that names `path`.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    target = path.resolve()  # a link stays one
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        draft.write_text(text)
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o7777)
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
