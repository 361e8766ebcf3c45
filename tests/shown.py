"""The text that a terminal displays."""

from __future__ import annotations

import io
import unicodedata

from rich.console import Console, RenderableType


def text(
    renderable: RenderableType, width: int = 80, *, encoding: str = "utf-8", colour: bool = False
) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=False,
    )
    console.print(renderable)
    out.flush()
    out.seek(0)
    return out.read()


def line_of(shown: str, word: str) -> str:
    return next(line for line in shown.splitlines() if word in line)


def fit(text: str) -> bool:
    """Return True if a terminal displays the text unchanged."""
    return not any(
        unicodedata.category(one) in ("Cc", "Cs") or unicodedata.bidirectional(one) in _TURNS for one in text
    )


_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
