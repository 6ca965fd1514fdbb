"""Goal: bench/train.py trains the models it names, of their sizes, in every way, and its libraries agree; where loss
curves differ it says so. Method: tiny models on CPUs, with Starling and gloo; sizes on the meta device.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
PROGRAM = Path(__file__).parents[2] / "bench" / "train.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=150
    )


@pytest.mark.timeout(170)
@pytest.mark.parametrize(
    ("model", "ways", "rows"),
    [
        ("resnet50", "bucketed;unbucketed;unbucketed, own order;unbucketed, coordinated;fully sharded", 6),
        ("gpt2", "bucketed, own order;tensor parallel;pipeline;fully sharded", 7),
        ("vit_b16", "bucketed;fully sharded;fully sharded, prefetched", 6),
    ],
)
def test_libraries_agree(model: str, ways: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    ran = run(
        *("--tiny", "--models", model, "--ways", ways, "--iterations", "2", "--warmup", "1"),
        *("--timeout", "140", "--json", str(path), "--plot", str(tmp_path / "curves.png")),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(path.read_text())["rows"]
    assert len(found) == rows, ran.stdout + ran.stderr
    curves: dict[str, list[list[float]]] = {}
    for row in found:
        is_data_parallel = "bucketed" in row["way"] or "fully sharded" in row["way"]
        key = "data parallel" if is_data_parallel else row["way"]
        curves.setdefault(key, []).append(row["losses"])
    for key, each in curves.items():
        for losses in each[1:]:
            assert losses == pytest.approx(each[0], rel=1e-3), key
        assert len(set(each[0])) > 1, f"{key}: nothing is trained"
    assert (tmp_path / "curves.png").stat().st_size > 1000
    held = {row["way"].split(",")[0]: row["parameters"] for row in found}
    if "fully sharded" in held and "bucketed" in held:  # by one of two ranks
        assert held["fully sharded"] == pytest.approx(held["bucketed"] / 2, rel=0.05)


def test_curves_that_differ_are_told() -> None:
    train = loaded()
    row = {"model": "gpt2", "way": "bucketed", "library": "starling", "losses": [4.0, 3.0]}
    other = {**row, "library": "nccl", "losses": [4.0, 3.1]}
    assert train.disagreements([row, other]) == []
    assert train.disagreements([row, {**other, "way": "pipeline", "losses": [4.0, 9.0]}]) == []
    (text,) = train.disagreements([row, {**other, "losses": [4.0, 3.5]}])
    assert "nccl" in text
    assert "0.5 apart" in text
    assert len(train.disagreements([row, {**other, "losses": [4.0, float("nan")]}])) == 1


@pytest.mark.parametrize(
    ("name", "parameters", "gradients"),
    [("resnet50", 25_557_032, 161), ("vit_b16", 86_566_888, 0), ("gpt2", 163_000_000, 0)],
)
def test_models_are_of_full_size(name: str, parameters: int, gradients: int) -> None:
    loaded()
    from training.models import ALONE, parameter_count, workloads

    with torch.device("meta"):
        model = workloads(False)[name].build(ALONE)
    assert parameter_count(model) == pytest.approx(parameters, rel=2e-3)
    assert gradients in (0, len(list(model.parameters())))


@pytest.mark.parametrize(
    "wrong", [["--models", "lenet"], ["--ways", "sideways"], ["--tiny", "--backends", "nccl"]]
)
def test_unknown_names_are_refused(wrong: list[str]) -> None:
    ran = run(*wrong)
    assert ran.returncode == 2
    assert "choose from" in ran.stderr


def test_profile_sums_what_a_trace_has() -> None:
    loaded()
    from training.profile import summed

    def event(kind: str, name: str, begin: float, length: float, blocks: int = 1) -> dict[str, object]:
        grid = {"grid": [blocks, 1, 1]}
        return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, "args": grid}

    found = summed(
        [
            event("kernel", "gemm", 0, 1000),
            event("kernel", "gemm", 500, 1000),  # beside the first
            event("kernel", "relu", 3000, 1000),
            event("kernel", "starling::daemon_kernel(Launch)", 0, 3000, 32),
            event("kernel", "ncclDevKernel_AllReduce(Args)", 0, 500, 16),
            event("kernel", "ncclDevKernel_AllReduce(Args)", 600, 300, 16),
            event("cuda_runtime", "cudaLaunchKernel", 0, 8),
            event("cuda_runtime", "cudaLaunchKernel", 10, 4),
            event("cpu_op", "aten::mm", 0, 100),
            {"ph": "M", "name": "process_name"},
        ],
        steps=2,
    )
    assert (found["step_ms"], found["computing_ms"]) == (2.0, 1.25)
    assert found["kernels"] == [
        {"name": "starling::daemon_kernel, 32 blocks", "ms": 1.5, "count": 0.5, "us_each": 3000.0},
        {"name": "ncclDevKernel_AllReduce, 16 blocks", "ms": 0.4, "count": 1.0, "us_each": 400.0},
    ]
    assert found["calls"] == [{"name": "cudaLaunchKernel", "ms": 0.006, "count": 1.0, "us_each": 6.0}]


def test_profile_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    ran = run(
        *("--tiny", "--profile", "--models", "gpt2", "--ways", "bucketed", "--backend", "starling"),
        *("--iterations", "20", "--warmup", "1", "--timeout", "140", "--json", str(path)),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = json.loads(path.read_text())["rows"]
    assert row["profile"]["steps"] == 3
    assert row["profile"]["threads"][0]["cpu_ms"] > 0
    assert "ms of a core" in ran.stdout
