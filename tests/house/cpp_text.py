"""Just enough C++ for the style check: text without comments and strings, and where functions begin and end."""

import re
from dataclasses import dataclass

_NOISE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(\w*)\(.*?\)\1" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
_CONTAINER = re.compile(r"^\s*(?:typedef\s+)?(?:namespace|class|struct|enum|union|extern)\b")
_TEMPLATE = re.compile(r"^\s*template\s*<")


@dataclass(frozen=True)
class Function:
    first_line: int  # of its signature, from 1
    last_line: int

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


def strip_noise(text: str) -> str:
    """Comments and literals become blanks; lines keep their numbers. Preprocessor lines are blanked too."""
    blank = _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), blank, flags=re.M
    )


def _without_template(header: str) -> str:
    while _TEMPLATE.match(header):
        depth, at = 0, header.index("<")
        for at in range(header.index("<"), len(header)):
            depth += {"<": 1, ">": -1}.get(header[at], 0)
            if depth == 0:
                break
        header = header[at + 1 :]
        header = re.sub(r"^\s*requires\b[^{]*?(?=\b(?:struct|class)\b)", "", header)
    return header


def _matching_brace(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text) - 1


def functions(text: str) -> list[Function]:
    """Outermost functions of a file: bodies that open outside any other body. Lambdas belong to theirs."""
    clean = strip_noise(text)
    found: list[Function] = []
    at = header_start = 0
    while at < len(clean):
        char = clean[at]
        if char in ";}":
            header_start = at + 1
        elif char == "{":
            header = clean[header_start:at]
            body = _without_template(header)
            if _CONTAINER.match(body):
                header_start = at + 1
            else:
                end = _matching_brace(clean, at)
                if "(" in body:
                    signature = header_start + len(header) - len(header.lstrip())
                    found.append(Function(clean.count("\n", 0, signature) + 1, clean.count("\n", 0, end) + 1))
                    header_start = end + 1
                at = end
        at += 1
    return found
