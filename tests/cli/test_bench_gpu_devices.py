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


def test_ranks_that_share_a_gpu_run_the_cases_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from starling.bench import gpu_disorder

    monkeypatch.setattr(sys.modules[gpu_devices.__name__], "visible", lambda: (1, ""))
    monkeypatch.setenv("RANKS_PER_GPU", "2")
    ran: list[tuple[list[str], list[str]]] = []
    monkeypatch.setattr(
        gpu_disorder, "measure", lambda run, cases, libraries: ran.append((cases, libraries)) or []
    )
    words = ["bench", "gpu-disorder", "-c", "disorder alone,all SMs but 8 occupied"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert ran == [(["disorder alone"], ["starling in PyTorch", "starling's API"])]
    assert "4 of 6 cases need one each" in result.output
    result = CliRunner().invoke(app, [*words, "--libraries", "nccl"])
    assert result.exit_code == 2 and "share a GPU" in result.output


@pytest.mark.parametrize(
    ("count", "may_share", "text"),
    [
        (1, True, "here is 1; RANKS_PER_GPU=2 lets two ranks share one"),
        (1, False, "here is 1; run it where there are as many"),
        (2, True, "here are 2; ask for fewer with -n"),
    ],
)
def test_refusals_say_what_can_be_done(
    count: int, may_share: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[gpu_devices.__name__], "visible", lambda: (count, ""))
    monkeypatch.delenv("RANKS_PER_GPU", raising=False)
    assert text in gpu_devices.lacking(2 * count, fewest=2, may_share=may_share)


def test_what_shares_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[gpu_devices.__name__], "visible", lambda: (1, ""))
    monkeypatch.setenv("RANKS_PER_GPU", "2")
    assert not gpu_devices.lacking(2, fewest=2)
    result = CliRunner().invoke(app, ["bench", "overlap"])
    assert result.exit_code == 2 and "2 ranks need 2 GPUs, here is 1" in result.output
