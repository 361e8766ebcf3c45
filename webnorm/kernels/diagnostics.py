"""Reading naga's error reports: which line of the shader is meant, and what is wrong with it."""

from __future__ import annotations

import re

# naga draws the source: "12 │ text" for a line, and below it "   │   ^^^ label" for what it means.
_SOURCE_LINE = re.compile(r"^\s*(\d+) │")
_MARK = re.compile(r"^\s*│.*\^+ ?(.*)$")
_PLACE = re.compile(r"┌─ (?:wgsl)?:(\d+):\d+")
_HEADLINE = re.compile(r"^(?:Shader '.*?' parsing error: |Shader validation error: )(.+)$")
_NOTE = re.compile(r"^\s*= (.+)$")


def read_report(report: str) -> tuple[int | None, str]:
    """The line of the shader, from 1, and the complaint in one sentence.

    A parse error marks one place. A validation error names the function and marks several places in it; the
    one with words of its own is meant, else the last that is not the whole function.
    """
    line: int | None = None
    current: int | None = None
    headline, notes = "", []
    best = -1
    for text in report.splitlines():
        if match := _PLACE.search(text):
            line = line or int(match[1])
        elif match := _SOURCE_LINE.match(text):
            current = int(match[1])
        elif match := _MARK.match(text):
            label = match[1]
            rank = 0 if "ir::Function" in label else 1 if "naga::" in label else 2
            if current is not None and rank >= max(best, 1):
                line, best = current, rank
        elif match := _HEADLINE.match(text.strip()):
            headline = match[1]
        elif match := _NOTE.match(text):
            notes.append(match[1])
    if notes and headline:
        return line, f"{headline}: {'; '.join(notes)}"
    return line, headline or "; ".join(part.strip() for part in report.splitlines() if part.strip())
