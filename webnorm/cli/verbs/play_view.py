"""The screen of `webnorm play`: compile errors, verdict, error map, hints, times, counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import escaped_line, number_column, wrapping_column
from webnorm.cli.work.compile_errors import caret_line, source_line
from webnorm.errors import counted, one_line
from webnorm.lab.diagnose.heat_map import HeatMap
from webnorm.lab.results.tables import NOTHING, percent_text, time_text
from webnorm.play.state import AttemptState, LiveTime, LocatedMistake, Snapshot, StageTime

_KEYS = ("r run", "t time", "c corpus", "x trace", "u undo", "q quit")
_MARKS = {"waiting": "·", "running": "…", "done": "✓", "failed": "✗", "skipped": "-"}
_STYLES = {"waiting": "dim", "running": "yellow", "done": "green", "failed": "bold red", "skipped": "dim"}
_ENDS = {"pass": "green", "unjudged": "yellow"}
_GAP = "  "
# Errors in units of the tolerance, from correct to far off, with the mark and style of larger errors.
_SHADES = (
    (0.0, "·", "dim"),
    (1.0, "░", "yellow"),
    (1e2, "▒", "yellow"),
    (1e4, "▓", "red"),
    (1e6, "█", "bold red"),
)
_NOT_A_NUMBER = ("×", "bold magenta")
_RECORDS, _HINTS, _MISTAKES, _ATTEMPTS = 12, 4, 4, 5


def screen(now: Snapshot) -> Iterator[RenderableType]:
    """Yield all parts of a snapshot, from the title to the history."""
    yield _title(now)
    # Not last, because a small screen cuts off the end.
    yield _Flow([Text(key, "dim") for key in _KEYS])
    yield from (escaped_line(notice, "yellow") for notice in now.notices[-2:])
    attempt = now.attempt
    if attempt is not None:
        yield _stages(attempt.stages)
        yield from findings(attempt)
        if attempt.mistakes and now.good is not None and now.good.number != attempt.number:
            yield DimmedLines(
                f"attempt {now.good.number}, the last one that could be checked:", tuple(findings(now.good))
            )
    yield from _history(now)


def findings(attempt: AttemptState) -> Iterator[RenderableType]:
    """Yield all findings about an attempt."""
    before = None
    for mistake in attempt.mistakes[:_MISTAKES]:
        place = mistake.file, mistake.line, mistake.column
        yield mistake_text(mistake, shown=place == before)
        before = place
    if len(attempt.mistakes) > _MISTAKES:
        yield Text(f"and {len(attempt.mistakes) - _MISTAKES} more", "dim")
    for part in (_verdicts, _where, _traced, _times, _counts, _corpus):
        yield from part(attempt)
    for stage in attempt.stages:
        yield from _note(attempt, stage)


def news(attempt: AttemptState, known: int = 0, mistakes: int = 0) -> Iterator[RenderableType]:
    """Yield finished stages with their findings, and mistakes; skip the first `known` and `mistakes` ones."""
    for stage in [stage for stage in attempt.stages if stage.ended][known:]:
        yield _stages([stage])
        yield from _note(attempt, stage)
        if part := _FOUND.get(stage.name):
            yield from part(attempt)
    for mistake in attempt.mistakes[mistakes:]:
        yield mistake_text(mistake)


def _note(attempt: AttemptState, stage: StageTime) -> Iterator[RenderableType]:
    """Yield the note of a stage: why it was skipped, what it left out, or why it failed without a mistake."""
    if stage.note and (stage.state != "failed" or not attempt.mistakes):
        style = "yellow" if stage.state == "done" else _STYLES[stage.state]
        yield escaped_line(f"{stage.name}: {stage.note}", style)


def _where(attempt: AttemptState) -> Iterator[RenderableType]:
    yield from _why(attempt)
    if attempt.map is not None:
        yield from heat_map(attempt.map)


def _why(attempt: AttemptState) -> Iterator[RenderableType]:
    for hint in attempt.hints[:_HINTS]:
        place = f"{hint.place.file}:{hint.place.line}" if hint.place else ""
        # Texts about races already begin with the place.
        text = hint.text if place in hint.text else f"{hint.text} ({place})"
        yield Text.assemble(("why: ", "bold"), escaped_line(text))


class _Flow:
    """Short texts in lines that break only between texts."""

    def __init__(self, parts: Sequence[Text]) -> None:
        self.parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text()
        for part in self.parts:
            if line and line.cell_len + len(_GAP) + part.cell_len > options.max_width:
                yield line
                line = Text()
            line = Text.assemble(line, _GAP if line else "", part)
        yield line


class DimmedLines:
    """Outdated findings, dimmed, under a heading."""

    def __init__(self, heading: str, parts: Sequence[RenderableType]) -> None:
        self.heading, self.parts = heading, parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.heading, "dim")
        for segment in console.render(Group(*self.parts), options):
            yield segment if segment.control else type(segment)(segment.text, Style(dim=True), None)


def mistake_text(mistake: LocatedMistake, shown: bool = False) -> Text:
    """Return a mistake with its source and place, and its line with a caret unless already `shown`."""
    place = ""
    if mistake.file is not None and not shown:
        place = f"{mistake.file}:{mistake.line}:{mistake.column}: "
    text = Text.assemble(
        (f"{mistake.by}: ", "bold red"), escaped_line(place, "bold"), escaped_line(mistake.message)
    )
    if mistake.source and mistake.column is not None and not shown:
        carets = caret_line(mistake.source, mistake.column, mistake.length)
        text.append(f"\n  {source_line(mistake.source)}\n  ").append(carets, "bold red")
    return text


def _title(now: Snapshot) -> Text:
    file, attempt = now.file, now.attempt
    named = f"{file.op}/{file.kernel}" if file.op else ""
    text = Text.assemble(
        (one_line(file.name), "bold"), f"  {named}  {now.device.get('adapter', 'opening the adapter')}"
    )
    if file.missing:
        return text.append("  missing", "bold red")
    if attempt is None:
        return text
    text.append(f"  attempt {attempt.number}  ")
    if now.working is not None:
        return text.append(f"{now.working} …", "yellow")
    words, style = {True: ("pass", "bold green"), False: ("FAIL", "bold red"), None: ("", "")}[attempt.ok]
    if attempt.mistakes and attempt.ok is None:
        words, style = "stopped", "bold yellow"
    elif attempt.mistakes and not attempt.shapes:
        words = "cannot be checked"
    return text.append(words, style)


def _stages(stages: Sequence[StageTime]) -> RenderableType:
    parts = []
    for stage in stages:
        took = f" {stage.ms:.0f} ms" if stage.ms is not None else ""
        parts.append(Text(f"{_MARKS[stage.state]} {stage.name}{took}", _STYLES[stage.state]))
    return _Flow(parts)


def _verdicts(attempt: AttemptState) -> Iterator[RenderableType]:
    for one in attempt.shapes:
        result = one.result
        status = "expected failure" if result.expected else result.status
        style = {"pass": "green", "fail": "bold red", "error": "red"}.get(result.status, "dim")
        nearest = f"nearest to its tolerance: {result.worst}" if result.worst else None
        detail = "".join(f": {said}" for said in [result.reason or nearest] if said)
        # The largest error is not shown: it may be of another element, with a larger tolerance.
        yield Text.assemble((status, style), " ", escaped_line(f"{one.problem}{detail}"))


def heat_map(map: HeatMap) -> Iterator[RenderableType]:
    """Yield the map of errors by row and column, below its legend.

    A wrong tail of rows is a vertical stripe, and a wrong row is a horizontal line.
    """
    text = Text(
        f"{one_line(map.output)}, {counted(map.rows, 'row')} down, {counted(map.cols, 'column')} across; "
        "error in units of the tolerance: "
    )
    for least, mark, style in _SHADES[1:]:
        text.append(f"{mark} > {least:.0e}  " if least > 1 else f"{mark} > 1  ", style)
    yield text.append("× not a number", _NOT_A_NUMBER[1])
    yield _Cells(map)


@dataclass(frozen=True)
class _Cells:
    """Lines of cells. If a line is too wide, neighbouring cells share one that shows their largest error."""

    map: HeatMap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        starts = [f"{number * self.map.row_step:6} " for number in range(len(self.map.cells))]
        for start, row in zip(starts, self.map.cells, strict=True):
            share = -(-len(row) // max(1, options.max_width - len(start))) or 1
            joined = (max(row[at : at + share]) for at in range(0, len(row), share))
            yield Text.assemble((start, "dim"), *map(_shade, joined))


def _shade(cell: float) -> tuple[str, str]:
    if not math.isfinite(cell):
        return _NOT_A_NUMBER
    return next((mark, style) for least, mark, style in reversed(_SHADES) if cell > least or least == 0)


def _traced(attempt: AttemptState) -> Iterator[RenderableType]:
    """Yield the first trace records, with the expected float64 values if they are known."""
    trace = attempt.trace
    if trace is None:
        return
    columns = (
        wrapping_column("traced"),
        number_column("row"),
        number_column("workgroup"),
        number_column("invocation"),
        wrapping_column("value"),
        wrapping_column("float64"),
    )
    table = Table(*columns, box=None, pad_edge=False)
    for record in trace.records[:_RECORDS]:
        site = trace.sites[record.site]
        place = f" :{site.place.line}" if site.place else ""
        style = "bold red" if record.departs else ""
        row = "-" if record.row is None else str(record.row)
        expected = _numbers(record.expected) if record.expected is not None else ""
        cells = (f"{site.name}{place}", row, str(record.workgroup), str(record.invocation))
        table.add_row(*(escaped_line(cell, style) for cell in (*cells, _numbers(record.values), expected)))
    more = trace.count - min(len(trace.records), _RECORDS)
    note = f"{more} more of {trace.count} records" if more else counted(trace.count, "record")
    lost = trace.count - len(trace.records)
    yield Group(table, Text(note + (f", {lost} of them not kept: filter them" if lost else ""), "dim"))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.9g}" for value in values)


def _times(attempt: AttemptState) -> Iterator[RenderableType]:
    """Yield one line per time. A narrow console keeps the names and medians."""
    order = ("attempt", "previous", "best", "copy")
    own = attempt.time
    shown = sorted(attempt.times, key=lambda one: order.index(one.name))
    timed = [one for one in shown if one.result.timed]
    if timed:
        yield FittedTable(_time_columns(timed, own.median_ns if own is not None and own.timed else None))
    for one in shown:
        result = one.result
        if not result.timed:
            yield escaped_line(f"{one.name}, {result.kernel}: {result.reason or result.status}", "red")
    if own is not None:
        yield escaped_line(f"timed on {own.problem}", "dim")


def _time_columns(timed: Sequence[LiveTime], own_ns: float | None) -> list[Column]:
    def cells(text_of: Callable[[LiveTime], str]) -> list[Text]:
        return [escaped_line(text_of(one), "bold" if one.name == "attempt" else "") for one in timed]

    def kernel(one: LiveTime) -> str:
        flags = one.result.flags if one.proved else ()
        return one.result.kernel + (f" ({', '.join(flags)})" if flags else "")

    def ratio(one: LiveTime) -> str:
        return f"{(one.result.median_ns or 0.0) / own_ns:.2f}" if own_ns else NOTHING

    medians = cells(lambda one: f"{'' if one.proved else '~'}{time_text(one.result.median_ns)}")
    rates = cells(lambda one: f"{one.result.gbps:.4g}" if one.result.gbps else NOTHING)
    shares = cells(lambda one: percent_text(one.result.percent_of_copy))
    return [
        Column("time", cells(lambda one: one.name)),
        Column("kernel", cells(kernel), name=True),
        Column("median", medians, right=True),
        Column("GB/s", rates, right=True, rank=1),
        Column("% of copy", shares, right=True, rank=3),
        Column("x attempt", cells(ratio), right=True, rank=2),
    ]


def _counts(attempt: AttemptState) -> Iterator[RenderableType]:
    cost = attempt.cost
    if cost is None:
        return
    parts = {
        "reads of rows": cost.row_reads,
        "of parameters": cost.parameter_reads,
        "writes": cost.writes,
        "barriers": cost.barriers,
        "subgroup operations": cost.subgroup_operations,
    }
    counts = (f"{name} {'not counted' if value is None else f'{value:.3g}'}" for name, value in parts.items())
    yield Text(f"per element and row: {', '.join(counts)}; workgroup memory {cost.workgroup_bytes} bytes")


def _corpus(attempt: AttemptState) -> Iterator[RenderableType]:
    corpus = attempt.corpus
    if corpus is None:
        return
    text = Text(f"corpus: {corpus.done - corpus.skipped} of {corpus.of} tried")
    if corpus.wrong:
        text.append(f", {corpus.wrong} wrong", "bold red")
    if corpus.expected:
        text.append(f", {corpus.expected} wrong as expected", "dim")
    if corpus.skipped:
        text.append(f", {corpus.skipped} refused", "dim")
    yield Group(
        text, *(escaped_line(f"  {one['case']}: {one['reason']}", "red") for one in corpus.failed[:_MISTAKES])
    )


# The findings to show at the end of each stage.
_FOUND = {
    "verdict": _verdicts,
    "where": _where,
    "race": _why,
    "time": _times,
    "trace": _traced,
    "cost": _counts,
    "corpus": _corpus,
}


def _history(now: Snapshot) -> Iterator[RenderableType]:
    if len(now.history) < 2:
        return
    parts = [Text("attempts:", "dim")]
    for one in now.history[-_ATTEMPTS:]:
        time = f" {time_text(one.median_ns)}" if one.median_ns is not None else ""
        parts.append(Text(f"{one.number} {one.status}{time}", _ENDS.get(one.status, "red")))
    yield _Flow(parts)
