"""Goal: flows and collectives over RDMA survive their rails. Method: Soft-RoCE in a guest that QEMU emulates
(guest.py), which runs the cases of link_program.cc, collectives_program.cc and straight_program.cc, and those of the
conformance suite of links (link/conformance.h) that need no connection to be reset; their lines are read here.
``FULL_TESTS=1`` runs those, too, that another one shows in part."""

import functools
import os
import re
from pathlib import Path

import pytest

from verbs import guest

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/dev/tests/bin"
FULL = os.environ.get("FULL_TESTS") == "1"
# What the guest runs, and what of it only FULL_TESTS=1 does.
PROGRAMS = {
    "link_program cases": {"the_second_fails_too", "striping_loses_a_rail", "nothing_lives"},
    "collectives_program": {
        "second_hosts_port_heals_with_another_address",
        "dfccl_program_1_outlives_failures",
        "dfccl_program_2_on_devices_outlives_failures",
    },
    "straight_program cases": {
        "large_collectives_on_devices_are_right",
        "all_is_copied_if_wanted",
        "large_messages_outlive_lost_data",
        "large_messages_outlive_lost_answers",
        "large_messages_outlive_loss",
        "nothing_lands_after_a_timeout",
        "nothing_is_read_after_an_abort",
    },
    "conformance_program": {
        "a_rank_that_does_not_look_holds_its_peer_up",
        "ranks_that_look_now_and_then_lose_nothing",
        "one_direction_alone",
        "leaves_a_silent_path",
        "leaves_its_own_dead_port",
        "leaves_the_peers_dead_port",
        "random_failovers",
        "a_dead_peer_is_named",
        "without_a_path_every_end_says_why",
    },
}


def cases_of(command: str) -> list[str]:
    program = command.split()[0]
    if program == "conformance_program":
        text = (ROOT / "tests/link/conformance.h").read_text()
        named = re.findall(r'^    \{"(\w+)", (\w+), \1\},', text, re.M)
        return [case for case, faults in named if faults != "kCut"]
    text = (Path(__file__).parent / f"{program}.cc").read_text()
    return re.findall(r'^    \{"(\w+)", \1\},', text, re.M)


def chosen(command: str) -> list[str]:
    return [case for case in cases_of(command) if FULL or case not in PROGRAMS[command]]


CASES = [(command.split()[0], case) for command in PROGRAMS for case in chosen(command)]
LIMIT_S = 1500  # of a guest whose processors get a tenth of a core; alone it takes two minutes


@functools.cache
def console() -> str:
    programs = [BIN / f"verbs.{command.split()[0]}" for command in PROGRAMS]
    for program in programs:
        if not program.exists():
            pytest.skip(f"{program} is not built (make test-cpp builds it)")
    commands = (f"/bin/verbs.{command} {' '.join(chosen(command))}" for command in PROGRAMS)
    return guest.boot(programs, "; ".join(commands), LIMIT_S)


@pytest.mark.timeout(LIMIT_S + 60)  # the first case waits for all of them
@pytest.mark.parametrize(("program", "case"), CASES)
def test_case(program: str, case: str) -> None:
    if lacking := guest.missing():
        pytest.skip(f"a guest needs {lacking} (make setup installs it)")
    shown = console()
    line = re.search(rf"^CASE {case} (.*)$", shown, re.M)
    assert line is not None, f"the guest did not come to it:\n{shown[-3000:]}"
    assert line[1].startswith("passed"), line[1]


def test_all_cases_are_known() -> None:
    for command, rest in PROGRAMS.items():
        assert len(cases_of(command)) > 10, command
        assert rest < set(cases_of(command)), f"{command} has no such case"
