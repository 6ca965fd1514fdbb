"""Goal: flows and collectives over RDMA survive their rails. Method: Soft-RoCE in a guest that QEMU emulates
(guest.py); one guest runs all cases of link_program.cc and collectives_program.cc, whose lines are read here."""

import re
from pathlib import Path

import pytest

from verbs import guest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    name: ROOT / "build/dev/tests/bin" / f"verbs.{name}" for name in ("link_program", "collectives_program")
}
CASES = [
    case
    for name in PROGRAMS
    for case in re.findall(r'^    \{"(\w+)", \1\},', (Path(__file__).parent / f"{name}.cc").read_text(), re.M)
]
LIMIT_S = 400  # of a guest on a machine that is busy; alone it takes less than 40 s


@pytest.fixture(scope="module")
def console() -> str:
    if lacking := guest.missing():
        pytest.skip(f"a guest needs {lacking} (make setup installs it)")
    for program in PROGRAMS.values():
        if not program.exists():
            pytest.skip(f"{program} is not built (make test-cpp builds it)")
    command = "; ".join(["/bin/verbs.link_program cases", "/bin/verbs.collectives_program"])
    return guest.boot(list(PROGRAMS.values()), command, LIMIT_S)


@pytest.mark.parametrize("case", CASES)
def test_case(console: str, case: str) -> None:
    line = re.search(rf"^CASE {case} (.*)$", console, re.M)
    assert line is not None, f"the guest did not come to it:\n{console[-3000:]}"
    assert line[1].startswith("passed"), line[1]


def test_all_cases_are_known() -> None:
    assert len(CASES) > 10
