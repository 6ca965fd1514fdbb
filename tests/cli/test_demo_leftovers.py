"""Goal: the deadlock demo, whose ranks end while they hang, leaves no segment in /dev/shm.

Method: its smallest such run.
"""

from pathlib import Path

from starling.demo import deadlock
from starling.demo.programs import Program


def segments() -> set[Path]:
    return set(Path("/dev/shm").glob("starling.*"))


def test_killed_ranks_leave_nothing() -> None:
    before = segments()
    run = deadlock.run(Program(20, 0, seed=1), 8, yields=False, limit_s=3.0)
    assert not run.finished
    assert segments() <= before
