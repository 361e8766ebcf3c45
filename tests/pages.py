"""The pages of the documentation, and the examples in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md")
_PROMPT = "$ "
_NUMBER = r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?"
_BLOCK = re.compile(r"(?:<!-- (?P<marker>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.S)


def blocks(page: Path, *languages: str) -> list[str]:
    """Return a page's blocks in some languages, except for blocks after a visible marker."""
    return [text for language, text in steps(page, *languages)]


def steps(page: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """Yield a page's blocks in some languages, each with its language, in the page's order."""
    for match in _BLOCK.finditer(page.read_text()):
        exempt = (match["marker"] or "").startswith("not run by the tests")
        if match["language"] in languages and not exempt:
            yield match["language"], match["text"]


@dataclass(frozen=True)
class Command:
    """One command of a page, and the lines of its output that the page shows."""

    line: str
    output: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The program and its arguments, as a list."""
        return shlex.split(self.line, comments=True)


def transcript(text: str) -> list[Command]:
    """Return the commands of a console block.

    A block with prompts ("$ ") shows commands and their output; in a block without, every line is a command.
    """
    if not re.search(r"^\$ ", text, re.M):
        return [Command(line) for line in text.splitlines()]
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(_PROMPT):
            found.append((line.removeprefix(_PROMPT), []))
        else:
            found[-1][1].append(line)
    return [Command(line, tuple(output)) for line, output in found]


def commands(page: Path) -> list[Command]:
    """Return the commands of a page's console blocks."""
    return [command for text in blocks(page, "console") for command in transcript(text)]


def missing_lines(shown: Sequence[str], printed: str) -> list[str]:
    """Return the lines that a page shows and that a command did not print, in any order.

    "..." stands for any text. The comparison ignores numbers, units of time, ranks, bars and the notes after
    a verdict, because the speed of a machine decides them.
    """
    lines = [_normalized(line) for line in printed.splitlines()]
    patterns = {line: _pattern(line) for line in shown if line.strip(" .")}
    return [line for line, pattern in patterns.items() if not any(map(pattern.fullmatch, lines))]


def _normalized(line: str) -> str:
    line = re.sub(r"[▏▎▍▌▋▊▉█]+", " ", line)
    line = re.sub(rf"^ *{_NUMBER}=? ", "", line)
    line = re.sub(r"\b[nuµm]s\b", "s", line)
    # In the summary matrix, a star marks the fastest kernel.
    line = re.sub(r"(?<=\d)\*(?= |$)", "", line)
    line = re.sub(r"\b(pass|FAIL)\b.*", r"\1", line)
    line = re.sub(r"^(auto picks [^:]*:).*", r"\1", line)
    return " ".join(line.split())


def _pattern(line: str) -> re.Pattern[str]:
    pieces = re.split(rf"(\.\.\.|{_NUMBER})", _normalized(line))
    kinds = (".*" if piece == "..." else _NUMBER for piece in pieces[1::2])
    texts = (re.escape(piece) for piece in pieces[::2])
    joined = "".join(text + kind for text, kind in zip(texts, (*kinds, ""), strict=True))
    return re.compile(joined)


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def edit(diff: str, folder: Path) -> None:
    """Apply a unified diff whose hunks have no line numbers."""
    head, *hunks = re.split(r"^@@.*\n", diff, flags=re.M)
    path = folder / head.splitlines()[0].removeprefix("--- ")
    # A page may show a new file.
    text = path.read_text() if path.exists() else ""
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] != other) for other in "+-")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)
