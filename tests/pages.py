"""The documents' pages and the examples in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?:<!-- (?P<marker>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.S)


def blocks(page: Path, language: str) -> list[str]:
    """A page's blocks of a language, less those that a visible marker exempts."""
    found = _BLOCK.finditer(page.read_text())
    return [
        match["text"]
        for match in found
        if match["language"] == language and not (match["marker"] or "").startswith("not run by the tests")
    ]


def example(folder: Path) -> None:
    """Save the worked example of docs/add-a-kernel.md where it says."""
    page = ROOT / "docs" / "add-a-kernel.md"
    match = re.search(r"Save this as `([\w/.]+)`", page.read_text())
    assert match
    (text,) = blocks(page, "wgsl")
    path = folder / match[1]
    path.parent.mkdir(parents=True)
    path.write_text(text)
