"""Markdown tables of the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def row(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def head(corner: str, columns: Sequence[str]) -> list[str]:
    """Return the first two lines of a table of numbers, whose first column `corner` has names."""
    return [f"| {corner}".rstrip() + f" {row(columns)}", f"|---|{'---:|' * len(columns)}"]
