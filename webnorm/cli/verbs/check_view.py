"""The table of `check`: one line per kernel, and more lines for wrong kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from webnorm.cli.terminal.columns import Column, grouped_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.cli.work.compile_errors import compile_error_location
from webnorm.lab.results import tables
from webnorm.lab.results.ranking import by_kernel, verdict
from webnorm.lab.results.result import Result
from webnorm.op.registry import OPS

_INDENT = "  "
# The most names of cases in a line.
_MOST_CASES = 6


@dataclass(frozen=True)
class CheckTable:
    """One line per op and kernel: the cases that passed, failed and failed as expected, and the largest
    error.

    The worst case is below the line of a wrong kernel, and below every line if `verbose`. It is an unexpected
    failure, or else the case with the largest error, in float32 if there are float32 results. Results
    without an answer come last, except compile errors (see compile_errors.py). Errors are relative to max(1,
    |expected|).
    """

    results: Sequence[Result]
    verbose: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kernels = by_kernel(self.results)
        strips, ops = _strips(list(kernels.values())), [op for op, _ in kernels]
        heading, rows = grouped_lines(strips, ops, options.max_width, gap=2)
        yield heading
        for members, lines in zip(kernels.values(), rows, strict=True):
            yield from lines
            yield from _more(members, self.verbose)
        without_answer = [
            one
            for one in self.results
            if one.status in ("error", "skip") and compile_error_location(one) is None
        ]
        yield from map(escaped_line, tables.notes(without_answer))


def _strips(kernels: Sequence[Sequence[Result]]) -> list[Column]:
    counts = [Counter(map(verdict, members)) for members in kernels]
    names = [escaped_line(f"{_INDENT}{members[0].kernel}") for members in kernels]
    worst = [_worst(members) for members in kernels]
    errors = [Text(tables.NOTHING if one is None else tables.error_text(one.max_rel_error)) for one in worst]

    def numbers(heading: str, style: str, *verdicts: str, rank: int | None = None) -> Column:
        found = [sum(count[verdict] for verdict in verdicts) for count in counts]
        cells = [Text(str(number or tables.NOTHING), style if number else "dim") for number in found]
        return Column(heading, cells, right=True, rank=rank)

    optional = [
        # No rank, because some kernels have only unstable cases. The heading is short, to leave room for
        # names.
        numbers("unstable", STYLES["expected failure"], "expected failure"),
        numbers("skip", STYLES["skip"], "skip", rank=1),
    ]
    return [
        Column("kernel", names, name=True),
        numbers("pass", STYLES["pass"], "pass"),
        numbers("FAIL", STYLES["FAIL"], "FAIL", "error"),
        # A column that contains only dashes is left out.
        *(strip for strip in optional if any(cell.plain != tables.NOTHING for cell in strip.cells)),
        Column("max rel error", errors, right=True, rank=2),
    ]


def _more(members: Sequence[Result], verbose: bool) -> Iterator[RenderableType]:
    """Yield the worst case with its error, and the names of the other wrong cases.

    A correct case shows the element that is nearest to its tolerance.
    """
    worst = _worst(members)
    if worst is None or not (verbose or verdict(worst) == "FAIL"):
        return
    constants = tables.constants_text(worst.constants)
    detail = worst.reason if worst.status == "fail" else worst.worst
    case = ", ".join(filter(None, (_case(worst), worst.problem.dtype if worst.case else "", constants)))
    yield _below(f"worst: {case}" + (f": {detail}" if detail else ""))
    # A case has several results where constants or storage types vary: each name appears once.
    failed = dict.fromkeys(_case(one) for one in members if verdict(one) == "FAIL")
    if others := [name for name in failed if name != _case(worst)]:
        more = f" and {len(others) - _MOST_CASES} more" if len(others) > _MOST_CASES else ""
        yield _below(f"also wrong: {', '.join(others[:_MOST_CASES])}{more}")


def _below(text: str) -> RenderableType:
    """Return a line that belongs to the kernel above it."""
    return Padding(escaped_line(text, "dim"), (0, 0, 0, 2 * len(_INDENT)), expand=False)


def _case(result: Result) -> str:
    return result.case or str(result.problem)


def _worst(members: Sequence[Result]) -> Result | None:
    """Return the worst result, or None if no case ran."""
    found = max(members, key=_badness)
    return found if found.status in ("pass", "fail") else None


def _badness(result: Result) -> tuple[int, bool, float]:
    """Return the sort key of a result: unexpected failures, then float32, then the largest error.

    float32 goes before other types, because rounding to a narrow type hides the kernel's own error.
    """
    severity = {"FAIL": 2, "pass": 1, "expected failure": 1}.get(verdict(result), 0)
    error = result.max_rel_error
    # max() would skip or keep a NaN by accident, so NaN counts as infinity. The op of a result may not be
    # loaded.
    op = OPS.get(result.op)
    dtype = op.outputs(result.problem)[0].dtype(result.problem) if op else result.problem.dtype
    return severity, dtype == "float32", -1.0 if error is None else math.inf if math.isnan(error) else error
