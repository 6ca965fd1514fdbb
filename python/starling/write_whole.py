"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CannotWriteError", "whole", "write_whole"]

_REMEDIES = {
    errno.ENOSPC: "free some space there, or choose another place",
    errno.EDQUOT: "free some of your quota there, or choose another place",
    errno.EFBIG: "lift the limit on the size of files (ulimit -f unlimited)",
    errno.ENOENT: "make its folder first, or choose another place",
    errno.ENOTDIR: "make its folder first, or choose another place",
}


class CannotWriteError(OSError):
    """A file that could not be written; its text says which, why, and what to do."""

    def __str__(self) -> str:
        remedy = _REMEDIES.get(self.errno or 0, "choose a place that can be written")
        return f"cannot write {self.filename}: {self.strerror}; {remedy}"


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, and renames it at the end: on a full disk what was there stays as it is.

    What is no file (/dev/stdout, a named pipe) is given itself. Raises ``CannotWriteError`` that names `path`.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        target = path.resolve()  # a link stays one
        draft = target.with_name(f".{os.getpid()}.draft.{target.name}")  # of the same suffix
        try:
            yield draft
            if target.exists():
                draft.chmod(target.stat().st_mode & 0o7777)
            draft.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWriteError(error.errno, error.strerror or str(error), str(path)) from None


def write_whole(path: str | Path, text: str) -> None:
    """Writes `text`, as :func:`whole` does."""
    with whole(path) as draft:
        draft.write_text(text)
