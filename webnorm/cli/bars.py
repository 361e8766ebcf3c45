"""GB/s as horizontal bars, drawn in characters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from webnorm.cli.screen import plain
from webnorm.errors import one_line
from webnorm.lab.ranking import best, by_kernel, by_problem
from webnorm.lab.results import MOST_GBPS, Result


def bar_chart(results: Sequence[Result]) -> RenderableType:
    """GB/s as horizontal bars: a line for each kernel's best variant, and the best copy as the roofline."""
    return _BarChart(results)


class _BarChart:
    """Drawn when the console's width and encoding are known."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.groups = by_problem(results)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        many = len(self.groups) > 1
        for title, members in self.groups:
            if many:
                yield plain(title, "bold")
            yield from _bars(members, options.max_width, options.ascii_only)


def _bars(results: Sequence[Result], width: int, ascii_only: bool) -> list[Text]:
    others = any(not result.roofline for result in results)
    kernels = by_kernel(results).values()
    winners = [winner for members in kernels if (winner := best(members)) and _gbps(winner) > 0]
    if not winners:
        return [Text("no kernel was timed", "dim")]
    roofline = best([winner for winner in winners if winner.roofline]) if others else None
    lines = [winner for winner in winners if roofline is None or not winner.roofline]
    lines.sort(key=lambda winner: -_gbps(winner))
    if roofline:
        lines.insert(0, roofline)

    full = max(map(_gbps, lines))
    shown = [one_line(line.kernel) for line in lines]
    names = max(map(cell_len, shown))
    labels = [
        f"{_gbps(line):.4g} GB/s" + (f" {100 * _gbps(line) / _gbps(roofline):4.0f} %" if roofline else "")
        for line in lines
    ]
    room = max(8, width - names - max(map(len, labels)) - 3)
    block, mark = ("#", "|") if ascii_only else ("█", "│")
    at = max(0, round(room * _gbps(roofline) / full) - 1) if roofline else None
    drawn = []
    for line, name, label in zip(lines, shown, labels, strict=True):
        filled = max(1, round(room * _gbps(line) / full))
        cells = [block] * filled + [" "] * (room - filled)
        if at is not None:
            cells[at] = mark
        colour = "bright_black" if line is roofline else "cyan"
        text = Text(no_wrap=True, overflow="crop")
        text.append(f"{name}{' ' * (names - cell_len(name))} ").append("".join(cells), colour)
        if at is not None:
            mark_at = len(text) - room + at
            text.stylize("bold", mark_at, mark_at + 1)
        drawn.append(text.append(f" {label}"))
    if at is not None:
        foot = f"copy = 100 % {mark}".rjust(names + 2 + at)
        drawn.append(Text(foot, "bold", no_wrap=True, overflow="crop"))
    return drawn


def _gbps(result: Result) -> float:
    """GB/s of a timed result, or 0 for what is no rate: a NaN would make every bar a NaN."""
    return result.gbps if result.gbps is not None and 0 < result.gbps < MOST_GBPS else 0.0
