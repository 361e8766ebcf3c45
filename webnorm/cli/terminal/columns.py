"""Tables with one line per row at any width: the least important columns are dropped first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.terminal.screen import escaped_line

_HEADING = "bold"


@dataclass(frozen=True)
class Column:
    """A column: its heading, and a cell for each row.

    On a narrow screen columns are dropped in the order of `rank`, the lowest first. A column without a rank
    stays. Cells of a `name` column are cut short if the line is still too wide.
    """

    heading: str
    cells: Sequence[Text]
    right: bool = False
    rank: int | None = None
    name: bool = False

    @property
    def width(self) -> int:
        """The width in cells of a terminal."""
        return max(cell_len(self.heading), *(cell.cell_len for cell in self.cells), 0)


@dataclass(frozen=True)
class FittedTable:
    """A table that shows as many of its columns as fit the console."""

    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from table_lines(fitting_columns(self.columns, width, gap=2), width, gap=2)


def fitting_columns(columns: Sequence[Column], width: int, gap: int = 1) -> list[Column]:
    """Return the columns that fit next to each other."""
    kept = list(columns)
    while natural_width(kept, gap) > width:
        optional = [column for column in kept if column.rank is not None]
        if not optional:
            break
        kept.remove(min(optional, key=lambda column: column.rank or 0))
    return kept


def natural_width(columns: Sequence[Column], gap: int = 1) -> int:
    """Return the width of a line with all columns."""
    return sum(column.width for column in columns) + gap * max(0, len(columns) - 1)


def table_lines(columns: Sequence[Column], width: int, gap: int = 1) -> list[Text]:
    """Return the headings, if there are any, and the rows. Names are cut short so that lines fit `width`."""
    over = natural_width(columns, gap) - width
    widths = [max(1, one.width - max(0, over)) if one.name else one.width for one in columns]
    rows = list(zip(*(column.cells for column in columns), strict=True))
    headings = [Text(column.heading, _HEADING) for column in columns]
    if any(column.heading for column in columns):
        rows.insert(0, tuple(headings))
    return [_line(columns, widths, row, gap) for row in rows]


def grouped_lines(
    columns: Sequence[Column], groups: Sequence[str], width: int, gap: int = 1
) -> tuple[Text, list[list[Text]]]:
    """Return the line of headings, and the lines of each row: the name of a group precedes its first row.

    `groups` has the group of each row. Columns are left out until the rest fits `width`.
    """
    heading, *rows = table_lines(fitting_columns(columns, width, gap), width, gap)
    lines, previous = list[list[Text]](), None
    for group, row in zip(groups, rows, strict=True):
        lines.append([row] if group == previous else [escaped_line(group, "bold"), row])
        previous = group
    return heading, lines


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Text], gap: int) -> Text:
    cells = [cell.copy() for cell in row]
    for column, width, cell in zip(columns, widths, cells, strict=True):
        cell.truncate(width, overflow="ellipsis")
        cell.align("right" if column.right else "left", width)
    line = Text(" " * gap, no_wrap=True, overflow="ignore").join(cells)
    line.rstrip()
    return line
