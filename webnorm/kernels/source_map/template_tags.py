"""The column of a mistake in a template's tags: Jinja reports only the line."""

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

# The messages that quote the faulty text. Others quote types, which may be names of filters.
_MEANT = re.compile(
    r"(?:got|unexpected(?: char)?|unknown tag|(?:filter|test) named|has no attribute|access to attribute"
    r"|^macro|^imports) '(.+?)'|^(?:includes|cannot include) '(?P<file>.+?)'|^'(?P<name>\w+)' is undefined"
)
# Jinja's message for the use of an imported name that does not exist.
_NOT_EXPORTED = re.compile(
    r"the template (.+) \(imported on line (\d+) in (.+)\) does not export the requested name '(\w+)'"
)
_EXPORT = re.compile(r"\{%[-+]?\s*(?:macro|set)\s+(\w+)")
# The parser's descriptions of tokens that it does not quote.
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


class _RecordingLexer(Lexer):
    """A lexer that records the tokens that the parser has read: the mistake is at the last one."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.recorded: list[_Token] = []

    def tokeniter(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> Iterator[tuple[int, str, str]]:
        end, before = 0, ""
        try:
            for at, line, kind, value in with_markers(
                super().tokeniter(source, name, filename, state), source
            ):
                self.recorded.append(_Token(at, line, kind, value, before == "."))
                end, before = at + len(value), value.strip() or before
                yield line, kind, value
        except TemplateSyntaxError as error:
            self.recorded.append(_Token(end, error.lineno, "operator", source[end : end + 1], False))
            raise


class _RecordingEnvironment(Environment):
    @cached_property
    def lexer(self) -> _RecordingLexer:
        return _RecordingLexer(self)


def find_tag(lines: Sequence[str], line: int, message: str) -> tuple[int, int]:
    """Return the column, from 1, and the length of the text that a message is about, on a line of a template.

    If that is unknown, the place is the line's first visible character, with the length 0.
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
    """Return the place of the tag that begins at a column of a template, or else of the whole line."""
    text = source[line - 1] if 1 <= line <= len(source) else ""
    end = text.find(_CLOSED_BY.get(text[column - 1 : column + 1], "\n"), column)
    if end < 0:
        column = len(text) - len(text.lstrip()) + 1
        return SourceLocation(file, line, column, max(len(text.rstrip()) + 1 - column, 0))
    return SourceLocation(file, line, column, end + 3 - column)


def not_exported(message: str, lines: Mapping[str, Sequence[str]]) -> tuple[str, int, str] | None:
    """Return the template and line that import a missing name, and a message; None for another error.

    `lines` maps the names of templates to their lines.
    """
    found = _NOT_EXPORTED.fullmatch(message)
    if found is None:
        return None
    by_repr = {repr(name): name for name in lines}
    imported, importing = (by_repr.get(quoted, "") for quoted in found.group(1, 3))
    near = nearest(found[4], _EXPORT.findall("\n".join(lines.get(imported, ()))))
    advice = f"; did you mean {near!r}?" if near else ""
    return importing, int(found[2]), f"imports {found[4]!r}, which is not in {sentence(imported)}{advice}"


def _meant(source: str, line: int, meant: re.Match[str]) -> _Token | None:
    environment = _RecordingEnvironment(keep_trailing_newline=True)
    parsed = False
    with signals.ignored(Exception):
        environment.parse(source)
        parsed = True
    word = next(filter(None, meant.groups()))
    found = [
        token
        for token in environment.lexer.recorded
        if token.line == line
        and (
            (token.kind == "string" and token.text[1:-1] == word)
            if meant["file"]
            else token.kind == _KINDS.get(word) or (token.kind in ("name", "operator") and token.text == word)
        )
    ]
    if meant["name"]:
        found = [token for token in found if not token.is_attribute] or found
    # The parser stops at a mistake. If it reads the whole text, the error comes from the first match.
    return found[0 if parsed else -1] if found else None
