"""Goal: docs/MUTATIONS.md is the catalogue: every planted bug has its row, and every row is of a found bug.

Method: the table against tests/sim/catalogue.py.
"""

import re
from pathlib import Path

from sim.catalogue import MUTATIONS, UNSEEN

PAGE = Path(__file__).parents[2] / "docs/MUTATIONS.md"
REMEDY = "write it anew: build/dev/tests/bin/sim.mutations_program > docs/MUTATIONS.md"


def rows() -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    return {
        row[0]: row
        for row in cells
        if len(row) == 6 and re.fullmatch(r"[a-z_0-9]+", row[0]) and row[0] != "bug"
    }


def test_every_planted_bug_has_a_row() -> None:
    assert set(rows()) == {mutation.name for mutation in MUTATIONS}, REMEDY
    for mutation in MUTATIONS:
        assert rows()[mutation.name][1:3] == [mutation.file, mutation.what], REMEDY


def test_what_no_hunt_has_seen_is_said() -> None:
    said = [line for line in PAGE.read_text().splitlines() if line.endswith(" |")]
    for mutation, why in UNSEEN:
        assert f"| {mutation.name} | {mutation.file} | {mutation.what} | {why} |" in said, REMEDY


def test_every_planted_bug_was_found_within_a_minute() -> None:
    for name, row in rows().items():
        assert "not found" not in row[5], name
        assert float(row[4]) < 60, name
