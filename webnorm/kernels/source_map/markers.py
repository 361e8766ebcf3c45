"""Markers in template text that record the origin of each piece of a rendered text.

The lexer puts a marker before each line, or piece of a line, of template text. After rendering the markers
are removed. A filter may change a marker or the text after it. So markers without a known template are
ignored, and only text that equals the template's counts as coming from it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jinja2.lexer import Lexer

from webnorm.errors import SourceLocation

# Noncharacters of Unicode, which no kernel's file may contain.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
# The template, the line, and the column unless it is 1.
_MARK = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*):([0-9]{{1,7}})(?:\\.([0-9]{{1,7}}))?{_CLOSE}")

# A template's name and a line of it.
Origin = tuple[str, int]
# A template's name, line and column, or None.
Caller = tuple[str, int, int] | None
# The lines of each template by its name. The name "" has no lines.
Templates = Mapping[str, Sequence[str]]


class LineSegment(NamedTuple):
    """Characters of a rendered line, from `start` on, that were copied from a template.

    `line` and `column` are the template's and count from 1; `start` counts from 0. Text between two segments
    comes from the template's text between them: an expression, or text that became shorter.
    """

    start: int
    length: int
    file: str
    line: int
    column: int

    @property
    def after(self) -> int:
        """The template's column after the segment."""
        return self.column + self.length

    def end(self) -> LineSegment:
        """Return an empty segment for the place after this one, at the begin of a rendered line."""
        return LineSegment(0, 0, self.file, self.line, self.after)


def source_location(runs: Sequence[LineSegment], at: int, length: int = 0) -> SourceLocation | None:
    """Return the template's place of characters of a rendered line; None if no segment precedes them.

    Text from an expression gets the expression's place, from `{{` to `}}` if there is nothing else between.
    `at` counts from 0.
    """
    first = _around(runs, at)
    if first is None:
        return None
    file, line, begin, _ = first
    last = _around(runs, at + length - 1) if length else None
    is_whole = last is not None and last[:2] == (file, line)
    return SourceLocation(file, line, begin, max(last[3] - begin, 0) if last and is_whole else 0)


def _around(runs: Sequence[LineSegment], at: int) -> tuple[str, int, int, int] | None:
    """Return file, line, and the half-open range of columns of a character; an empty range if unknown."""
    before = [run for run in runs if run.start <= at]
    if not before:
        return None
    run, behind = before[-1], runs[len(before) :]
    if at < run.start + run.length:
        column = run.column + at - run.start
        return run.file, run.line, column, column + 1
    follows = behind and (behind[0].file, behind[0].line) == (run.file, run.line)
    return run.file, run.line, run.after, max(behind[0].column, run.after) if follows else run.after


def with_markers(tokens: Iterable[tuple[int, str, str]], source: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield the lexer's tokens of a text, each with its offset.

    Between two tokens there is only white space that a tag's `-` removes.
    """
    at = 0
    for line, kind, value in tokens:
        at = source.index(value, at)
        yield at, line, kind, value
        at += len(value)


class MarkingLexer(Lexer):
    """A lexer that puts a marker before each line, or piece of a line, of template text."""

    def tokeniter(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> Iterator[tuple[int, str, str]]:
        """Yield the tokens of a template: line, kind and value."""
        tokens = super().tokeniter(source, name, filename, state)
        for at, line, kind, value in with_markers(tokens, source):
            yield line, kind, value if kind != "data" else _marked(value, name, line, at - _begin(source, at))


def _begin(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _marked(text: str, name: str | None, line: int, before: int) -> str:
    """Add markers to template text that has `before` characters before it on its first line."""
    column = f".{before + 1}" if before else ""
    first, *others = text.split("\n")
    marked = [f"{_OPEN}{name}:{line}{column}{_CLOSE}{first}"]
    marked += [f"{_OPEN}{name}:{number}{_CLOSE}{other}" for number, other in enumerate(others, line + 1)]
    return "\n".join(marked)


class UnmarkedLine(NamedTuple):
    """A line of the rendered text, its origin, and the names of all templates with text in it.

    The name "" stands for text of unknown origin. `runs` are the line's segments. For a snippet's line,
    `caller` is the end of the preceding text of another template: the tag that includes or calls the snippet.
    """

    text: str
    origin: Origin
    makers: frozenset[str]
    runs: Sequence[LineSegment] = ()
    caller: Caller = None


_NO_LINE = UnmarkedLine("", ("", 0), frozenset())


def without_markers(
    marked: str, templates: Templates, snippets: Container[str] | None = None
) -> list[UnmarkedLine]:
    """Remove the markers, and lines that contained only template tags.

    If the names of `snippets` are given, the lines include their runs and callers.
    """
    lines: list[UnmarkedLine] = []
    caller: Caller = None
    for line in marked.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        text, mark, names = _unmarked_line(line)
        if snippets is not None:
            caller = _caller(line, caller, snippets)
        before = lines[-1] if lines else _NO_LINE
        if not text and not before.text:
            continue
        origin = mark if mark is not None and mark[0] in templates else before.origin
        if not text and not _is_blank(origin, templates):
            continue
        one = UnmarkedLine(text, origin, names)
        if snippets is not None:
            runs = tuple(_runs(line, text, templates, before.runs))
            one = one._replace(runs=runs, caller=caller if origin[0] in snippets else None)
        lines.append(one)
    while lines and not lines[-1].text:
        lines.pop()
    return lines


def _caller(line: str, before: Caller, snippets: Container[str]) -> Caller:
    """Return the end of the last text in a line that is not a snippet's, before the snippet's own text."""
    found, marks = before, list(_MARK.finditer(line))
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(line)], strict=True):
        if mark[1] not in snippets:
            found = mark[1], int(mark[2]), int(mark[3] or 1) + end - mark.end()
        elif line[mark.end() : end].strip():
            break
    return found


# Cached because the library's lines occur in many texts.
@lru_cache(maxsize=1 << 13)
def _unmarked_line(line: str) -> tuple[str, Origin | None, frozenset[str]]:
    """Return a line without markers, the origin of its first visible character, and all templates in it."""
    # For each marker its name, line and column, and the text after it.
    before, *marks = _MARK.split(line)
    pieces = marks[3::4]
    text = "".join([before, *pieces]).rstrip()
    makers = {name for name, piece in zip(marks[::4], pieces, strict=True) if piece.strip()}
    if before.strip():
        makers.add("")
    if not marks:
        return text, None, frozenset(makers)
    seen = (at for at, piece in enumerate(pieces) if piece.lstrip()[:1] not in ("", _OPEN))
    name, number, *_ = marks[4 * next(seen, 0) :]
    return text, (name, int(number)), frozenset(makers)


def _is_blank(origin: Origin, templates: Templates) -> bool:
    """Return whether the template's line is empty."""
    name, number = origin
    return 1 <= number <= len(templates[name]) and not templates[name][number - 1].strip()


def _runs(line: str, text: str, templates: Templates, before: Sequence[LineSegment]) -> Iterator[LineSegment]:
    """Yield the segments of a marked line.

    Text before the first marker continues an expression of an earlier line.
    """
    marks = list(_MARK.finditer(line))
    if before and (not marks or text[: marks[0].start()].strip()):
        yield before[-1].end()
    taken = 0
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(line)], strict=True):
        name, number, column = mark[1], int(mark[2]), int(mark[3] or 1)
        if name in templates:
            is_there = 1 <= number <= len(templates[name]) and column
            source = templates[name][number - 1][column - 1 :] if is_there else ""
            same = _common_prefix(line[mark.end() : end], source)
            yield LineSegment(mark.start() - taken, same, name, number, column)
        taken += len(mark[0])


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    if other.startswith(one):
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
