"""Processes that a command may have left."""

from pathlib import Path


def processes_with(*words: bytes) -> list[int]:
    """Those that have all ``words`` in their commands."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = line.read_bytes()
        except OSError:
            continue  # it has just ended
        if all(word in command for word in words):
            found.append(int(line.parent.name))
    return found
