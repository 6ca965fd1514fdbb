"""Goal: a hang of a PyTorch job over the backend starling has its culprit named, too.

Method: two ranks of a process pool, one of which waits for a file before it calls; looked at from here meanwhile.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_pool import RankPool

from starling.diagnose import diagnose

BOUND_S = 200.0


def reduces_late(folder: str) -> float:
    """Rank 1 calls when the file is there."""
    value = torch.ones(3)
    dist.all_reduce(value)
    deadline = time.monotonic() + BOUND_S
    while dist.get_rank() == 1 and not (Path(folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    dist.all_reduce(value)
    return float(value[0])


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + BOUND_S
    while not (result := found()):
        assert time.monotonic() < deadline, diagnose()
        time.sleep(0.05)
    return result


def test_a_rank_that_has_not_called(tmp_path: Path) -> None:
    pool = RankPool(2)
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(pool.run(reduces_late, str(tmp_path), timeout_s=BOUND_S))
        except BaseException as error:
            results.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()

    def hang() -> Any:
        assert not results, results  # the ranks have ended, in whatever way: nothing more will be seen
        processes = {process.pid for process, _ in pool._ranks}
        for one in diagnose(after_s=0.2):
            if (
                one.verdict
                and {rank.pid for rank in one.ranks} == processes
                and one.verdict.kind == "not called"
            ):
                return one
        return None

    found = until(hang)
    assert found.size == 2 and found.verdict.ranks == (1,)
    assert "all_reduce of 3 float32, sum" in found.verdict.what
    (tmp_path / "go").touch()
    caller.join(BOUND_S)
    pool.close()
    assert results == [[4.0, 4.0]]
