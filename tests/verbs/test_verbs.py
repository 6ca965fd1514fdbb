"""Goal: flows and collectives over RDMA survive their rails. Method: Soft-RoCE in a guest that QEMU emulates
(guest.py); one guest runs all cases of link_program.cc and collectives_program.cc, another one those of the conformance
suite of links (link/conformance.h) that need no connection to be reset, a third one those of straight_program.cc; their
lines are read here."""

import functools
import re
from pathlib import Path

import pytest

from verbs import guest

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/dev/tests/bin"
# What a guest runs, and the cases that it comes to.
GUESTS = {
    "flows and collectives": ["link_program cases", "collectives_program"],
    "conformance suite": ["conformance_program"],
    "large messages": ["straight_program cases"],
}


def cases_of(program: str) -> list[str]:
    if program == "conformance_program":
        text = (ROOT / "tests/link/conformance.h").read_text()
        named = re.findall(r'^    \{"(\w+)", (\w+), \1\},', text, re.M)
        return [case for case, faults in named if faults != "kCut"]
    text = (Path(__file__).parent / f"{program}.cc").read_text()
    return re.findall(r'^    \{"(\w+)", \1\},', text, re.M)


CASES = [
    (name, case) for name, commands in GUESTS.items() for c in commands for case in cases_of(c.split()[0])
]
LIMIT_S = 1500  # of a guest whose processors get a tenth of a core; alone it takes about a minute


@functools.cache
def console(name: str) -> str:
    programs = [BIN / f"verbs.{command.split()[0]}" for command in GUESTS[name]]
    for program in programs:
        if not program.exists():
            pytest.skip(f"{program} is not built (make test-cpp builds it)")
    return guest.boot(programs, "; ".join(f"/bin/verbs.{command}" for command in GUESTS[name]), LIMIT_S)


@pytest.mark.timeout(LIMIT_S + 60)  # the first case of a guest waits for all of them
@pytest.mark.parametrize(("name", "case"), CASES)
def test_case(name: str, case: str) -> None:
    if lacking := guest.missing():
        pytest.skip(f"a guest needs {lacking} (make setup installs it)")
    shown = console(name)
    line = re.search(rf"^CASE {case} (.*)$", shown, re.M)
    assert line is not None, f"the guest did not come to it:\n{shown[-3000:]}"
    assert line[1].startswith("passed"), line[1]


def test_all_cases_are_known() -> None:
    assert {name: len([c for n, c in CASES if n == name]) > 10 for name in GUESTS} == dict.fromkeys(
        GUESTS, True
    )
