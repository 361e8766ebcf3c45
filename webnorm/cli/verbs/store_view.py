"""The tables of `store history` and `store regressions`, by platform and problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import escaped_line
from webnorm.cli.verbs.compare_view import comparison_rows, titled
from webnorm.errors import counted
from webnorm.gpu.backend_names import backend_text
from webnorm.lab.report import comparison_text
from webnorm.lab.report.history.regressions import NewestRun, RegressionResult
from webnorm.lab.report.history.series import Entry, History
from webnorm.lab.results.result import Cell
from webnorm.lab.results.tables import NOTHING, percent_text, time_text

_INDENT = "  "
# The characters of an id that are shown, about as many as git shows of a commit.
_SHORT = 8


def platform_text(platform: Mapping[str, Cell]) -> str:
    """Return one line for a platform: the device, its driver and the version of wgpu or Dawn."""
    driver, wgpu = (platform[name] or "unknown" for name in ("driver", "wgpu"))
    named = [str(platform[name]) for name in ("adapter", "backend") if platform[name]]
    return f"{', '.join(named) or 'unknown device'}, driver {driver}, {backend_text(str(wgpu))}"


@dataclass(frozen=True)
class HistoryTable:
    """One line per run of each series, the newest last, or only the newest run if `newest`."""

    found: History
    newest: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        entries = [one[-1] for one in self.found.series] if self.newest else self.found.entries()
        if entries:
            yield from _titled(entries, self._strips(entries), options.max_width)
        reports, untimed = self.found.reports, self.found.untimed
        counts = [f"{counted(reports, 'report')}, {untimed} without times"]
        copies = self.found.copies
        if copies:
            counts.append(f"{copies} series of copy kernels not shown: use --copies")
        yield escaped_line("; ".join(counts), "bold")

    def _strips(self, entries: Sequence[Entry]) -> list[Column]:
        def texts(name: str) -> list[Text]:
            return [escaped_line(str(one[name] or NOTHING)[:_SHORT]) for one in entries]

        def figures(name: str, text_of: Callable[[float | None], str]) -> list[Text]:
            cells = [one[name] for one in entries]
            return [Text(text_of(float(cell) if isinstance(cell, int | float) else None)) for cell in cells]

        return [
            Column("kernel", [escaped_line(_INDENT + name) for name in _names(entries)], name=True),
            *(
                [Column("runs", [Text(str(one["runs"])) for one in entries], right=True)]
                if self.newest
                else []
            ),
            Column("recorded", [escaped_line(str(one["recorded"] or NOTHING)) for one in entries], rank=4),
            Column("run", texts("run"), rank=2),
            Column("commit", texts("commit"), rank=1),
            Column("webnorm", [escaped_line(str(one["webnorm"])) for one in entries], rank=0),
            Column("median", figures("median_ns", time_text), right=True, rank=3),
            Column("GB/s", figures("gbps", _rate), right=True),
            Column("% of copy", figures("percent_of_copy", percent_text), right=True),
            Column("", [_remark(one) for one in entries]),
        ]


def _titled(entries: Sequence[Entry], strips: Sequence[Column], width: int) -> Iterator[Text]:
    """Yield the lines, with a title before each platform and each problem."""
    heading, *rows = table_lines(fitting_columns(strips, width, gap=2), width, gap=2)
    yield heading
    platform, problem = "", ""
    for one, row in zip(entries, rows, strict=True):
        if platform_text(one) != platform:
            platform, problem = platform_text(one), ""
            yield escaped_line(platform, "bold")
        if _problem(one) != problem:
            problem = _problem(one)
            yield escaped_line(problem)
        yield row


def _problem(one: Entry) -> str:
    drawn = "" if one["distribution"] == "normal" else f", {one['distribution']}"
    case = f", {one['case']}" if one["case"] else ""
    return f"{one['op']} {one['problem']}{drawn}{case}"


def _names(entries: Sequence[Entry]) -> list[str]:
    """Return the kernel of each line, with its constants if other lines have other constants."""
    places = [(platform_text(one), _problem(one), str(one["kernel"])) for one in entries]
    constants = [str(one["constants"] or "").replace(";", " ") for one in entries]
    lines = [*zip(places, constants, strict=True)]
    several = Counter(place for place, _ in {*lines})
    return [f"{place[-1]} {own}".rstrip() if several[place] > 1 else place[-1] for place, own in lines]


def _remark(one: Entry) -> Text:
    """Return warnings: flags, a status other than pass, an interrupted run."""
    words = [str(one["flags"]).replace(";", ", ")] if one["flags"] else []
    if one["status"] != "pass":
        words.append(str(one["status"]))
    if one["complete"] == 0:
        words.append("interrupted run")
    return escaped_line(", ".join(words), "red" if one["status"] in ("fail", "error") else "yellow")


def _rate(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:.4g}"


@dataclass(frozen=True)
class RegressionsTable:
    """The newest run of each platform, and one line for each of its results that is compared.

    A line has the time as a multiple of the earlier runs' time, its interval, the band without a change, the
    number of earlier runs, and the verdict.
    """

    found: Sequence[NewestRun]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        results = [one for newest in self.found for one in newest.results]
        compared = [one for one in results if not one.open]
        rows = iter(_rows(compared, options.max_width))
        if compared:
            yield next(rows)
        for newest in self.found:
            yield escaped_line(platform_text(newest.platform), "bold")
            yield escaped_line(_run(newest))
            yield from titled([one.comparison for one in newest.results if not one.open], rows)
        yield escaped_line(_counts(results, compared), "bold")
        if compared:
            yield Text(
                "ratio: new time divided by the median of earlier runs, as multiples of the copy's time if "
                "all have one; above 1 is slower; a change is outside the band and its interval excludes 1"
            )
        yield from map(escaped_line, comparison_text.verdict_reasons([one.comparison for one in results]))


def _counts(results: Sequence[RegressionResult], compared: Sequence[RegressionResult]) -> str:
    """Return the number of results with each verdict."""
    if not results:
        return "no complete run has times"
    parts = [comparison_text.counts_text([one.comparison for one in compared])] if compared else []
    left = len(results) - len(compared)
    return ", ".join([*parts, *([f"{left} not compared"] if left else [])])


def _run(newest: NewestRun) -> str:
    """Return the line about the newest run of a platform."""
    if not newest.results:
        return "no run is complete"
    parts = [newest.recorded or "at an unknown time"]
    parts += [f"run {newest.run[:_SHORT]}"] if newest.run else []
    parts += [f"commit {newest.commit[:_SHORT]}"] if newest.commit else []
    parts += [f"newer interrupted runs: {newest.interrupted}"] if newest.interrupted else []
    return ", ".join(parts)


def _rows(results: Sequence[RegressionResult], width: int) -> list[Text]:
    """Return the heading and one line per result."""
    more = (
        Column("band", [Text(_band(one.band)) for one in results], right=True, rank=0),
        Column("runs", [Text(str(one.runs)) for one in results], right=True, rank=2),
    )
    return comparison_rows([one.comparison for one in results], width, more)


def _band(band: float | None) -> str:
    if band is None:
        return NOTHING
    return f"{100 * band:.1f} %" if band < 1e6 else f"{100 * band:.3g} %"
