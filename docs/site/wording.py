"""Text as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def plain(text: str) -> str:
    """Text that means nothing but itself, apart from what stands between backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if at % 2 else re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", part) for at, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Text as code, in a cell of a table, too."""
    return f"`{text}`".replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells in Markdown."""
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def paragraphs(text: str) -> str:
    """A docstring's paragraphs."""
    return "\n\n".join(plain(" ".join(part.split())) for part in re.split(r"\n\s*\n", text.strip()))
