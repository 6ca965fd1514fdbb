"""Writes copies of sources of src/link with the bugs of named_catalogue.py, each copy (switched.py) in a folder of its
own, and a header with what finds them. Run by CMake: make_named_mutants.py SOURCE_DIR OUT_DIR.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from named_catalogue import MUTATIONS

from planted import write_if_changed
from switched import copies_of


def main(source: Path, out: Path) -> None:
    mutations = [mutation for mutation, _ in MUTATIONS]
    texts = {m.file: (source / "src/link" / m.file).read_text() for m in mutations}
    copies, places = copies_of(texts, mutations, "tests/link/named_catalogue.py")
    for number, copy in enumerate(copies):
        for name in copy.edits:
            text = '#include "support/planted_bug.h"\n' + copy.of(name, texts[name])
            write_if_changed(out / f"copy_{number}" / Path(name).name, text)
        edited = {Path(name).name for name in copy.edits}
        for stale in (out / f"copy_{number}").glob("*.cc"):
            if stale.name not in edited:
                stale.unlink()
    for folder in out.glob("copy_*"):
        if int(folder.name.removeprefix("copy_")) >= len(copies):
            shutil.rmtree(folder)
    rows = [
        f'  {{"{mutation.name}", "{mutation.what}", "{test}", "named_mutants/copy_{place}", {number}}},'
        for number, ((mutation, test), place) in enumerate(zip(MUTATIONS, places, strict=True))
    ]
    write_if_changed(out / "named_mutants.inc", "\n".join(rows) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
