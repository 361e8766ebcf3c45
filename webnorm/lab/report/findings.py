"""Results of `webnorm.bench`, `check` and `compare`: rows for data frames, files, and tables in notebooks."""

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
    """The results of a benchmark or a check, from `webnorm.bench` or `webnorm.check`.

    A notebook shows a table per problem and a plot. The tables show only constants that are not the default
    of `kernels` on a device with these `traits`, or all constants if the traits are unknown.

    Attributes
    ----------
    report : Report
        The results and the description of the device.
    kernels : tuple of Kernel
        The kernels of the request.
    traits : Traits or None
        The limits and features of the device.
    unchecked : tuple of str
        The parts of the request that could not be checked, since every case in them was skipped.
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
        """True if every part of the request was checked, and every result is right.

        A wrong or broken kernel does not count if its header declares it unstable.
        """
        wrong = any(verdict(result) in ("FAIL", "error") for result in self.results)
        return bool(self.results) and not wrong and not self.unchecked

    def rows(self) -> list[dict[str, Cell]]:
        """Return one flat row per result, such as pandas.DataFrame accepts; see `Result.row`."""
        return self.report.rows()

    def best(self) -> list[Result]:
        """Return the fastest right result of each problem that has one."""
        winners = (leader(members) for _, members in by_problem(self.results))
        return [winner for winner in winners if winner is not None]

    def save(self, path: str | Path) -> None:
        """Write the results as JSON, which `webnorm.compare` reads.

        Parameters
        ----------
        path : str or pathlib.Path
            The file to write.

        Raises
        ------
        WebnormError
            The file cannot be written.
        """
        write_text(Path(path), result_files.to_json(self.report))

    def markdown(self) -> str:
        """Return a Markdown table per problem."""
        return tables.to_markdown(self.report)

    def plot(self, path: str | Path) -> None:
        """Plot the throughput in GB/s over the columns into a file.

        Parameters
        ----------
        path : str or pathlib.Path
            The .svg or .png file to write.

        Raises
        ------
        WebnormError
            matplotlib is missing, nothing was timed, or the file cannot be written.
        """
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
    """The comparison of two reports, from `webnorm.compare`. A notebook shows it as a table.

    Attributes
    ----------
    verdicts : Verdicts
        One comparison per pair of results, and the drift of the copies.
    """

    verdicts: Verdicts

    @property
    def known(self) -> bool:
        """True if at least one pair has a verdict other than UNCLEAR. Otherwise see `advice`."""
        return self.verdicts.known

    @property
    def advice(self) -> str | None:
        """The next measurement to make if a pair is UNCLEAR; None if measuring does not help."""
        return next(iter(comparison_text.advice(self.verdicts)), None)

    def rows(self) -> list[dict[str, Cell]]:
        """Return one flat row per pair, such as pandas.DataFrame accepts; see `Comparison.row`."""
        return self.verdicts.rows()

    def markdown(self, old: str = "old", new: str = "new") -> str:
        """Return the comparison as Markdown for a pull request.

        Parameters
        ----------
        old, new : str
            The names of the two reports in the text.
        """
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
