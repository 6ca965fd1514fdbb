"""Writes a copy of a source of src/link for each bug in named_catalogue.py, and a header with what finds it. Run by
CMake: make_named_mutants.py SOURCE_DIR OUT_DIR.
"""

from __future__ import annotations

import sys
from pathlib import Path

from named_catalogue import MUTATIONS

from planted import mutated, write_if_changed


def main(source: Path, out: Path) -> None:
    rows = []
    for mutation, test in MUTATIONS:
        text = (source / "src/link" / mutation.file).read_text()
        write_if_changed(
            out / f"{mutation.name}.cc", mutated(text, mutation, "tests/link/named_catalogue.py")
        )
        rows.append(f'  {{"{mutation.name}", "{mutation.what}", "{test}"}},')
    write_if_changed(out / "named_mutants.inc", "\n".join(rows) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
