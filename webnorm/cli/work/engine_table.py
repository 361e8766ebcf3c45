"""The table of a check in several engines: kernels by engines, and the reasons below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, grouped_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.lab.results.ranking import by_kernel, verdict
from webnorm.lab.results.result import Result

_INDENT = "  "
# The most reasons of a kernel in an engine that the table lists.
_MOST_REASONS = 2


@dataclass(frozen=True)
class EngineTable:
    """One line per op and kernel, with its verdict in each engine; then the reasons, by kernel and engine."""

    found: Mapping[str, Sequence[Result]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        members = {engine: by_kernel(results) for engine, results in self.found.items()}
        kernels = list(dict.fromkeys(key for own in members.values() for key in own))
        names = [escaped_line(f"{_INDENT}{name}") for _, name in kernels]
        columns = [
            Column("kernel", names, name=True),
            *(
                Column(engine, [_cell(own.get(key, ())) for key in kernels])
                for engine, own in members.items()
            ),
        ]
        heading, rows = grouped_lines(columns, [op for op, _ in kernels], options.max_width, gap=2)
        yield heading
        for lines in rows:
            yield from lines
        for key in kernels:
            for engine, own in members.items():
                yield from _reasons(key, engine, own.get(key, ()))


def _cell(results: Sequence[Result]) -> Text:
    """Return a kernel's verdict in one engine."""
    counts = Counter(map(verdict, results))
    wrong = counts["FAIL"] + counts["error"]
    if wrong:
        said = "FAIL" if counts["FAIL"] else "error"
        return Text(f"{said} {wrong}/{len(results) - counts['skip']}", STYLES["FAIL"])
    found = next((one for one in ("pass", "expected failure", "skip") if counts[one]), None)
    return Text(
        {"expected failure": "unstable"}.get(found or "", found or "-"), STYLES.get(found or "", "dim")
    )


def _reasons(key: tuple[str, str], engine: str, results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yield a line for each reason why a kernel is wrong in an engine, or was not run there at all."""
    wrong = [one for one in results if verdict(one) in ("FAIL", "error")]
    checked = any(verdict(one) in ("pass", "expected failure") for one in results)
    shown = wrong or ([] if checked else results)
    reasons: dict[str, Result] = {}
    for one in shown:
        reasons.setdefault(one.reason or "", one)
    for reason, one in [*reasons.items()][:_MOST_REASONS]:
        case = f", {one.case}" if one.case else ""
        yield escaped_line(f"{key[0]}/{key[1]} in {engine}{case}: {reason}", "" if wrong else "dim")
    if len(reasons) > _MOST_REASONS:
        more = len(reasons) - _MOST_REASONS
        yield escaped_line(f"{key[0]}/{key[1]} in {engine}: {more} more reasons; --json lists them", "dim")
