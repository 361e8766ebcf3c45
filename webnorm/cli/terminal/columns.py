"""Lines of cells under headings, one line a row whatever the width: what matters least is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_HEADING = "bold"


@dataclass(frozen=True)
class Column:
    """A column: its heading, and a cell for each row. On a narrow screen strips go in the order of `rank`,
    the lowest first; None stays, and a `name` is cut short before a line would be.
    """

    heading: str
    cells: Sequence[Text]
    right: bool = False
    rank: int | None = None
    name: bool = False

    @property
    def width(self) -> int:
        """In cells of a terminal."""
        return max(cell_len(self.heading), *(cell.cell_len for cell in self.cells), 0)


@dataclass(frozen=True)
class FittedTable:
    """Columns. A console shows as many as fit side by side."""

    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from table_lines(fitting_columns(self.columns, width, gap=2), width, gap=2)


def fitting_columns(strips: Sequence[Column], width: int, gap: int = 1) -> list[Column]:
    """Those that have room side by side."""
    kept = list(strips)
    while natural_width(kept, gap) > width:
        less = [strip for strip in kept if strip.rank is not None]
        if not less:
            break
        kept.remove(min(less, key=lambda strip: strip.rank or 0))
    return kept


def natural_width(strips: Sequence[Column], gap: int = 1) -> int:
    """How wide lines of strips are."""
    return sum(strip.width for strip in strips) + gap * max(0, len(strips) - 1)


def table_lines(strips: Sequence[Column], width: int, gap: int = 1) -> list[Text]:
    """The headings, where there are any, and the rows; no line is wider than `width` where names can give
    way.
    """
    over = natural_width(strips, gap) - width
    widths = [max(1, one.width - max(0, over)) if one.name else one.width for one in strips]
    rows = list(zip(*(strip.cells for strip in strips), strict=True))
    headings = [Text(strip.heading, _HEADING) for strip in strips]
    if any(strip.heading for strip in strips):
        rows.insert(0, tuple(headings))
    return [_line(strips, widths, row, gap) for row in rows]


def _line(strips: Sequence[Column], widths: Sequence[int], row: Sequence[Text], gap: int) -> Text:
    cells = [cell.copy() for cell in row]
    for strip, width, cell in zip(strips, widths, cells, strict=True):
        cell.truncate(width, overflow="ellipsis")
        cell.align("right" if strip.right else "left", width)
    line = Text(" " * gap, no_wrap=True, overflow="ignore").join(cells)
    line.rstrip()
    return line
