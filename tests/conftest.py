"""What all Python tests share."""

import shutil
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# The same examples in every run: what a change breaks is found with that change.
hypothesis.settings.register_profile("same examples", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same examples")

# A shell that is not interactive lets what it starts in the background ignore Ctrl-C, nohup lets it ignore hanging up,
# and everything started by that does too: tests send both to programs that must end.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

# Side by side, the longest files begin first, so that none is left at the end with a core that has nothing to do.
LONGEST = [
    "verbs",  # guests that are emulated: alone at the end they would leave a core with nothing to do
    *(
        "conformance/test_conformance",
        "comm/test_programs",
        "torch",
        "cli/test_demo",
        "cli/test_bench",
        "hosts",
    ),
    *("comm/test_lanes", "sim", "deadlock", "tune", "comm"),
]
# Files of tests/torch that use no ranks which stay; the others share a worker, and so its ranks.
WITHOUT_STAYING_RANKS = ("test_upstream", "test_processes", "test_adapter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first. Tests marked gpu are skipped, with the reason, where there is no GPU."""
    items.sort(key=lambda item: place_of(item.nodeid))
    if shutil.which("nvidia-smi"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


def place_of(nodeid: str) -> int:
    found = (k for k, name in enumerate(LONGEST) if nodeid.startswith(f"tests/{name}"))
    return next(found, len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests run on one worker; those of the files that share ranks, too."""
    from xdist.scheduler import LoadFileScheduling

    class ByRanks(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            shares = file.startswith("tests/torch/") and Path(file).stem not in WITHOUT_STAYING_RANKS
            return "tests/torch" if shares else file

    return ByRanks(config, log)


@pytest.fixture(scope="session")
def repository_root() -> Path:
    return ROOT
