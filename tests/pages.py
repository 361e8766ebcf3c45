"""The documents' pages and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md")
_BLOCK = re.compile(r"(?:<!-- (?P<marker>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.S)


def blocks(page: Path, *languages: str) -> list[str]:
    """A page's blocks of some languages, less those that a visible marker exempts."""
    return [text for language, text in steps(page, *languages)]


def steps(page: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """The same, each with its language."""
    for match in _BLOCK.finditer(page.read_text()):
        exempt = (match["marker"] or "").startswith("not run by the tests")
        if match["language"] in languages and not exempt:
            yield match["language"], match["text"]


def edit(diff: str, folder: Path) -> None:
    """Make the change of a unified diff whose hunks have no line numbers."""
    head, *hunks = re.split(r"^@@.*\n", diff, flags=re.M)
    path = folder / head.splitlines()[0].removeprefix("--- ")
    text = path.read_text()
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] != other) for other in "+-")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)
