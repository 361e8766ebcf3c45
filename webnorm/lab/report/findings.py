"""What `webnorm.bench`, `check` and `compare` give: rows for a data frame, files, a table in a notebook."""

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
# Behind a number of percent: readable on light and on dark.
_BAR = "display:inline-block;height:.7em;width:{:.0f}px;background:#1f77b4"
_BAR_WIDTH = 160


@dataclass(frozen=True, repr=False)
class Findings:
    """The results of a benchmark or a check. In a notebook it shows a table of each problem, and a plot.

    The tables tell constants that are not the default ones of `kernels` on a device of these `traits`, and
    all of them where these are not known. `unchecked` lists the parts of the request that could not be
    checked: everything there was skipped.
    """

    report: Report
    kernels: tuple[Kernel, ...] = field(default=(), compare=False)
    traits: Traits | None = field(default=None, compare=False)
    unchecked: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """A Result for each kernel, constants and problem, the copies among them."""
        return self.report.results

    @property
    def ok(self) -> bool:
        """Whether everything was checked and is right: no part of the request is `unchecked`, and no kernel
        is wrong or broken, except those that are declared unstable.
        """
        wrong = any(verdict(result) in ("FAIL", "error") for result in self.results)
        return bool(self.results) and not wrong and not self.unchecked

    def rows(self) -> list[dict[str, Cell]]:
        """Flat rows, such as pandas.DataFrame takes: see Result.row."""
        return self.report.rows()

    def best(self) -> list[Result]:
        """The fastest right result of each problem, where one was timed: the first of its table."""
        winners = (leader(members) for _, members in by_problem(self.results))
        return [winner for winner in winners if winner is not None]

    def save(self, path: str | Path) -> None:
        """Write the results as JSON, which `compare` reads; WebnormError where they cannot be written."""
        write_text(Path(path), result_files.to_json(self.report))

    def markdown(self) -> str:
        """A table of each problem."""
        return tables.to_markdown(self.report)

    def plot(self, path: str | Path) -> None:
        """Draw GB/s over columns into an .svg or .png file; WebnormError as `plot.plot` has it."""
        throughput.plot(self.report, Path(path))

    def __repr__(self) -> str:
        counts = Counter(map(verdict, self.results))
        said = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no results"
        return f"<Findings on {one_line(str(self.report.device.get('adapter', 'no device')))}: {said}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(tables.device_text(self.report.device))}</b></p>"]
        for title, members in by_problem(self.results):
            usual = None
            if self.traits is not None:
                task = Task(OPS[members[0].op], members[0].problem)
                usual = default_constants(self.kernels, task, self.traits)
            parts += [f"<p>{escape(title)}</p>", _table(members, usual)]
        return "".join([*parts, _picture(self.report)])


@dataclass(frozen=True, repr=False)
class Changes:
    """What became of the results of one report in another. In a notebook it shows a table."""

    verdicts: Verdicts

    @property
    def known(self) -> bool:
        """Whether anything is known of any pair; what to do where it is not, `advice` says."""
        return self.verdicts.known

    @property
    def advice(self) -> str | None:
        """What to measure next where something is UNCLEAR; None where measuring does not help."""
        return next(iter(comparison_text.advice(self.verdicts)), None)

    def rows(self) -> list[dict[str, Cell]]:
        """Flat rows, such as pandas.DataFrame takes: see Comparison.row."""
        return self.verdicts.rows()

    def markdown(self, old: str = "old", new: str = "new") -> str:
        """The comparison as text for a pull request; the two reports are called so."""
        return comparison_text.to_markdown(self.verdicts, old, new)

    def __repr__(self) -> str:
        return f"<Changes: {comparison_text.counts_text(self.verdicts.comparisons)}>"

    def _repr_html_(self) -> str:
        rows = comparison_text.pair_rows(self.verdicts.comparisons, escape)
        head = escape(comparison_text.drift_text(self.verdicts.drift))
        return f"<p>{head}</p>{_html(comparison_text.COLUMNS, rows)}"


def _picture(report: Report) -> str:
    """The plot, or why there is none; nothing where matplotlib is not installed."""
    try:
        return throughput.svg(report)
    except WebnormError as error:
        return f"<p>{escape(str(error))}</p>"


def _table(results: list[Result], usual: tables.Usual | None) -> str:
    shown = tables.problem_table(results, usual)
    columns = list(shown.columns)
    at = columns.index("% of copy") + 1
    rows = []
    for result, cells in shown.rows:
        row = [escape(one_line(cells[column])) for column in columns]
        share = min(1.0, max(0.0, (result.percent_of_copy or 0.0) / 100)) if result.timed else 0.0
        rows.append([*row[:at], f'<span style="{_BAR.format(share * _BAR_WIDTH)}"></span>', *row[at:]])
    columns.insert(at, "")
    said = [*shown.remarks, *tables.notes(results, usual)]
    below = "".join(f"<div>{escape(one_line(line))}</div>" for line in said)
    return _html(columns, rows) + below


def _html(columns: tuple[str, ...] | list[str], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already."""
    aligned = [_STYLE.format("right" if column in tables.NUMERIC else "left") for column in columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        shown = (f'<{tag} style="{s}">{cell}</{tag}>' for s, cell in zip(aligned, cells, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    head, body = line("th", map(escape, columns)), "".join(line("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
