"""Conversion of text to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def plain(text: str) -> str:
    """Escape Markdown in a text, except between backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if at % 2 else re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", part) for at, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Return text as code, also valid in a cell of a table."""
    return f"`{text}`".replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def paragraphs(text: str) -> str:
    """Return a docstring's paragraphs as Markdown."""
    return "\n\n".join(plain(" ".join(part.split())) for part in re.split(r"\n\s*\n", text.strip()))
