"""What `compare` shows: what the copies did, then a line for each pair of results."""

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
    """What the copies did, then for each problem a line per kernel: the ratio (above 1 is slower), its
    interval, the verdict; below them what the figures are, and why some are unclear.
    """

    verdicts: Verdicts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self.verdicts.comparisons
        yield escaped_line(comparison_text.drift_text(self.verdicts.drift), "bold")
        if found:
            # One grid, so that all problems' columns stand below one another; their titles go between.
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
    """The heading, and a line for each comparison, with `more` columns before the verdict."""
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
    """The next row for each comparison, those of a problem below its title."""
    before = None
    for one in found:
        problem = comparison_text.problem_text(one)
        if problem != before:
            yield escaped_line(problem)
        before = problem
        yield next(rows)
