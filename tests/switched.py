"""Planted bugs that are chosen at run time: the statement that an edit changes becomes two, planted and shipped.

So most of them share one copy of the sources. What is no statement of its own (a declaration with names that others
use, a condition whose block is part of the edit) needs a copy of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planted import Mutation, mutated

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
_LABEL_OR_ELSE = re.compile(r"\s*(?:(?:case [^;{}]*?[^:]|default)\s*:(?!:)|else\b)")
_BEFORE_A_BLOCK = re.compile(
    r"(?:[;{}:\])]|\b(?:else|do|try|const|noexcept|override|final|mutable)|->\s*[\w:<>&* ]+)\s*$"
)
_TYPE_OR_NAMESPACE = re.compile(r"\s*(?:template\s*<.*>\s*)?(?:struct|class|enum|union|namespace)\b", re.S)
_KEYWORD = re.compile(r"(?:return|delete|throw|goto|else|case|break|continue|if|for|while|do|switch)\b")
_DECLARATION = re.compile(
    r"(?:static |constexpr |const |auto\b|unsigned |using )"
    r"|[A-Za-z_][\w:]*(?:<[^;={}()]*>)?[&*]*\s+[&*]*[A-Za-z_]\w*\s*[={;(\[,]"
)


class NeedsACopyError(Exception):
    """Why an edit cannot be chosen at run time."""


@dataclass(frozen=True)
class Edit:
    begin: int
    end: int
    text: str


def code_of(text: str) -> str:
    """The text, as long as before, with comments, literals and lines of the preprocessor blank."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return re.sub(r"^#.*$", lambda found: ";" + " " * (len(found.group()) - 1), code, flags=re.M)


class Source:
    """A text, and where its brackets and statements are."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.code = code_of(text)
        self.closed_by: dict[int, int] = {}
        self.opened_by: dict[int, int] = {}
        self.around: list[int] = []  # by place, the innermost bracket that is open before it; -1: none
        stack: list[int] = []
        for at, c in enumerate(self.code):
            self.around.append(stack[-1] if stack else -1)
            if c in _CLOSING:
                stack.append(at)
            elif c in _CLOSING.values():
                self.opened_by[at] = stack.pop()
                self.closed_by[self.opened_by[at]] = at

    def is_block(self, brace: int) -> bool:
        """Whether statements are inside: no list, no type, no namespace."""
        before = self.code[:brace].rstrip()
        if not _BEFORE_A_BLOCK.search(before):
            return False
        start = max(before.rfind(c) for c in ";{}") + 1
        return before[-1] in ")]" or not _TYPE_OR_NAMESPACE.match(before, start)

    def statement_begin(self, at: int) -> int:
        while (bracket := self.around[at]) < 0 or self.code[bracket] != "{" or not self.is_block(bracket):
            if bracket < 0:
                raise NeedsACopyError("it is outside of functions")
            at = bracket
        begin = at
        while begin > bracket + 1 and self.code[begin - 1] != ";":
            last = begin - 1
            if self.code[last] == "}" and self.ends_statement(last):
                break
            begin = self.opened_by.get(last, last)
        before = _LABEL_OR_ELSE.match(self.code, begin)
        return self.skip(before.end() if before and before.end() <= at else begin)

    def ends_statement(self, brace: int) -> bool:
        return self.is_block(self.opened_by[brace]) and not re.match(
            r"\s*(?:else\b|[;,).])", self.code[brace + 1 :]
        )

    def statement_end(self, at: int) -> int:
        at = self.skip(at)
        word = re.compile(r"\w*").match(self.code, at)
        assert word is not None
        if self.code[at] == "{":
            return self.closed_by[at] + 1
        if word.group() in ("if", "for", "while", "switch"):
            end = self.statement_end(self.closed_by[self.code.index("(", at)] + 1)
            other = re.compile(r"\s*else\b").match(self.code, end)
            return self.statement_end(other.end()) if word.group() == "if" and other else end
        if word.group() == "do":
            at = self.statement_end(word.end())
        while self.code[at] != ";":
            if self.code[at] in _CLOSING.values():
                raise NeedsACopyError("it ends inside a block that it does not begin")
            at = self.closed_by.get(at, at) + 1
        return at + 1

    def skip(self, at: int) -> int:
        while self.code[at].isspace():
            at += 1
        return at


def declares(statement: str) -> bool:
    return not _KEYWORD.match(statement) and _DECLARATION.match(statement) is not None


def same_code(a: str, b: str) -> bool:
    return code_of(a).split() == code_of(b).split()


def has_comma(value: str) -> bool:
    """Outside of brackets: one between declared names."""
    source = Source(value)
    return any(c == "," and source.around[at] < 0 for at, c in enumerate(source.code))


def switched(source: Source, mutation: Mutation, condition: str) -> Edit:
    """The edit of all statements that the mutation changes: planted where `condition` holds, shipped elsewhere."""
    found = source.text.index(mutation.find)
    after = found + len(mutation.find)
    begin = end = source.statement_begin(found + len(mutation.find) - len(mutation.find.lstrip()))
    statements = []
    while end < found + len(mutation.find.rstrip()):
        start = source.skip(end)
        end = source.statement_end(start)
        statements.append(source.code[start:end])
    if source.code[found:begin].strip():
        raise NeedsACopyError("it begins in the statement before")
    shipped = source.text[begin:end]
    planted = source.text[begin:found] + mutation.replace + source.text[after:end]
    changed = source.text[:begin] + planted + source.text[end:]
    assert same_code(changed, source.text.replace(mutation.find, mutation.replace)), mutation.name
    if (rest := code_of(planted).strip()) and rest[-1] not in ";}":
        raise NeedsACopyError("it takes the statement behind along")
    if not any(declares(statement) for statement in statements):
        return Edit(begin, end, f"if ({condition}) {{\n{planted}\n}} else {{\n{shipped}\n}}")
    head, equals, value = shipped.partition("=")
    if len(statements) > 1 or not planted.startswith(head + equals) or "[" in head:
        raise NeedsACopyError("it declares names")
    values = [text.strip()[:-1] for text in (planted[len(head + equals) :], value)]
    if any(";" in code_of(text) or has_comma(text) for text in values):
        raise NeedsACopyError("it declares several names")
    return Edit(begin, end, f"{head}= {condition} ? ({values[0]}) : ({values[1]});")


@dataclass
class Copy:
    """By file, the edits of it, which do not overlap. With `whole` there is one, of a whole file."""

    edits: dict[str, list[Edit]]
    whole: bool = False

    def takes(self, name: str, edit: Edit) -> bool:
        """Whether there is room for one more edit, which is added then."""
        others = self.edits.get(name, [])
        if self.whole or any(edit.begin < other.end and other.begin < edit.end for other in others):
            return False
        self.edits[name] = [*others, edit]
        return True

    def of(self, name: str, text: str) -> str:
        for edit in sorted(self.edits.get(name, []), key=lambda edit: -edit.begin):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        return text


def copies_of(
    texts: dict[str, str], mutations: list[Mutation], catalogue: str
) -> tuple[list[Copy], list[int]]:
    """The copies, and by mutation which of them it is in. A bug's number is its place in the list."""
    sources = {name: Source(text) for name, text in texts.items()}
    copies: list[Copy] = []
    places = []
    for number, mutation in enumerate(mutations):
        text = texts[mutation.file]
        whole = mutated(text, mutation, catalogue)
        try:
            edit = switched(sources[mutation.file], mutation, f"starling::planted({number})")
            place = next((k for k, copy in enumerate(copies) if copy.takes(mutation.file, edit)), len(copies))
        except NeedsACopyError:
            edit, place = None, len(copies)
        if edit is None:
            copies.append(Copy({mutation.file: [Edit(0, len(text), whole)]}, whole=True))
        elif place == len(copies):
            copies.append(Copy({mutation.file: [edit]}))
        places.append(place)
    return copies, places
