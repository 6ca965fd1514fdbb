"""Writes copies of src/device with planted bugs, every copy in a namespace of its own, and the code that makes each a
Core of the simulator. A copy has as many bugs as can be chosen at run time side by side (switched.py). Run by CMake:
make_mutants.py SOURCE_DIR OUT_DIR UNITS.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from catalogue import MUTATIONS, UNSEEN

from planted import mutated, said_in_source, write_if_changed
from switched import copies_of

CATALOGUE = "tests/sim/catalogue.py"


def renamed(text: str, label: str) -> str:
    """The text in a namespace of its own, including the headers of its own copy."""
    text = text.replace("namespace starling::device", f"namespace starling::device_{label}")
    text = re.sub(r"\bdevice::", f"device_{label}::", text)
    return re.sub(r'#include "device/', f'#include "{label}/device/', text)


def main(source: Path, out: Path, units: int) -> None:
    headers = {path.name: path.read_text() for path in sorted((source / "src/device").glob("*.h"))}
    core = (source / "src/machine/sim/core.cc").read_text()
    copies, places = copies_of(headers, MUTATIONS, CATALOGUE)
    bodies = [['#include "support/planted_bug.h"\n'] for _ in range(units)]
    for number, copy in enumerate(copies):
        label = f"c{number:02}"
        texts = {name: renamed(copy.of(name, text), label) for name, text in headers.items()}
        for name, text in texts.items():
            write_if_changed(out / label / "device" / name, text)
        body = renamed(core, label).replace("shipped_core", f"core_{label}")
        bodies[number % units] += [said_in_source(texts.values()), body.replace('"shipped"', '"planted"')]
    for unit, parts in enumerate(bodies):
        write_if_changed(out / f"mutants_{unit}.cc", "\n".join(parts))
    rows = [
        f'    {{"{m.name}", "{m.what}", "{m.file}", core_c{place:02}, "{m.campaign}", {number}}},'
        for number, (m, place) in enumerate(zip(MUTATIONS, places, strict=True))
    ]
    unseen = []
    for mutation, why in UNSEEN:
        mutated(headers[mutation.file], mutation, CATALOGUE)
        unseen.append(f'    {{"{mutation.name}", "{mutation.what}", "{mutation.file}", "{why}"}},')
    unseen_table = "\n".join(unseen)
    declarations = "\n".join(f"const Core& core_c{n:02}();" for n in range(len(copies)))
    table = "\n".join(rows)
    write_if_changed(
        out / "mutants.cc",
        f"""#include "sim/mutants.h"

namespace starling::sim {{

{declarations}

const std::vector<Mutant>& mutants() {{
  static const std::vector<Mutant> kMutants = {{
{table}
  }};
  return kMutants;
}}

const std::vector<UnseenMutant>& unseen_mutants() {{
  static const std::vector<UnseenMutant> kUnseen = {{
{unseen_table}
  }};
  return kUnseen;
}}

}}  // namespace starling::sim
""",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
