"""Goal: a commit that a page names beside a link to a result file is the one that the file names.

Method: result files are written again by later runs, pages are not. In each paragraph the forms are read that can
mean nothing else; the file's "commit" or "landed_as" has to begin with what the page says. Each form is tried on
invented pages first, and so is what looks like one and is none.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from house.sources import ROOT, read, tracked_files

PAGES = sorted(name for name in tracked_files() if re.fullmatch(r"README\.md|docs/.*\.md", name))

# A link to a result becomes a mark with its number, every other one its text: no parenthesis of a link is left then.
LINK = re.compile(r"\[([^][]*)\]\(([^()\s]*)\)|`(bench/results/[\w.]+)`")
MARK = re.compile(r"\x00(\d+)\x01")
HASH = r"[0-9a-f]{7,40}"
ONE = re.compile(rf"(?:commit )?({HASH})")
GROUP = re.compile(r"\(([^()]*)\)")


class Result(NamedTuple):
    text: str
    target: str


class Cited(NamedTuple):
    commit: str
    target: str


def _marked(paragraph: str) -> tuple[str, list[Result]]:
    results: list[Result] = []

    def mark(match: re.Match[str]) -> str:
        text, target = match[1] or "", match[2] or match[3]
        if "bench/results/" not in target:
            return text
        results.append(Result(text, target))
        return f"\x00{len(results) - 1}\x01"

    return LINK.sub(mark, " ".join(paragraph.split())), results


def _of_clause(clause: str, results: list[Result]) -> Iterator[Cited]:
    """Of a clause in parentheses: one result and one commit, each by itself between commas."""
    parts = [part.strip() for part in clause.split(",")]
    commits = [match[1] for part in parts if (match := ONE.fullmatch(part))]
    marks = MARK.findall(clause)
    alone = [match[1] for part in parts if (match := MARK.fullmatch(part))]
    if (
        len(commits) == 1
        and marks == alone
        and len(alone) == 1
        and len(re.findall(rf"\b{HASH}\b", clause)) == 1
    ):
        yield Cited(commits[0], results[int(alone[0])].target)


def cited(text: str) -> list[Cited]:
    """``[abc1234](a.json)``; ``[figures](a.json) (abc1234)``; of parentheses ``(two GPUs, abc1234, [figures](a.json))``
    and ``([figures](a.json), abc1234; ...)``. Rows of tables and paragraphs stand alone."""
    found: list[Cited] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\|)", text):
        marked, results = _marked(paragraph)
        found += [Cited(result.text, result.target) for result in results if re.fullmatch(HASH, result.text)]
        for match in re.finditer(rf"{MARK.pattern} \(({HASH})[);,]", marked):
            found.append(Cited(match[2], results[int(match[1])].target))
        for group in GROUP.findall(marked):
            for clause in group.split(";"):
                found += _of_clause(clause, results)
    return [one for one in found if one.target.endswith(".json")]


def named_by_file(page: str, target: str) -> list[str]:
    """The commits that a result file names; of a file that is not there none, and of one without commits any."""
    name = target if target.startswith("bench/") else PurePosixPath(page).parent / target
    file = (ROOT / name).resolve()
    if not file.is_file():
        return []
    document = json.loads(file.read_text(encoding="utf-8"))
    of_file = document if isinstance(document, dict) else {}
    return [str(of_file[key]) for key in ("commit", "landed_as") if of_file.get(key)] or ["*"]


def problems(page: str, text: str, named: Callable[[str, str], list[str]] = named_by_file) -> list[str]:
    return [
        f"{page}: {one.commit} beside {one.target}, which is of {' or '.join(commits) or 'no file'}"
        for one in cited(text)
        if (commits := named(page, one.target)) != ["*"]
        and not any(commit.startswith(one.commit) or one.commit.startswith(commit) for commit in commits)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_commits_beside_results_are_those_of_the_files(page: str) -> None:
    found = problems(page, read(page))
    assert not found, "\n" + "\n".join(found)


def test_the_pages_have_such_commits() -> None:
    assert sum(len(cited(read(page))) for page in PAGES) > 50


FILE = "../bench/results/a.json"
OTHER = "../bench/results/b.json"


def _named(page: str, target: str) -> list[str]:
    return ["0534178a1b2c", "abc1234"] if target == FILE else ["fedcba9"]


@pytest.mark.parametrize(
    "text",
    [
        f"16a07f5 and [{{}}]({FILE}), and before",
        f"In a run ([figures]({FILE}), {{}}) it was.",
        f"In a run ([figures]({FILE}), {{}}, two\nH200) it was.",
        f"In a run ({{}}, [figures]({FILE})) it was.",
        f"In a run (two H200, commit\n{{}}, [one]({FILE}); in 7654321 more) it was.",
        f"In a run (0.9 in order; [figures]({FILE}), {{}}; 1.0 [before]({OTHER})) it was.",
        f"| words, [together]({FILE}) ({{}}; of others [fedcba9]({OTHER})) | 8.0 |",
        "Looking: `bench/results/a.json` ({}).",
    ],
)
def test_a_wrong_commit_is_seen(text: str) -> None:
    def named(page: str, target: str) -> list[str]:
        return _named(page, f"../{target}" if target.startswith("bench/") else target)

    for right in ("0534178", "0534178a1b2c", "abc1234"):
        assert problems("docs/a.md", text.format(right), named) == []
    for wrong in ("0534179", "16a07f5"):
        assert len(problems("docs/a.md", text.format(wrong), named)) == 1, text


def test_what_may_be_of_something_else_is_left_alone() -> None:
    text = f"""(16a07f5 and 9f8042b, [before]({FILE}), [now]({OTHER})); (80e4ce4; since then [right]({FILE}));
    ([figures]({FILE}), 8dbb1a3 beside 453c05e); of 1048576 bytes ([figures]({FILE})), and since 8d6a583 none;
    (two H200, [with]({FILE}), [without]({OTHER}), 13ec5b9), ([figures]({FILE}), `--seed 20261128`, another)

    ([figures](../bench/results/a.txt), 16a07f5), as twenty did before"""
    assert cited(text) == []


def test_a_file_that_is_not_there_is_seen() -> None:
    assert problems("docs/a.md", "[abc1234](../bench/results/never.json)")
