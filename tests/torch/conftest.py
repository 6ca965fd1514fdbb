"""Fixtures of the PyTorch tests: pools of ranks that stay for the whole session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
# For `rank_pool`. This folder has no __init__.py: a package `torch` must not stand before the real one.
sys.path.insert(0, str(Path(__file__).parent))

from rank_pool import RankPool


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Four ranks whose default group is ``starling``."""
    pool = RankPool(4)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[RankPool]:
    pool = RankPool(2)
    yield pool
    pool.close()
