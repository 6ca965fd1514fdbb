"""Goal: docs/TRACE.md is true: what it names in backticks exists.

Method: every backticked name is looked up as a word in the sources, every backticked path as a file.
"""

import re
from pathlib import Path

import pytest

from house.sources import CPP_SUFFIXES, ROOT, code_files, read

TRACE = "docs/TRACE.md"
SPAN = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"^[\w./-]+\.(?:cc|h|cu|cuh|py|md)(?::\d+)?$")
FUNCTION_NAME = re.compile(r"^~?[A-Za-z_]\w*(?:(?:::|\.|->)~?[A-Za-z_]\w*)*(?:\(.*\))?$")


def source_words() -> set[str]:
    sources = [n for n in code_files(*CPP_SUFFIXES, ".py") if n.startswith(("src/", "python/", "include/"))]
    return {word for name in sources for word in re.findall(r"[A-Za-z_]\w*", read(name))}


def trace_problems(text: str, words: set[str]) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    problems = []
    for span in SPAN.findall(prose):
        if FILE_NAME.match(span):
            path = span.split(":")[0]
            if not any((ROOT / base / path).exists() for base in (".", "src", "include", "python", "docs")):
                problems.append(f"the file `{span}` does not exist")
        elif FUNCTION_NAME.match(span):
            parts = re.findall(r"[A-Za-z_]\w*", span.split("(")[0])
            unknown = [part for part in parts if part not in words]
            if unknown:
                problems.append(f"`{span}`: {', '.join(unknown)} is nowhere in the sources")
    return problems


def test_trace_names_what_exists() -> None:
    if not (ROOT / TRACE).exists():
        pytest.skip(f"{TRACE} is not written yet")
    text = read(TRACE)
    problems = trace_problems(text, source_words())
    assert not problems, "\n".join(problems)
    assert len(SPAN.findall(text)) >= 10, f"{TRACE} must name real functions"


def test_invented_names_are_seen() -> None:
    words = {"Communicator", "submit", "starling"}
    assert trace_problems("`Communicator::submit_all()` starts", words)
    assert trace_problems("see `comm/nowhere.cc`", words)
    good = (
        f"`starling::Communicator::submit(x)` in `{Path('tests/house/test_trace.py')}`, `two words` and `+=`"
    )
    assert not trace_problems(good, words)
