"""Goal: docs/LINK_MUTATIONS.md is the catalogue: every bug planted in failover has its row, and was found.

Method: the table against tests/link/catalogue.py.
"""

import re
from pathlib import Path

from link.catalogue import MUTATIONS

PAGE = Path(__file__).parents[2] / "docs/LINK_MUTATIONS.md"
REMEDY = "write it anew: build/dev/tests/bin/link.mutations_program > docs/LINK_MUTATIONS.md"


def test_every_planted_bug_has_a_row_and_was_found() -> None:
    rows = re.findall(r"^\| (\w+) \| (\w+\.h) \| (.*?) \| [\d.]+ \| (.*) \|$", PAGE.read_text(), re.M)
    assert [row[:3] for row in rows] == [(m.name, m.file, m.what) for m in MUTATIONS], REMEDY
    assert not [row[0] for row in rows if "not found" in row[3]]
