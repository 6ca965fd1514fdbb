"""Goal: collectives that CUDA graphs capture give right results in every replay, beside eager ones and in any order of
graphs, and streams of replays go on when a rank dies or does not come.

Method: ``graph_checks.py`` and ``graph_failures.py`` in processes of their own, two and four, one a GPU, and one
alone; each check has a time limit.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu import gpus

pytestmark = pytest.mark.gpu


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize(
    "words",
    [
        "graph_checks one work_around sizes kinds unequal_parts strided temporaries messages coalesced",
        "graph_checks asynchronous crossed_waits side_stream many futures ddp",
        "graph_checks beside_eager several any_order late late_gate behind_computation captured_again domain",
        "graph_failures",
    ],
    ids=("collectives", "streams", "orders", "failures"),
)
def test_checks(words: str, ranks: int) -> None:
    _run(words, ranks)


@pytest.mark.timeout(240)
def test_one_rank_alone() -> None:
    _run("graph_checks one sizes kinds strided temporaries side_stream many beside_eager any_order ddp", 1)


def _run(words: str, ranks: int) -> None:
    gpus.skip_unless(ranks)
    script, *names = words.split()
    command = [sys.executable, str(Path(__file__).with_name(f"{script}.py")), str(ranks), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-4000:]
