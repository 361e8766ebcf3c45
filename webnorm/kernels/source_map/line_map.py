"""Where the characters of a rendered line stand in its template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from webnorm.errors import SourceLocation


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
