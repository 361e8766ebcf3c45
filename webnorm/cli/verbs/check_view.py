"""What `check` shows: a line for each kernel, more of those that are wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.cli.work.compile_errors import compile_error_location
from webnorm.lab.results import tables
from webnorm.lab.results.ranking import by_kernel, verdict
from webnorm.lab.results.result import Result
from webnorm.op.registry import OPS

_INDENT = "  "
# Names of cases in a line.
_MOST_CASES = 6


@dataclass(frozen=True)
class CheckTable:
    """One line per op and kernel: how many cases passed, failed, and failed as an unstable kernel has to, and
    the greatest error.

    Below the line of a kernel that failed, and of every one if `verbose`, stands its worst case: an
    unexpected failure if there is one, else the greatest error, of those in float32 if there are any. What
    never gave an answer is told last, but for mistakes in files (see mistakes.py). Errors are relative to
    max(1, |expected|).
    """

    results: Sequence[Result]
    verbose: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kernels = by_kernel(self.results)
        strips = fitting_columns(_strips(list(kernels.values())), options.max_width, gap=2)
        heading, *rows = table_lines(strips, options.max_width, gap=2)
        yield heading
        previous = None
        for ((op, _), members), row in zip(kernels.items(), rows, strict=True):
            if op != previous:
                yield escaped_line(op, "bold")
                previous = op
            yield row
            yield from _more(members, self.verbose)
        told = [
            one
            for one in self.results
            if one.status in ("error", "skip") and compile_error_location(one) is None
        ]
        yield from map(escaped_line, tables.notes(told))


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
        # Some kernels have nothing else: it stays, and is short so that names do, too.
        numbers("unstable", STYLES["expected failure"], "expected failure"),
        numbers("skip", STYLES["skip"], "skip", rank=1),
    ]
    return [
        Column("kernel", names, name=True),
        numbers("pass", STYLES["pass"], "pass"),
        numbers("FAIL", STYLES["FAIL"], "FAIL", "error"),
        # A column of nothing but dashes tells nothing.
        *(strip for strip in optional if any(cell.plain != tables.NOTHING for cell in strip.cells)),
        Column("max rel error", errors, right=True, rank=2),
    ]


def _more(members: Sequence[Result], verbose: bool) -> Iterator[RenderableType]:
    """The worst case: what is wrong there, or which element is nearest to its tolerance; then the names of
    the others that fail.
    """
    worst = _worst(members)
    if worst is None or not (verbose or verdict(worst) == "FAIL"):
        return
    constants = tables.constants_text(worst.constants)
    told = worst.reason if worst.status == "fail" else worst.worst
    case = ", ".join(filter(None, (_case(worst), worst.problem.dtype if worst.case else "", constants)))
    yield _below(f"worst: {case}" + (f": {told}" if told else ""))
    # A case has several results where constants or storage types vary: each name appears once.
    failed = dict.fromkeys(_case(one) for one in members if verdict(one) == "FAIL")
    if others := [name for name in failed if name != _case(worst)]:
        more = f" and {len(others) - _MOST_CASES} more" if len(others) > _MOST_CASES else ""
        yield _below(f"also wrong: {', '.join(others[:_MOST_CASES])}{more}")


def _below(text: str) -> RenderableType:
    """What belongs to the kernel above it."""
    return Padding(escaped_line(text, "dim"), (0, 0, 0, 2 * len(_INDENT)), expand=False)


def _case(result: Result) -> str:
    return result.case or str(result.problem)


def _worst(members: Sequence[Result]) -> Result | None:
    """None where nothing ran."""
    found = max(members, key=_badness)
    return found if found.status in ("pass", "fail") else None


def _badness(result: Result) -> tuple[int, bool, float]:
    """Unexpected failures first, then the largest error; what never ran has none.

    Rounding to a narrow type would hide the kernel's own error: results in float32 go before the others.
    """
    grave = {"FAIL": 2, "pass": 1, "expected failure": 1}.get(verdict(result), 0)
    error = result.max_rel_error
    # NaN compares with nothing, so max() would pass over it or keep it by accident.
    # Results may be of an op that is not loaded here.
    op = OPS.get(result.op)
    dtype = op.outputs(result.problem)[0].dtype(result.problem) if op else result.problem.dtype
    return grave, dtype == "float32", -1.0 if error is None else math.inf if math.isnan(error) else error
