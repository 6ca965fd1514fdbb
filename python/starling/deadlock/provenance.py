"""Where a published number comes from: command, commit, machine, date."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from starling import __version__


def provenance() -> dict[str, Any]:
    arguments = sys.argv[1:] if sys.argv[1:2] == ["deadlock"] else ["deadlock", *sys.argv[1:]]
    return {
        "command": shlex.join(["starling", *arguments]),
        "commit": _commit(),
        "version": __version__,
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def _commit() -> str:
    """Of the checkout this package lies in; an installed package has none."""
    here = Path(__file__).resolve().parent
    run = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return run.stdout.strip() if run.returncode == 0 else "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"
