"""Goal: every command line that the pages show exists: the command, its options, the make target, the file it names.

Method: `starling ...`, `make ...` and `python FILE ...` in code spans and blocks; the command's own parser judges
options, nothing is run. The check is tried on invented ones first.
"""

import re
import shlex

import pytest
import typer.core
import typer.main
from typer.exceptions import TyperException

from house.sources import ROOT, read, tracked_files
from starling.cli.root import app

PAGES = sorted(name for name in tracked_files() if re.fullmatch(r"README\.md|docs/.*\.md", name))
PREFIX = r"(?:\.venv/bin/)?(?:starling|make|python)"
SHOWN = re.compile(rf"`({PREFIX} [^`\n]+)`")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
LINE = re.compile(rf"^(?:[A-Z_]+=\S+ )*({PREFIX} .+)$", re.M)


def shown(text: str) -> list[str]:
    return SHOWN.findall(text) + [line for block in BLOCK.findall(text) for line in LINE.findall(block)]


def starling_problem(words: list[str]) -> str | None:
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="starling")
    try:
        while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
            name, found, words = command.resolve_command(context, words)
            if found is None:
                return f"no command {name}"
            command, context = found, found.context_class(found, context, info_name=name)
        command.make_parser(context).parse_args(list(words))
    except TyperException as error:
        # An option may be spoken of without its argument.
        return None if "requires an argument" in str(error.format_message()) else error.format_message()  # type: ignore[attr-defined]
    return None


def problem(line: str) -> str | None:
    program, *words = shlex.split(line, comments=True)
    if program.endswith("starling"):
        return starling_problem(words)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
        unknown = [word for word in words if "=" not in word and word not in targets]
        return f"no target {unknown}" if unknown else None
    files = [word for word in words if word.endswith(".py")]
    missing = [name for name in files if "/" in name and not (ROOT / name).is_file()]
    return f"no file {missing}" if missing else None


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_exists(page: str) -> None:
    problems = {line: said for line in shown(read(page)) if (said := problem(line))}
    assert not problems


def test_invented_commands_are_seen() -> None:
    text = "`starling dance`, `starling bench --louder`, `make coffee`, `python tests/none.py`\n"
    text += "```sh\nstarling info --why\n```"
    lines = shown(text)
    assert len(lines) == 5
    assert all(problem(line) for line in lines), [problem(line) for line in lines]
    assert problem("starling bench late-rank --json x.json") is None
