"""Goal: what PyTorch's own distributed tests ask of gloo, Starling gives. Method: the tests that the wheel ships run
unchanged on ranks that stay, under a backend name that passes for gloo where tests choose what to run; the few
that cannot are listed with reasons in upstream_exclusions.py."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import time
import unittest
import unittest.mock
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rank_pool import RankPool
from upstream_exclusions import EXCLUDED

UPSTREAM = "torch.testing._internal.distributed.distributed_test"
# Some tests want eight ranks: `make test-upstream`.
WORLD_SIZE = int(os.environ.get("UPSTREAM_WORLD_SIZE", "3"))
GROUP_TIMEOUT_S = 200
CALL_TIMEOUT_S = 250  # of one test


class PassesForGloo(str):
    """The name "starling", equal to "gloo" too: tests that gloo must pass do not skip themselves."""

    def __eq__(self, other: object) -> bool:
        return other in ("gloo", "starling")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")  # found by this name in sets of names

    def __new__(cls) -> PassesForGloo:
        return super().__new__(cls, "starling")


def upstream_module() -> Any:
    """PyTorch's test module; it reads its configuration from the environment when it is imported."""
    if UPSTREAM in sys.modules:
        return sys.modules[UPSTREAM]
    os.environ.setdefault("BACKEND", "starling")
    os.environ.setdefault("WORLD_SIZE", str(WORLD_SIZE))
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    # Read at import too; some tests initialise a second time.
    os.environ.setdefault("INIT_METHOD", f"file://{tempfile.gettempdir()}/init")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    from torch.testing._internal.common_distributed import DistTestCases

    DistTestCases.backend_feature["plugin"].add("starling")  # is available
    # An environment holds plain text only; so this one variable is answered by a subclass.
    get = type(os.environ).__getitem__
    with unittest.mock.patch.object(
        type(os.environ),
        "__getitem__",
        lambda self, name: PassesForGloo() if name == "BACKEND" else get(self, name),
    ):
        module = importlib.import_module(UPSTREAM)
    module.Barrier.sync = classmethod(sync)
    return module


def sync(barrier: Any, wait_for: int | None = None, timeout: float = 0) -> None:
    """In place of PyTorch's barrier beside the library, which looks every 100 ms and gives up after 10 s: each process
    writes the number of the barrier it has come to."""
    import torch.distributed as dist

    wanted = dist.get_world_size() if wait_for is None else wait_for
    barrier.barrier_id += 1
    folder = Path(os.environ["TEMP_DIR"]) / "barrier"
    draft = folder.parent / f"barrier.{os.getpid()}"
    draft.write_text(str(barrier.barrier_id))
    draft.rename(folder / str(os.getpid()))
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while sum(int(path.read_text()) >= barrier.barrier_id for path in folder.iterdir()) != wanted:
        assert time.monotonic() < deadline, "barrier timeout"
        time.sleep(0.002)


def upstream_names() -> list[str]:
    base = upstream_module().DistributedTest._DistTestBase
    return sorted(name for name in dir(base) if name.startswith("test_"))


# ---- on the ranks


@contextlib.contextmanager
def default_group(rank: int, folder: str, timeout_s: float) -> Iterator[None]:
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "starling",
        init_method=f"file://{folder}/init",
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=timeout_s),
    )
    assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "starling"
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def run_upstream(name: str, folder: str) -> str | None:
    """Runs one test as PyTorch's runner does in a rank of its own; returns why it was skipped, None if it ran."""
    rank = int(os.environ["RANK"])
    os.environ.update(TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/init")
    module = upstream_module()
    module.INIT_METHOD = os.environ["INIT_METHOD"]

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):
        pass

    if getattr(getattr(Case, name), "__unittest_skip__", False):
        reason = str(getattr(Case, name).__unittest_skip_why__)
        if not reason.startswith("Only MPI supports"):  # all_to_all on the CPU, which gloo lacks
            return reason
    case = Case(name)
    case.rank, case.file_name = rank, f"{folder}/init"
    module.Barrier.barrier_id = 0
    with default_group(rank, folder, max(module.CUSTOM_PG_TIMEOUT.get(name, 0), GROUP_TIMEOUT_S)):
        case._barrier()
        sys.modules["torch.testing._internal.common_utils"].set_rng_seed()
        skipped = None
        try:
            getattr(case, name)()
        except unittest.SkipTest as reason:
            skipped = str(reason) or "skipped"
        except SystemExit as leaving:
            skips = {skip.exit_code: skip.message for skip in module.TEST_SKIPS.values()}
            if leaving.code not in skips:
                raise
            skipped = skips[leaving.code]
        case._barrier()
    return skipped


# ---- here


@pytest.fixture(scope="module")
def upstream_ranks() -> Iterator[RankPool]:
    pool = RankPool(WORLD_SIZE, backend=None)
    yield pool
    pool.close()


@pytest.mark.parametrize("name", upstream_names())
def test_upstream(upstream_ranks: RankPool, name: str, tmp_path: Path) -> None:
    if reason := EXCLUDED.get(name):
        pytest.skip(reason)
    for folder in ("barrier", "test_dir", "init_dir"):
        (tmp_path / folder).mkdir()
    skipped = upstream_ranks.run(run_upstream, name, str(tmp_path), timeout_s=CALL_TIMEOUT_S)
    if reasons := [reason for reason in skipped if reason]:
        pytest.skip(f"PyTorch skips it: {reasons[0]}")
