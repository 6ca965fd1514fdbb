"""Writes copies of failover (src/link) with one planted bug each, every copy in a namespace of its own, and the code
that makes each a FlowCore. Run by CMake: make_mutants.py SOURCE_DIR OUT_DIR.

Only what has the logic is copied; interface and state stay those of the simulated network.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from catalogue import MUTATIONS

from planted import mutated, said_in_source, write_if_changed

COPIED = ("path.h", "policy.h", "sender.h", "receiver.h")


def renamed(text: str, label: str) -> str:
    """The text in a namespace inside the shipped one, which so supplies whatever is not copied."""
    text = re.sub(r"^namespace starling::link \{", f"namespace starling::link::{label} {{", text, flags=re.M)
    return re.sub(rf'#include "link/({"|".join(COPIED)})"', rf'#include "{label}/link/\1"', text)


def main(source: Path, out: Path) -> None:
    core = (source / "src/link/core.cc").read_text()
    bodies, declarations, rows = [], [], []
    for number, mutation in enumerate(MUTATIONS):
        label = f"m{number:02}"
        texts = []
        for name in COPIED:
            text = (source / "src/link" / name).read_text()
            changed = mutated(text, mutation, "tests/link/catalogue.py") if name == mutation.file else text
            texts.append(renamed(changed, label))
            write_if_changed(out / label / "link" / name, texts[-1])
        body = renamed(core, label).replace("shipped_flow_core", "core")
        bodies.append(said_in_source(texts))
        bodies.append(body.replace('"shipped"', f'"{mutation.name}"'))
        declarations.append(f"namespace starling::link::{label} {{\nconst FlowCore& core();\n}}")
        rows.append(f'      {{"{mutation.name}", "{mutation.what}", "{mutation.file}", {label}::core}},')
    write_if_changed(
        out / "link_mutants.cc",
        "\n".join(['#include "link/mutants.h"', *bodies, *declarations])
        + """
namespace starling::link {
const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> kMutants = {
"""
        + "\n".join(rows)
        + "\n  };\n  return kMutants;\n}\n}  // namespace starling::link\n",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
