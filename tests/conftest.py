"""What all Python tests share."""

import shutil
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run: what a change breaks is found with that change.
hypothesis.settings.register_profile("same examples", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same examples")

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked gpu are skipped, with the reason, where there is no GPU."""
    if shutil.which("nvidia-smi"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


@pytest.fixture(scope="session")
def repository_root() -> Path:
    return ROOT
