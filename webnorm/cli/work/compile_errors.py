"""Mistakes in kernels' files, as compilers tell them: editors find the place, and people see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

from webnorm.cli.terminal.screen import escaped_line
from webnorm.errors import SourceLocation, one_line
from webnorm.files import atomic
from webnorm.lab.results.result import Result

# What a message begins with that has no more than a line.
_LINE = re.compile(r"(.+\.wgsl):(\d{1,9}): ", re.IGNORECASE)
_INDENT = "  "
# Characters of a quoted line: a longer one would fill the screen.
_MOST = 200
_TAB_WIDTH = 4


def compile_error_location(result: Result) -> SourceLocation | None:
    """Where a file has the mistake for which a result is an error; None where it is no file's."""
    if result.status != "error" or result.place is not None:
        return result.place
    found = _LINE.match(result.reason or "")
    return SourceLocation(found[1], int(found[2])) if found else None


def compile_error_lines(results: Iterable[Result]) -> list[Text]:
    """Each mistake once, as `file:line:column: error: what`, with the line of the file and a caret below.

    Of several complaints about a place one is told: the compiler's numbers of expressions differ from shape
    to shape.
    """
    found: dict[SourceLocation, Result] = {}
    for result in results:
        if place := compile_error_location(result):
            found.setdefault(place, result)
    return [_message(place, result) for place, result in found.items()]


def _message(place: SourceLocation, result: Result) -> Text:
    source = _source(place)
    what = (result.reason or "").removeprefix(f"{place.file}:{place.line}: ")
    if source is not None:
        # The message quotes the line, which stands below it.
        what = what.removesuffix(f": {source.strip()}")
    known = result.place is not None
    if Path(place.file).stem != result.kernel:
        # What it includes is read together with it: a mistake just before shows there.
        what += f" (in the text of {result.kernel})"
    where = str(place) if known else f"{place.file}:{place.line}"
    text = escaped_line(f"{where}: ", "bold").append("error: ", "bold red").append(one_line(what))
    if source is not None:
        text.append(f"\n{_INDENT}{source_line(source)}")
        if known:
            text.append(f"\n{_INDENT}{caret_line(source, place.column, place.length)}", "bold green")
    return text


def _source(place: SourceLocation) -> str | None:
    """The line of the file, if that is still there."""
    try:
        lines: Sequence[str] = atomic.read_bytes(Path(place.file)).decode("utf-8-sig", "replace").splitlines()
    except OSError:
        return None
    return lines[place.line - 1][:_MOST] if 0 < place.line <= len(lines) else None


def source_line(source: str) -> str:
    """Return a line of a file as messages quote it: tabs are spaces, control characters are escapes."""
    return one_line(source.expandtabs(_TAB_WIDTH))


def caret_line(source: str, column: int, length: int) -> str:
    """Return carets that mark `length` characters of a quoted line from `column` on, which counts from 1."""
    return " " * cell_len(source_line(source[: column - 1])) + "^" * max(1, min(length, _MOST))
