"""Return values of `webnorm.bench`, `check` and `compare`: rows for data frames, files, notebook tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from webnorm.choice.defaults import default_constants
from webnorm.errors import WebnormError, one_line
from webnorm.files.atomic import write_text
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.plot import throughput
from webnorm.lab.report import comparison_text
from webnorm.lab.report.comparison import Verdicts
from webnorm.lab.results import result_files, tables
from webnorm.lab.results.ranking import by_problem, leader, verdict
from webnorm.lab.results.result import Cell, Report, Result
from webnorm.op.op import Task
from webnorm.op.registry import OPS

_STYLE = "text-align:{};padding:0 .6em;white-space:nowrap"
# A bar next to a percentage, readable on light and dark backgrounds.
_BAR = "display:inline-block;height:.7em;width:{:.0f}px;background:#1f77b4"
_BAR_WIDTH = 160


@dataclass(frozen=True, repr=False)
class Findings:
    """The results of a benchmark or a check. A notebook shows them as a table per problem and a plot.

    Attributes:
        report: all results, with device and origin.
        kernels: the requested kernels. Tables omit their default constants.
        traits: the device's traits, which decide the default constants. If None, tables show all constants.
        unchecked: the parts of the request that could not be checked because every variant was skipped.
    """

    report: Report
    kernels: tuple[Kernel, ...] = field(default=(), compare=False)
    traits: Traits | None = field(default=None, compare=False)
    unchecked: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """One Result per kernel, constants and problem, including the copies."""
        return self.report.results

    @property
    def ok(self) -> bool:
        """True if everything was checked and is right.

        No part of the request is `unchecked`, and no kernel is wrong or broken, except unstable ones.
        """
        wrong = any(verdict(result) in ("FAIL", "error") for result in self.results)
        return bool(self.results) and not wrong and not self.unchecked

    def rows(self) -> list[dict[str, Cell]]:
        """Return flat rows, for example for pandas.DataFrame: see Result.row."""
        return self.report.rows()

    def best(self) -> list[Result]:
        """Return the fastest right result of each timed problem, which is the first of its table."""
        winners = (leader(members) for _, members in by_problem(self.results))
        return [winner for winner in winners if winner is not None]

    def save(self, path: str | Path) -> None:
        """Write the results as JSON, which `compare` reads; raise WebnormError if writing fails."""
        write_text(Path(path), result_files.to_json(self.report))

    def markdown(self) -> str:
        """Return one table per problem."""
        return tables.to_markdown(self.report)

    def plot(self, path: str | Path) -> None:
        """Draw GB/s over columns into an .svg or .png file; raise WebnormError as `plot.plot` does."""
        throughput.plot(self.report, Path(path))

    def __repr__(self) -> str:
        counts = Counter(map(verdict, self.results))
        text = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no results"
        return f"<Findings on {one_line(str(self.report.device.get('adapter', 'no device')))}: {text}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(tables.device_text(self.report.device))}</b></p>"]
        for title, members in by_problem(self.results):
            defaults = None
            if self.traits is not None:
                task = Task(OPS[members[0].op], members[0].problem)
                defaults = default_constants(self.kernels, task, self.traits)
            parts += [f"<p>{escape(title)}</p>", _table(members, defaults)]
        return "".join([*parts, _picture(self.report)])


@dataclass(frozen=True, repr=False)
class Changes:
    """The changes of results from one report to another. A notebook shows them as a table."""

    verdicts: Verdicts

    @property
    def known(self) -> bool:
        """True if any pair has a result; otherwise `advice` says what to do."""
        return self.verdicts.known

    @property
    def advice(self) -> str | None:
        """The next measurement to make if results are UNCLEAR; None if more measurements do not help."""
        return next(iter(comparison_text.advice(self.verdicts)), None)

    def rows(self) -> list[dict[str, Cell]]:
        """Return flat rows, for example for pandas.DataFrame: see Comparison.row."""
        return self.verdicts.rows()

    def markdown(self, old: str = "old", new: str = "new") -> str:
        """Return the comparison as text for a pull request; `old` and `new` name the two reports."""
        return comparison_text.to_markdown(self.verdicts, old, new)

    def __repr__(self) -> str:
        return f"<Changes: {comparison_text.counts_text(self.verdicts.comparisons)}>"

    def _repr_html_(self) -> str:
        rows = comparison_text.pair_rows(self.verdicts.comparisons, escape)
        head = escape(comparison_text.drift_text(self.verdicts.drift))
        return f"<p>{head}</p>{_html(comparison_text.COLUMNS, rows)}"


def _picture(report: Report) -> str:
    """Return the plot, or the error that prevents it; nothing if matplotlib is not installed."""
    try:
        return throughput.svg(report)
    except WebnormError as error:
        return f"<p>{escape(str(error))}</p>"


def _table(results: list[Result], defaults: tables.Defaults | None) -> str:
    shown = tables.problem_table(results, defaults)
    columns = list(shown.columns)
    at = columns.index("% of copy") + 1
    rows = []
    for result, cells in shown.rows:
        row = [escape(one_line(cells[column])) for column in columns]
        share = min(1.0, max(0.0, (result.percent_of_copy or 0.0) / 100)) if result.timed else 0.0
        rows.append([*row[:at], f'<span style="{_BAR.format(share * _BAR_WIDTH)}"></span>', *row[at:]])
    columns.insert(at, "")
    notes = [*shown.remarks, *tables.notes(results, defaults)]
    below = "".join(f"<div>{escape(one_line(line))}</div>" for line in notes)
    return _html(columns, rows) + below


def _html(columns: tuple[str, ...] | list[str], rows: list[list[str]]) -> str:
    """Return a table of cells that already are HTML."""
    aligned = [_STYLE.format("right" if column in tables.NUMERIC else "left") for column in columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        shown = (f'<{tag} style="{s}">{cell}</{tag}>' for s, cell in zip(aligned, cells, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    head, body = line("th", map(escape, columns)), "".join(line("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
