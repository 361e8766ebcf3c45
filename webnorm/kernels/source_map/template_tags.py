"""Which part of a template's tags a mistake is about that Jinja tells of with nothing but a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError
from jinja2.lexer import Lexer

from webnorm import signals
from webnorm.errors import SourceLocation, nearest, sentence
from webnorm.kernels.source_map.markers import with_markers

# The messages that quote what is meant. Others quote types, too, which may be names of filters.
_MEANT = re.compile(
    r"(?:got|unexpected(?: char)?|unknown tag|(?:filter|test) named|has no attribute|access to attribute"
    r"|^macro|^imports) '(.+?)'|^(?:includes|cannot include) '(?P<file>.+?)'|^'(?P<name>\w+)' is undefined"
)
# What Jinja says where a name is used that was imported and is not there.
_NOT_EXPORTED = re.compile(
    r"the template (.+) \(imported on line (\d+) in (.+)\) does not export the requested name '(\w+)'"
)
_EXPORT = re.compile(r"\{%[-+]?\s*(?:macro|set)\s+(\w+)")
# As what the parser describes a token that is not quoted.
_KINDS = {
    "begin of print statement": "variable_begin",
    "begin of statement block": "block_begin",
    "end of print statement": "variable_end",
    "end of statement block": "block_end",
    "string": "string",
    "integer": "integer",
    "float": "float",
}
_CLOSED_BY = {"{{": "}}", "{%": "%}"}


class _Token(NamedTuple):
    at: int
    line: int
    kind: str
    text: str
    is_attribute: bool


class _NotingLexer(Lexer):
    """Notes the tokens that a parser has asked for: behind the last it found its mistake."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.noted: list[_Token] = []

    def tokeniter(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> Iterator[tuple[int, str, str]]:
        end, before = 0, ""
        try:
            for at, line, kind, value in with_markers(
                super().tokeniter(source, name, filename, state), source
            ):
                self.noted.append(_Token(at, line, kind, value, before == "."))
                end, before = at + len(value), value.strip() or before
                yield line, kind, value
        except TemplateSyntaxError as error:
            self.noted.append(_Token(end, error.lineno, "operator", source[end : end + 1], False))
            raise


class _NotingEnvironment(Environment):
    @cached_property
    def lexer(self) -> _NotingLexer:
        return _NotingLexer(self)


def find_tag(lines: Sequence[str], line: int, message: str) -> tuple[int, int]:
    """The column, from 1, and the length of what a message means on a line of a template, from 1.

    Where that is not known it is the line's first visible character, with a length of 0.
    """
    if not 1 <= line <= len(lines):
        return 1, 0
    text = lines[line - 1]
    meant = _MEANT.search(message)
    token = None if meant is None else _meant("\n".join([*lines, ""]), line, meant)
    if token is None:
        return len(text) - len(text.lstrip()) + 1, 0
    return token.at - sum(len(before) + 1 for before in lines[: line - 1]) + 1, len(token.text.rstrip())


def tag_location(source: Sequence[str], file: str, line: int, column: int) -> SourceLocation:
    """The place of the tag that begins at a column of a template, or else of the whole line."""
    text = source[line - 1] if 1 <= line <= len(source) else ""
    end = text.find(_CLOSED_BY.get(text[column - 1 : column + 1], "\n"), column)
    if end < 0:
        column = len(text) - len(text.lstrip()) + 1
        return SourceLocation(file, line, column, max(len(text.rstrip()) + 1 - column, 0))
    return SourceLocation(file, line, column, end + 3 - column)


def not_exported(message: str, lines: Mapping[str, Sequence[str]]) -> tuple[str, int, str] | None:
    """The template and the line that import what a message says is not there, and what is told of it; None
    for another message. `lines` has the text of templates by their names.
    """
    found = _NOT_EXPORTED.fullmatch(message)
    if found is None:
        return None
    imported, importing = ({repr(name): name for name in lines}.get(told, "") for told in found.group(1, 3))
    near = nearest(found[4], _EXPORT.findall("\n".join(lines.get(imported, ()))))
    advice = f"; did you mean {near!r}?" if near else ""
    return importing, int(found[2]), f"imports {found[4]!r}, which is not in {sentence(imported)}{advice}"


def _meant(source: str, line: int, meant: re.Match[str]) -> _Token | None:
    environment = _NotingEnvironment(keep_trailing_newline=True)
    parsed = False
    with signals.ignored(Exception):
        environment.parse(source)
        parsed = True
    word = next(filter(None, meant.groups()))
    found = [
        token
        for token in environment.lexer.noted
        if token.line == line
        and (
            (token.kind == "string" and token.text[1:-1] == word)
            if meant["file"]
            else token.kind == _KINDS.get(word) or (token.kind in ("name", "operator") and token.text == word)
        )
    ]
    if meant["name"]:
        found = [token for token in found if not token.is_attribute] or found
    # The parser ends at its mistake; what is read in full goes wrong at the first of several.
    return found[0 if parsed else -1] if found else None
