"""Goal: the parts of the style that a program can judge: lengths, names, leftover marks, opening lines of tests.

Method: plain text rules over the tracked sources. A reason beats a length: a comment `long: why` in the first lines
of a file, or above or inside a function, lifts the limit there. Each rule is tried on a bad example first.
"""

import ast
import re
from pathlib import Path

import pytest

from house.cpp_text import functions
from house.sources import CPP_SUFFIXES, code_files, read, tracked_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 90
LONG_REASON = re.compile(r"(?://|#|\*|^)\s*long: \w+", re.M)
LEFTOVER_MARK = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
SNAKE_NAME = re.compile(r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")
NAMED_BY_OTHERS = {"CMakeLists.txt", "README.md"}

# What a person must never find in the project: folders of the machine it was written on, and instructions that the
# design forbids (a multicast object outlives the process that leaks it).
HOME_FOLDERS = re.compile(r"(?<![\w.])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me"]) + r")/\w")
FORBIDDEN_CALLS = re.compile("|".join(["cuMulticast" + "Create", "multi" + "mem"]))


STARTS_THREADS = re.compile(
    r"std::(j?thread\b(?!::)|async)|pthread_create|start_thread\(|run_ranks\(|threads\.h|starling_context_create"
    r"|CpuExecutor|TcpRig"
)


def file_length_problems(name: str, text: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) <= MAX_FILE_LINES or LONG_REASON.search("\n".join(lines[:12])):
        return []
    return [
        f"{name}: {len(lines)} lines (over {MAX_FILE_LINES}); split it, or say `long: why` in its first lines"
    ]


def _excused(lines: list[str], first: int, last: int) -> bool:
    return bool(LONG_REASON.search("\n".join(lines[max(first - 4, 0) : last])))


def function_length_problems(name: str, text: str) -> list[str]:
    if name.endswith(".py"):
        spans = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    else:
        spans = [(function.first_line, function.last_line) for function in functions(text)]
    lines = text.splitlines()
    return [
        f"{name}:{first}: a function of {last - first + 1} lines (over {MAX_FUNCTION_LINES}); split it, or say "
        "`long: why` above it"
        for first, last in spans
        if last - first + 1 > MAX_FUNCTION_LINES and not _excused(lines, first, last)
    ]


def mark_problems(name: str, text: str) -> list[str]:
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        if LEFTOVER_MARK.search(line):
            problems.append(f"{name}:{number}: a leftover mark; do it, or open an issue: {line.strip()[:60]}")
        if "\t" in line and not name.endswith("Makefile"):
            problems.append(f"{name}:{number}: a tab")
    return problems


def name_problems(name: str) -> list[str]:
    wrong = [
        part
        for part in Path(name).parts
        if part not in NAMED_BY_OTHERS and not SNAKE_NAME.match(part.lstrip("."))
    ]
    return [f"{name}: '{part}' is not snake_case" for part in wrong]


def opening_problems(name: str, text: str) -> list[str]:
    file_name = Path(name).name
    if "// sanitize: address (one " + "thread)" in text and (starts := STARTS_THREADS.search(text)):
        return [f"{name}: says that it is one thread, and has {starts[0]}: ThreadSanitizer has to see it"]
    if file_name.endswith(("_test.cc", "_test.cu")) and not text.startswith(("//", "/*")):
        return [f"{name}: the opening line must be a comment that says goal and method"]
    if file_name.startswith("test_") and name.endswith(".py") and not ast.get_docstring(ast.parse(text)):
        return [f"{name}: it must open with a docstring that says goal and method"]
    return []


def word_problems(name: str, text: str) -> list[str]:
    problems = [
        f"{name}: names a folder of somebody's machine: {match[0]}" for match in HOME_FOLDERS.finditer(text)
    ]
    if name.startswith("src/"):
        problems += [f"{name}: {match[0]} is forbidden" for match in FORBIDDEN_CALLS.finditer(text)]
    return problems


def _all_problems(rule: str) -> list[str]:
    code = code_files(*CPP_SUFFIXES, ".py", ".sh")
    if rule == "names":
        return [p for name in code for p in name_problems(name)]
    if rule == "words":
        text_files = [
            name
            for name in tracked_files()
            if Path(name).suffix in {*CPP_SUFFIXES, ".py", ".sh", ".md", ".txt", ".toml"}
        ]
        return [p for name in text_files for p in word_problems(name, read(name))]
    if rule == "functions":
        return [
            p for name in code if not name.endswith(".sh") for p in function_length_problems(name, read(name))
        ]
    check = {"files": file_length_problems, "marks": mark_problems, "openings": opening_problems}[rule]
    return [p for name in code for p in check(name, read(name))]


@pytest.mark.parametrize("rule", ["files", "functions", "marks", "names", "openings", "words"])
def test_the_sources_keep_the_rule(rule: str) -> None:
    problems = _all_problems(rule)
    assert not problems, "\n" + "\n".join(problems)


def test_a_long_file_is_seen_and_excused_by_a_reason() -> None:
    text = "int x;\n" * (MAX_FILE_LINES + 1)
    assert file_length_problems("src/a.cc", text)
    assert not file_length_problems("src/a.cc", "// long: a table of all opcodes\n" + text)


LONG_CPP = (
    "namespace a {{\nstruct B {{\n{above}  template <class T>\n  int f(T x) const {{\n{body}  }}\n}};\n}}\n"
)


@pytest.mark.parametrize("above", ["", "  // long: one loop\n"])
def test_a_long_cpp_function_is_seen_and_excused_by_a_reason(above: str) -> None:
    text = LONG_CPP.format(above=above, body='    if (x) { s = "}"; } // }\n' * MAX_FUNCTION_LINES)
    assert bool(function_length_problems("src/a.cc", text)) == (above == "")


def test_containers_and_tables_are_no_functions() -> None:
    text = (
        "class A {\n"
        + "  int f() { return 1; }\n" * 200
        + "};\nconst int t[] = {\n"
        + "  1,\n" * 200
        + "};\n"
    )
    assert function_length_problems("src/a.cc", text) == []


def test_a_long_python_function_is_seen() -> None:
    assert function_length_problems("python/a.py", "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES + 1))


def test_leftovers_names_openings_and_words_are_seen() -> None:
    assert mark_problems("src/a.cc", "// TO" + "DO: later\n")
    assert mark_problems("src/a.cc", "\tint x;\n")
    assert name_problems("src/comm/AllReduce.cc")
    assert name_problems("src/comm/all-reduce.cc")
    assert not name_problems("python/starling/__init__.py")
    assert opening_problems("tests/a_test.cc", "#include <x>\n")
    assert opening_problems("tests/test_a.py", "import x\n")
    one_thread = "// Goal\n// sanitize: address (one " + "thread)\n"
    assert not opening_problems("tests/a_test.cc", one_thread)
    assert opening_problems("tests/a_test.cc", one_thread + "std::thread other(f);\n")
    assert word_problems("docs/a.md", "see /ho" + "me/somebody/x\n")
    assert word_problems("src/a.cu", "cuMulticast" + "Create(&h);\n")
    assert not word_problems("docs/a.md", "tests/wo" + "rk/x and https://x.org/wo" + "rk/x\n")
