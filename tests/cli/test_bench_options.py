"""Goal: a benchmark says when its figures will be those of a busy machine, and does not wait for one rank that stays
after the other. Method: a made-up load; ranks that do nothing.
"""

import os
import time
from pathlib import Path

import pytest

from starling.bench import options, workers


@pytest.mark.parametrize(("load", "said"), [(0.4, False), (1.6, True)])
def test_a_busy_machine_is_told(
    load: float, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    options.speaker(Path("-"))("a line of the table")
    out, err = capsys.readouterr()
    assert out == ""
    assert ("1.6 threads wanted the 2 cores" in err) == said


def test_ranks_that_stay_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LEAVE_S", 1)
    silent = workers.Launch(["sleep", "60"], {})
    begin = time.monotonic()
    with pytest.raises(workers.WorkerError):
        workers.WorkerGroup("silent", 4, lambda _: [silent] * 4, timeout_s=0.2)
    assert 1 < time.monotonic() - begin < 3
