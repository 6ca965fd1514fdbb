"""Goal: what docs/LANGUAGE.md shows is what happens.

Method: its Python blocks are run in their order, its errors are provoked.
"""

import re
import sys
from pathlib import Path

import pytest
from starling.plans import ALGORITHMS

from starling import ir, lang
from starling.lang.source import plan_of, program_of
from starling.passes.command import _described


def blocks(repository_root: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (repository_root / "docs/LANGUAGE.md").read_text(), re.S)


def test_the_tutorial_runs(
    repository_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, run, own = blocks(repository_root)
    file = tmp_path / "my.py"
    file.write_text(first)
    plan = plan_of(str(file), 4)
    text = (repository_root / "docs/LANGUAGE.md").read_text()
    assert _described(plan, ir.verify(plan)) in text
    assert all(rank.scratch_chunks == 0 for rank in plan.ranks)
    names: dict[str, object] = {}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my", raising=False)
    exec(run, names)
    assert "4.0" in capsys.readouterr().out
    exec(own, names)
    assert str(names["Neighbours"](3).expected(2, 0)) == "rank 0 input[0] + rank 2 input[0]"  # type: ignore[operator]


def test_the_broken_programs_say_what_the_page_says(repository_root: Path, tmp_path: Path) -> None:
    first = blocks(repository_root)[0]
    file = tmp_path / "my.py"
    file.write_text(first.replace('        c = c.copy(r, "output", r)\n', ""))
    with pytest.raises(
        lang.PostconditionError, match=r"at the end rank 0 output\[0\] holds nothing; AllReduce over 4"
    ):
        program_of(str(file), 4).compile()
    file.write_text(first.replace("c = c.reduce(theirs)", "c.reduce(theirs)"))
    with pytest.raises(
        lang.StaleReferenceError,
        match=r"my\.py:10: this reference is stale",
    ):
        program_of(str(file), 4)


def test_every_collective_and_parameter_is_on_the_page(repository_root: Path) -> None:
    text = (repository_root / "docs/LANGUAGE.md").read_text()
    for name, collective in {**lang.STANDARD, "all_to_next": lang.AllToNext}.items():
        assert f"`{collective.__name__}`" in text, name
    for word in (
        "blocks",
        "policy",
        "slots",
        "fusion",
        "fans",
        "by_hand",
        "verify",
        "instances",
        "protocol",
        "tile_bytes",
    ):
        assert word in text
    assert ALGORITHMS
