"""Goal: the same program gives the same bytes, in whichever process it is compiled.

Method: two processes compile every program of plans/ in several ways (digests.py). Their words have other hashes and
their objects other addresses, so that whatever goes by the order of a set, or by an id, comes out differently.
"""

import os
import subprocess
import sys
from pathlib import Path

from programs.cases import NAMES


def test_two_processes_give_the_same_bytes(repository_root) -> None:
    first, second = (digests(repository_root / "tests", hash_seed) for hash_seed in (1, 2))
    assert len(first) > 4 * len(NAMES)
    assert first == second


def digests(folder: Path, hash_seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "programs.digests"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
