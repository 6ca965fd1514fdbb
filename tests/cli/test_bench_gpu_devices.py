"""Goal: what measures on GPUs says in a line that there are none, before it starts anything. Method: the commands, on a
machine without a GPU; and a driver that counts, made up.
"""

import sys

import pytest
from typer.testing import CliRunner

from starling.bench import gpu_devices
from starling.cli.root import app

COMMANDS = ["bench gpu-disorder", "bench gpu-graphs", "bench gpu-handwritten", "bench gpu-overheads"]
COMMANDS += ["bench overlap", "bench choice --device cuda", "tune --device cuda"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_gpu(command: str) -> None:
    if gpu_devices.visible()[0] > 0:
        pytest.skip("there are GPUs here")
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2, result.output
    assert "no GPU can be used here" in result.output and "nvidia-smi" in result.output


@pytest.mark.parametrize(
    ("ranks", "each", "refused"), [(4, "", True), (4, "2", False), (5, "2", True), (2, "", False)]
)
def test_so_many_ranks(ranks: int, each: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    monkeypatch.setattr(sys.modules[gpu_devices.__name__], "visible", lambda: (2, ""))
    monkeypatch.setenv("RANKS_PER_GPU", each)
    if not refused:
        return gpu_devices.require(ranks)
    with pytest.raises(typer.Exit) as ended:
        gpu_devices.require(ranks)
    assert ended.value.exit_code == 2
