"""The table of `compare`: the drift of the copies, then one line per pair of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.lab.report import comparison_text
from webnorm.lab.report.comparison import Comparison, Verdicts

_INDENT = "  "


@dataclass(frozen=True)
class CompareTable:
    """The drift of the copies, then one line per kernel of each problem: ratio, interval and verdict.

    A ratio above 1 is slower. Lines below explain the numbers and the UNCLEAR verdicts.
    """

    verdicts: Verdicts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self.verdicts.comparisons
        yield escaped_line(comparison_text.drift_text(self.verdicts.drift), "bold")
        if found:
            # One table for all problems, so that their columns align. The titles go between its rows.
            rows = iter(comparison_rows(found, options.max_width))
            yield next(rows)
            yield from titled(found, rows)
            yield escaped_line(comparison_text.counts_text(found), "bold")
        yield Text(
            "ratio: new time divided by old time, as multiples of the copy's time in the same rounds; "
            "above 1 is slower; all intervals hold together with 95 % confidence"
        )
        yield from map(escaped_line, (*self.verdicts.remarks, *comparison_text.verdict_reasons(found)))
        yield from (escaped_line(line, "bold") for line in comparison_text.advice(self.verdicts))


def comparison_rows(found: Sequence[Comparison], width: int, more: Sequence[Column] = ()) -> list[Text]:
    """Return the heading and one line per comparison, with `more` columns before the verdict."""
    name = comparison_text.pair_labels(found)
    strips = [
        Column("kernel", [escaped_line(_INDENT + name(one)) for one in found], name=True),
        Column("ratio", [Text(comparison_text.ratio_text(one.ratio)) for one in found], right=True),
        Column("interval", [Text(comparison_text.interval_text(one)) for one in found], right=True, rank=1),
        *more,
        Column("", [Text(one.verdict, STYLES.get(one.verdict, "dim")) for one in found]),
    ]
    return table_lines(fitting_columns(strips, width, gap=2), width, gap=2)


def titled(found: Sequence[Comparison], rows: Iterator[Text]) -> Iterator[Text]:
    """Yield the next row for each comparison, with a title before the rows of each problem."""
    before = None
    for one in found:
        problem = comparison_text.problem_text(one)
        if problem != before:
            yield escaped_line(problem)
        before = problem
        yield next(rows)
