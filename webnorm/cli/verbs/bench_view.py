"""The tables of `bench`: one line per kernel of a problem, and one matrix of all problems.

Nothing here prints, and colour never carries the only meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, natural_width, table_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line, number_column
from webnorm.cli.work.compile_errors import compile_error_location
from webnorm.errors import one_line
from webnorm.lab.results import tables
from webnorm.lab.results.ranking import best, by_problem, leader, verdict
from webnorm.lab.results.result import MOST_GBPS, Result
from webnorm.op.problem import Problem

# The order in which a narrow terminal drops columns, after the bars. The texts of the first column move below
# the lines.
_RANKS = {"timing": 1, "max abs error": 2, "GB/s": 3, "+-%": 4, "#": 5}
_HEADINGS = {"% of copy": "of copy", "max abs error": "error", "verdict": "", "timing": ""}
# Short forms of verdicts that are as wide as three columns. The reason below the table has the full form.
_BRIEFLY = {"expected failure": "unstable"}
# Shorter bars show no more than the number next to them, and longer bars are hard to relate to it.
_LEAST_BAR, _MOST_BAR = 6, 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_INDENT = 5
# Words for names of sizes.
_WORDS = {"cols": "columns"}


@dataclass(frozen=True)
class BenchTable:
    """The table of one problem: the best copy as the roofline, then kernels by time, failures last.

    Lines below the table give the timing method, the choice of auto, and reasons for failures and skips.
    Constants are shown if they differ from the `usual` ones, as in tables.problem_table.
    """

    results: Sequence[Result]
    title: str
    usual: tables.Defaults | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = tables.problem_table(self.results, self.usual)
        yield escaped_line(self.title, "bold")
        yield from _rows(shown, options.max_width, options.ascii_only)
        plainly = [result for result in self.results if compile_error_location(result) is None]
        yield from map(escaped_line, (*shown.remarks, *tables.notes(plainly, self.usual)))


def _rows(shown: tables.ProblemTable, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """Yield the lines of a table. Flags and constants are at the end of a line, or below it on a narrow
    terminal.

    They are never dropped, since a number without its flags would look too good.
    """
    columns = {column: _strip(shown, column) for column in shown.columns if column != "constants"}
    strips = fitting_columns([*columns.values()], width)
    texts_of_constants = [texts["constants"] for _, texts in shown.rows]
    constants = [escaped_line("" if text == tables.NOTHING else text, "dim") for text in texts_of_constants]
    behind = [Column("", constants)] if any(constants) else []
    inline = natural_width([*strips, *behind]) <= width
    room = min(_MOST_BAR, width - natural_width([*strips, *(behind if inline else [])]) - 1)
    shares = [at for at, strip in enumerate(strips) if strip.heading == _HEADINGS["% of copy"]]
    if shares and room >= _LEAST_BAR:
        results = [result for result, _ in shown.rows]
        strips.insert(shares[0] + 1, Column("", _bars(results, room, ascii_only)))
    heading, *rows = table_lines([*strips, *(behind if inline else [])], width)
    left_out = [strip.cells for name, strip in columns.items() if name == "timing" and strip not in strips]
    yield heading
    for row, *below in zip(rows, *left_out, *([] if inline else [constants]), strict=True):
        yield row
        for text in below:
            if text:
                yield Padding(text, (0, 0, 0, _INDENT), expand=False)


def _strip(shown: tables.ProblemTable, column: str) -> Column:
    cells = []
    for result, texts in shown.rows:
        text = texts[column]
        if column == "% of copy" and text != tables.NOTHING:
            text += " %"
        dim = result.status in ("skip", "error")
        style = "dim" if dim else "bold" if result.roofline and column == "kernel" else ""
        if column == "verdict":
            text, style = _BRIEFLY.get(text, text), STYLES[verdict(result)]
        cells.append(escaped_line(text, style))
    return Column(
        _HEADINGS.get(column, column),
        cells,
        right=column in tables.NUMERIC and column != "#",
        rank=_RANKS.get(column),
        name=column == "kernel",
    )


def _bars(results: Sequence[Result], width: int, ascii_only: bool) -> list[Text]:
    """Return bars of GB/s. The bar of the copy, or of a faster kernel, fills the width."""
    rates = [_gbps(result) for result in results]
    full = max(rates, default=0.0) or 1.0
    return [
        Text(_bar(width * rate / full, ascii_only), "bright_black" if result.roofline else "cyan")
        for rate, result in zip(rates, results, strict=True)
    ]


def _bar(cells: float, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(cells)
    whole, part = divmod(round(8 * cells), 8)
    return _EIGHTHS[-1] * whole + (_EIGHTHS[part] if part else "")


def _gbps(result: Result) -> float:
    """Return GB/s of a correct and timed result, else 0, since one NaN would make every bar NaN."""
    rate = result.gbps if result.timed else None
    return rate if rate is not None and 0 < rate < MOST_GBPS else 0.0


def outcome(results: Sequence[Result], title: str) -> Text:
    """Return the line for a problem: the fastest kernel with its flags, and the distance of auto's choice."""
    wrong = sum(verdict(result) in ("FAIL", "error") for result in results)
    winner = leader(results)
    said = [f"{title}: no kernel was timed"]
    if winner is not None:
        of_copy = tables.percent_text(winner.percent_of_copy)
        time = tables.time_text(winner.median_ns)
        said = [
            f"{title}: {winner.kernel} {time}, {of_copy} % of copy",
            *tables.auto_short(results),
            *winner.flags,
        ]
    return escaped_line("; ".join([*said, *([f"{wrong} FAIL"] if wrong else [])]))


@dataclass(frozen=True)
class ShareMatrix:
    """Matrices of kernels by shape: each kernel's best variant in percent of the copy, with the winners
    marked.

    The last line is the choice of auto. There is one matrix for each op, type and set of options with several
    shapes. It shows GB/s if no copy was timed.
    """

    results: Sequence[Result]

    @property
    def families(self) -> dict[tuple[str, Problem], list[list[Result]]]:
        """The results of each matrix, problem by problem, with the op and the common part of the problems."""
        families: dict[tuple[str, Problem], list[list[Result]]] = {}
        for _, members in by_problem(self.results):
            first = next((one for one in members if not one.roofline), members[0])
            family = replace(first.problem, **cast(Any, dict.fromkeys(first.problem.SIZES, 1)), seed=0)
            families.setdefault((first.op, family), []).append(members)
        # A matrix with one column would repeat the line of the problem.
        return {key: problems for key, problems in families.items() if len(problems) > 1}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for (op, family), problems in self.families.items():
            yield from _matrix(op, family, problems, options.max_width)


def _matrix(op: str, family: Problem, problems: Sequence[Sequence[Result]], width: int) -> Iterator[Text]:
    shapes = [next(one.problem for one in members if one.op == op) for members in problems]
    copied = any(one.percent_of_copy is not None for members in problems for one in members)
    said = "percent of the copy" if copied else "GB/s"
    same = next((name for name in family.SIZES if len({one.sizes[name] for one in shapes}) == 1), None)
    common = "" if same is None else f", {shapes[0].sizes[same]} {_WORDS.get(same, same)}"
    what = str(family).removeprefix(f"{family.shape_text} ")
    yield escaped_line(f"{op} {what}{common}: {said}, * is fastest", "bold")
    heads = ["x".join(str(size) for name, size in one.sizes.items() if name != same) for one in shapes]
    kernels = list(dict.fromkeys(one.kernel for members in problems for one in members if one.op == op))
    chosen = [any(one.auto for one in members) for members in problems]
    names = [*kernels, *(["auto"] if any(chosen) else [])]
    first = Column(
        "kernel", [escaped_line(name, "dim" if name == "auto" else "") for name in names], name=True
    )
    columns = [
        Column(head, _column(op, kernels, names, members, copied), right=True)
        for head, members in zip(heads, problems, strict=True)
    ]
    for block in _blocks(first, columns, width):
        yield from table_lines(block, width)
    if any(chosen) and not all(chosen):
        yield escaped_line(f"auto: {tables.NOTHING} means that its choice was not timed")


def _column(
    op: str, kernels: Sequence[str], names: Sequence[str], members: Sequence[Result], copied: bool
) -> list[Text]:
    """Return the cells of a shape: a percentage or GB/s, or the verdict if there is no time."""
    own = [one for one in members if one.op == op]
    winner = leader(members) or best(own)
    cells = []
    for name in names:
        several = [one for one in own if (one.auto if name not in kernels else one.kernel == name)]
        shown = winner if winner in several else best(several)
        if shown is None:
            said = verdict(several[0]) if several else ""
            cells.append(Text(_BRIEFLY.get(said, said) or tables.NOTHING, STYLES.get(said, "dim")))
            continue
        value = shown.percent_of_copy if copied else shown.gbps
        text = tables.percent_text(value) if copied else f"{value or math.nan:.4g}"
        won = shown is winner
        cells.append(Text(text + ("*" if won else " "), "bold green" if won else ""))
    return cells


def _blocks(first: Column, columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Yield the columns in blocks that fit the width, each with the names first."""
    block = [first]
    for column in columns:
        if len(block) > 1 and natural_width([*block, column]) > width:
            yield block
            block = [first]
        block.append(column)
    yield block


def profile_table(results: Sequence[Result], software: bool) -> RenderableType:
    """Return the table of --profile for the fastest result: upload, dispatch, download, and its first use."""
    result = next((result for result in results if result.upload_ns is not None), None)
    if result is None:
        return Text("nothing to profile: no kernel was both correct and timed", "dim")
    stages = (
        ("upload", result.upload_ns, result.upload_bytes),
        ("dispatch", result.median_ns, result.bytes),
        ("download", result.download_ns, result.download_bytes),
    )
    whole = sum(spent or 0.0 for _, spent, _ in stages)
    remarks = [
        f"first use: render {tables.time_text(result.render_ns)}, "
        f"compile {tables.time_text(result.compile_ns)}, pipeline {tables.time_text(result.pipeline_ns)}",
        "upload and download by wall clock, including the wait for the device; "
        f"dispatch by {result.timing_method}",
    ]
    if result.call_ns is not None:
        remarks.append(
            f"a blocking call from Python: {tables.time_text(result.resident_call_ns)} with GpuArrays, "
            f"{tables.time_text(result.call_ns)} with NumPy arrays"
        )
    if software:
        remarks.append("a software adapter: it uses CPU memory, so no data crosses a bus")
    headings = map(number_column, ("time", "MB", "GB/s", "% of total"))
    table = Table("stage", *headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    for stage, spent, size in stages:
        if spent and size is not None:
            rate, share = f"{size / spent:.4g}", tables.percent_text(100 * spent / whole if whole else None)
            table.add_row(stage, tables.time_text(spent), f"{size / 1e6:.4g}", rate, share)
    constants = one_line(f" {tables.constants_text(result.constants)}".rstrip())
    title = Text("time by stage of ").append(escaped_line(result.kernel)).append(constants, "dim")
    # Rich wraps a table's own title and caption at the width of the table.
    return Group(title, table, Text("\n".join(map(one_line, remarks))))
