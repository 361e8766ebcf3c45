"""Markdown pages and tables of the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from webnorm.files.atomic import write_text


def row(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def head(corner: str, columns: Sequence[str]) -> list[str]:
    """Return the first two lines of a table of numbers, whose first column `corner` has names."""
    return [f"| {corner}".rstrip() + f" {row(columns)}", f"|---|{'---:|' * len(columns)}"]


class GrowingReport:
    """A page that is printed line by line, and written to files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._lines = paths, list[str]()

    def add(self, *lines: str) -> None:
        """Print lines, and write the files anew, so that an interrupted run keeps its results."""
        print(*lines, sep="\n", flush=True)
        self._lines += lines
        for path in self._paths:
            write_text(path, "\n".join(self._lines) + "\n")
