"""What `compare` shows: what the copies did, then a line for each pair of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.grid import Strip, fitting, lines
from webnorm.cli.screen import STYLES, plain
from webnorm.lab import changes
from webnorm.lab.compare import Comparison, Verdicts

_INDENT = "  "


@dataclass(frozen=True)
class CompareTable:
    """What the copies did, then for each problem a line per kernel: the ratio (above 1 is slower), its
    interval, the verdict; below them what the figures are, and why some are unclear.
    """

    verdicts: Verdicts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self.verdicts.comparisons
        yield plain(changes.drift_text(self.verdicts.drift), "bold")
        if found:
            yield from _lines(found, options.max_width)
            yield plain(changes.counts_text(found), "bold")
        yield Text(
            "ratio: new time over old, as multiples of the copy's in the same rounds; above 1 is slower; "
            "with 95 % confidence all intervals hold"
        )
        yield from map(plain, (*self.verdicts.remarks, *changes.reasons(found)))
        yield from (plain(line, "bold") for line in changes.advice(self.verdicts))


def _lines(found: Sequence[Comparison], width: int) -> Iterator[Text]:
    """One grid, so that all problems' columns stand below one another; their titles go between."""
    name = changes.naming(found)
    strips = [
        Strip("kernel", [plain(_INDENT + name(one)) for one in found], name=True),
        Strip("ratio", [Text(changes.ratio_text(one.ratio)) for one in found], right=True),
        Strip("interval", [Text(changes.interval_text(one)) for one in found], right=True, rank=1),
        Strip("", [Text(one.verdict, STYLES.get(one.verdict, "dim")) for one in found]),
    ]
    heading, *rows = lines(fitting(strips, width, gap=2), width, gap=2)
    yield heading
    before = None
    for one, row in zip(found, rows, strict=True):
        problem = changes.problem_text(one)
        if problem != before:
            yield plain(problem)
        before = problem
        yield row
