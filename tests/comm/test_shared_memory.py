"""Goal: a /dev/shm that is full, small, read-only or missing is an error with a remedy, or enough.

Method: each in a mount namespace of its own, where a process makes a context and two ranks meet. Needs root.
"""

import shutil
import subprocess
import sys

import pytest

TRY = """
import functools, numpy as np, starling
from starling.launch import run_threads
def program(c):
    for count in (1, 1 << 10, 1 << 22):
        value = np.ones(count, "float32")
        c.all_reduce(value, lane=f"of {count}").wait()
        assert (value == c.size).all()
    return True
try:
    print("right" if all(run_threads(2, program)) else "wrong")
except starling.StarlingError as error:
    print(error)
"""


FILL = """
import os
import numpy as np, starling
from starling.launch import run_threads
def program(c):
    value = np.ones(1 << 22, "float32")
    c.all_reduce(value[:4].copy(), lane="before").wait()
    if c.rank == 0:
        left = os.statvfs("/dev/shm")
        with open("/dev/shm/other", "wb") as other:
            other.write(bytes(left.f_bavail * left.f_frsize - (128 << 10)))
    c.all_reduce(value[:4].copy(), lane="before").wait()
    try:
        c.all_reduce(value, lane="after").wait()
    except starling.errors.ExhaustedError as error:
        print(error)
    finally:
        if c.rank == 0:
            os.remove("/dev/shm/other")
run_threads(1, program)
"""


def run(prepare: str, program: str = TRY) -> str:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    command = ["unshare", "--mount", "sh", "-c", f'{prepare} && exec "$0" -c "$1"', sys.executable, program]
    probe = subprocess.run([*command[:4], "mount -t tmpfs tmpfs /dev/shm"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("mount namespaces are for root")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done
    return done.stdout


def test_full() -> None:
    assert "--shm-size" in run("mount -t tmpfs -o size=64k tmpfs /dev/shm")


def test_small_is_enough() -> None:
    assert run("mount -t tmpfs -o size=24m tmpfs /dev/shm") == "right\n"


def test_no_room_for_a_lane() -> None:
    told = run("mount -t tmpfs -o size=24m tmpfs /dev/shm", FILL)
    assert "KiB left" in told
    assert "--shm-size" in told


def test_read_only() -> None:
    told = run("mount -t tmpfs -o ro tmpfs /dev/shm")
    assert "Read-only" in told
    assert "mount a tmpfs at /dev/shm" in told


def test_missing() -> None:
    told = run("mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9")
    assert "No such file" in told
    assert "mount a tmpfs at /dev/shm" in told
