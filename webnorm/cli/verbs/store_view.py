"""What `store history` and `store regressions` show, by platform and problem: a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import escaped_line
from webnorm.cli.verbs.compare_view import comparison_rows, titled
from webnorm.lab.report import comparison_text
from webnorm.lab.report.history.regressions import NewestRun, RegressionResult
from webnorm.lab.report.history.series import Entry, History
from webnorm.lab.results.result import Cell
from webnorm.lab.results.tables import NOTHING, percent_text, time_text

_INDENT = "  "
# Characters of an id: as many as git shows of a commit.
_SHORT = 8


def platform_text(platform: Mapping[str, Cell]) -> str:
    """A platform in a line: the device and what drives it."""
    driver, wgpu = (platform[name] or "unknown" for name in ("driver", "wgpu"))
    named = [str(platform[name]) for name in ("adapter", "backend") if platform[name]]
    return f"{', '.join(named) or 'unknown device'}, driver {driver}, wgpu {wgpu}"


@dataclass(frozen=True)
class HistoryTable:
    """A line for each run of a series, the newest last; of the newest alone where that is asked for."""

    found: History
    newest: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        entries = [one[-1] for one in self.found.series] if self.newest else self.found.entries()
        if entries:
            yield from _titled(entries, self._strips(entries), options.max_width)
        reports, untimed = self.found.reports, self.found.untimed
        told = [f"{reports} report{'' if reports == 1 else 's'}, {untimed} without times"]
        copies = self.found.copies
        if copies:
            told.append(f"{copies} series of copies left out: --copies shows them")
        yield escaped_line("; ".join(told), "bold")

    def _strips(self, entries: Sequence[Entry]) -> list[Column]:
        def texts(name: str) -> list[Text]:
            return [escaped_line(str(one[name] or NOTHING)[:_SHORT]) for one in entries]

        def figures(name: str, told: Callable[[float | None], str]) -> list[Text]:
            cells = [one[name] for one in entries]
            return [Text(told(float(cell) if isinstance(cell, int | float) else None)) for cell in cells]

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
    """The lines, with a title where another platform or another problem begins."""
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
    """Each line's kernel, with its constants where there are lines of others."""
    places = [(platform_text(one), _problem(one), str(one["kernel"])) for one in entries]
    constants = [str(one["constants"] or "").replace(";", " ") for one in entries]
    lines = [*zip(places, constants, strict=True)]
    several = Counter(place for place, _ in {*lines})
    return [f"{place[-1]} {own}".rstrip() if several[place] > 1 else place[-1] for place, own in lines]


def _remark(one: Entry) -> Text:
    """What is amiss: flags, a status that is no pass, a run that was interrupted."""
    words = [str(one["flags"]).replace(";", ", ")] if one["flags"] else []
    if one["status"] != "pass":
        words.append(str(one["status"]))
    if one["complete"] == 0:
        words.append("of an interrupted run")
    return escaped_line(", ".join(words), "red" if one["status"] in ("fail", "error") else "yellow")


def _rate(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:.4g}"


@dataclass(frozen=True)
class RegressionsTable:
    """For each platform its newest run, and a line for each result of it that is judged: the time as a
    multiple of that of the runs before, its interval, what is no change, how many runs those are, and the
    verdict.
    """

    found: Sequence[NewestRun]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        judged = [one for newest in self.found for one in newest.results]
        told = [one for one in judged if not one.open]
        rows = iter(_rows(told, options.max_width))
        if told:
            yield next(rows)
        for newest in self.found:
            yield escaped_line(platform_text(newest.platform), "bold")
            yield escaped_line(_run(newest))
            yield from titled([one.comparison for one in newest.results if not one.open], rows)
        yield escaped_line(_counts(judged, told), "bold")
        if told:
            yield Text(
                "ratio: new time over the median of the runs before, as multiples of the copy's where all "
                "have it; above 1 is slower; a change is beyond the band, and its interval is without 1"
            )
        yield from map(escaped_line, comparison_text.verdict_reasons([one.comparison for one in judged]))


def _counts(judged: Sequence[RegressionResult], told: Sequence[RegressionResult]) -> str:
    """How many have which verdict."""
    if not judged:
        return "no run that came to its end has times"
    parts = [comparison_text.counts_text([one.comparison for one in told])] if told else []
    left = len(judged) - len(told)
    return ", ".join([*parts, *([f"{left} not judged"] if left else [])])


def _run(newest: NewestRun) -> str:
    """Which run is judged."""
    if not newest.results:
        return "no run of it came to its end"
    told = [newest.recorded or "at an unknown time"]
    told += [f"run {newest.run[:_SHORT]}"] if newest.run else []
    told += [f"commit {newest.commit[:_SHORT]}"] if newest.commit else []
    told += [f"newer and interrupted: {newest.interrupted}"] if newest.interrupted else []
    return ", ".join(told)


def _rows(judged: Sequence[RegressionResult], width: int) -> list[Text]:
    """The heading, and a line for each."""
    more = (
        Column("band", [Text(_band(one.band)) for one in judged], right=True, rank=0),
        Column("runs", [Text(str(one.runs)) for one in judged], right=True, rank=2),
    )
    return comparison_rows([one.comparison for one in judged], width, more)


def _band(band: float | None) -> str:
    if band is None:
        return NOTHING
    return f"{100 * band:.1f} %" if band < 1e6 else f"{100 * band:.3g} %"
