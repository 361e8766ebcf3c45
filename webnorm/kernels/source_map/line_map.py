"""Where the characters of a rendered line stand in its template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webnorm.errors import SourceLocation


class Splice(NamedTuple):
    """A change of a line: what stands from `begin` to `end`, from 0, becomes another text."""

    begin: int
    end: int
    text: str

    def of(self, line: str) -> str:
        """The line after the change."""
        return f"{line[: self.begin]}{self.text}{line[self.end :]}"


class LineSegment(NamedTuple):
    """Characters of a rendered line, from `start` on, that stand as they are in a template.

    `line` and `column` are the template's, from 1, and `start` is from 0. What stands between two runs is
    what the template has between them: an expression that gave it, or what became something shorter.
    """

    start: int
    length: int
    file: str
    line: int
    column: int

    @property
    def after(self) -> int:
        """The template's column behind it."""
        return self.column + self.length

    def end(self) -> LineSegment:
        """The place behind it, as what a line begins with."""
        return LineSegment(0, 0, self.file, self.line, self.after)

    def cut(self, begin: int, end: int, by: int) -> LineSegment:
        """The part from one column of the rendered line to another, which have moved by so many."""
        return LineSegment(begin + by, end - begin, self.file, self.line, self.column + begin - self.start)


def spliced(runs: Iterable[LineSegment], splices: Iterable[Splice]) -> list[LineSegment]:
    """The runs of a line after changes, one after another."""
    for splice in splices:
        runs = [part for run in runs for part in _parts(run, splice)]
    return list(runs)


def _parts(run: LineSegment, splice: Splice) -> Iterator[LineSegment]:
    """What is left of a run on both sides of a change."""
    end, by = run.start + run.length, len(splice.text) - (splice.end - splice.begin)
    if run.start <= splice.begin:
        yield run.cut(run.start, min(end, splice.begin), 0)
    if end >= splice.end:
        yield run.cut(max(run.start, splice.end), end, by)


def source_location(runs: Sequence[LineSegment], at: int, length: int = 0) -> SourceLocation | None:
    """The place of characters of a line, from 0, by its runs; None where none stands before them.

    What an expression gave has the expression's place: from `{{` to `}}` where nothing stands between.
    """
    first = _around(runs, at)
    if first is None:
        return None
    file, line, begin, _ = first
    last = _around(runs, at + length - 1) if length else None
    is_whole = last is not None and last[:2] == (file, line)
    return SourceLocation(file, line, begin, max(last[3] - begin, 0) if last and is_whole else 0)


def _around(runs: Sequence[LineSegment], at: int) -> tuple[str, int, int, int] | None:
    """File, line and columns, from one to before the other, of a character of a line; the second column is
    that of the first where it is not known.
    """
    before = [run for run in runs if run.start <= at]
    if not before:
        return None
    run, behind = before[-1], runs[len(before) :]
    if at < run.start + run.length:
        column = run.column + at - run.start
        return run.file, run.line, column, column + 1
    follows = behind and (behind[0].file, behind[0].line) == (run.file, run.line)
    return run.file, run.line, run.after, max(behind[0].column, run.after) if follows else run.after
