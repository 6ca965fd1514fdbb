"""Says which functions the samples of caller_samples.c lie in.

    python bench/gpu/caller_samples.py prefix.PID... [--module libstarling] [--tops 40]

Three tables, in percent of the samples in which the caller is at work for the module: by the library that the program
counter is in; by function of the module (`self`: the counter is in it; `below`: it is the innermost of the module's
functions, and what it called is elsewhere, in the driver, say); and `within`: it is anywhere on the stack."""

from __future__ import annotations

import argparse
import array
import bisect
import collections
import re
import subprocess
from pathlib import Path

TEXT_BYTES = 1 << 18
WORDS = 16


class Code:
    """The executable mappings of a process, and the symbols of one file of them."""

    def __init__(self, text: str):
        self.mappings = []
        for line in text.splitlines():
            if not (match := re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+\s*(.*)", line)):
                continue
            begin, end, offset = (int(match[k], 16) for k in (1, 2, 3))
            self.mappings.append((begin, end, offset, match[4] or "?"))
        self.mappings.sort()
        self.begins = [begin for begin, *_ in self.mappings]
        self.symbols: dict[str, tuple[list[int], list[str]]] = {}

    def find(self, address: int) -> tuple[str, int] | None:
        at = bisect.bisect_right(self.begins, address) - 1
        if at < 0 or address >= self.mappings[at][1]:
            return None
        begin, _, offset, path = self.mappings[at]
        return path, address - begin + offset

    def name(self, path: str, offset: int) -> str:
        if path not in self.symbols:
            self.symbols[path] = symbols_of(path)
        addresses, names = self.symbols[path]
        at = bisect.bisect_right(addresses, offset) - 1
        return names[at] if at >= 0 else "?"


def symbols_of(path: str) -> tuple[list[int], list[str]]:
    """Offsets in the file, as mappings have them, of the functions that begin there."""
    if not Path(path).exists():
        return [], []
    shift = 0  # of the segment that is executed: its address less its offset
    for line in subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout.splitlines():
        if re.match(r"\s+LOAD\s", line) and " R E " in line:
            fields = line.split()
            shift = int(fields[2], 16) - int(fields[1], 16)
    found = []
    for option in ([], ["-D"]):
        out = subprocess.run(["nm", "-C", *option, path], capture_output=True, text=True).stdout
        for line in out.splitlines():
            parts = line.split(" ", 2)
            if len(parts) == 3 and parts[0] and parts[1] in "tTwWi":
                found.append((int(parts[0], 16) - shift, parts[2]))
        if found:
            break
    found.sort()
    return [at for at, _ in found], [name for _, name in found]


def short(name: str) -> str:
    name = re.sub(r"starling::", "", name)
    while "<" in name and (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return re.sub(r"\(.*", "", name)[:90]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--module", default="libstarling")
    parser.add_argument("--tops", type=int, default=40)
    parser.add_argument(
        "--offsets", action="store_true", help="where the module stands or calls, by offset in its file"
    )
    options = parser.parse_args()
    libraries: collections.Counter[str] = collections.Counter()
    own: collections.Counter[str] = collections.Counter()
    below: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    called: collections.Counter[str] = collections.Counter()
    offsets: collections.Counter[str] = collections.Counter()
    total = samples = 0
    for file in options.files:
        data = file.read_bytes()
        code = Code(data[:TEXT_BYTES].split(b"\0", 1)[0].decode())
        words = array.array("Q", data[TEXT_BYTES:])
        for k in range(0, len(words), WORDS):
            sample = words[k : k + WORDS]
            if sample[0] == 0:
                break
            samples += 1
            places = [code.find(word) for word in sample if word]
            if places[0] is None:
                continue
            module = [place for place in places if place and options.module in place[0]]
            if not module:
                continue
            total += 1
            path = places[0][0]
            libraries[Path(path).name] += 1
            inner = short(code.name(*module[0]))
            offsets[f"{Path(module[0][0]).name} {module[0][1]:#x} {inner}"] += 1
            if options.module in path:
                own[inner] += 1
            else:
                below[inner] += 1
                first = next(place for place in places if place and options.module not in place[0])
                called[f"{inner} > {Path(path).name} {short(code.name(*first))}"] += 1
            for name in {short(code.name(*place)) for place in module}:
                within[name] += 1
    print(f"{samples} samples, {total} for {options.module}")
    if options.offsets:
        for name, count in offsets.most_common(400):
            print(f"{count} {name}")
        return
    tables = (
        ("counter in", libraries),
        ("self", own),
        ("below", below),
        ("called", called),
        ("within", within),
    )
    for title, table in tables:
        print(f"\n{title}")
        for name, count in table.most_common(options.tops):
            print(f"  {100 * count / max(total, 1):5.1f} %  {name}")


if __name__ == "__main__":
    main()
