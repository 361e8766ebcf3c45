"""Compile errors in kernel files, in the format of compilers, which editors can parse."""

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

# The beginning of a message that has a line number but no column.
_LINE = re.compile(r"(.+\.wgsl):(\d{1,9}): ", re.IGNORECASE)
_INDENT = "  "
# The most characters of a quoted line, since a longer one would fill the screen.
_MOST = 200
_TAB_WIDTH = 4


def compile_error_location(result: Result) -> SourceLocation | None:
    """Return the place of the error in a kernel file; None if the result has no error in a file."""
    if result.status != "error" or result.place is not None:
        return result.place
    found = _LINE.match(result.reason or "")
    return SourceLocation(found[1], int(found[2])) if found else None


def compile_error_lines(results: Iterable[Result]) -> list[Text]:
    """Return each error once, as `file:line:column: error: message`, with the source line and a caret below.

    Only one of several messages about a place is shown, since they differ only in the compiler's expression
    numbers.
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
        # The line is quoted below the message anyway.
        what = what.removesuffix(f": {source.strip()}")
    known = result.place is not None
    if Path(place.file).stem != result.kernel:
        # The compiler sees the included file as part of the kernel's text.
        what += f" (in the text of {result.kernel})"
    where = str(place) if known else f"{place.file}:{place.line}"
    text = escaped_line(f"{where}: ", "bold").append("error: ", "bold red").append(one_line(what))
    if source is not None:
        text.append(f"\n{_INDENT}{source_line(source)}")
        if known:
            text.append(f"\n{_INDENT}{caret_line(source, place.column, place.length)}", "bold green")
    return text


def _source(place: SourceLocation) -> str | None:
    """Return the line of the file, or None if the file or the line is gone."""
    try:
        lines: Sequence[str] = atomic.read_bytes(Path(place.file)).decode("utf-8-sig", "replace").splitlines()
    except OSError:
        return None
    return lines[place.line - 1][:_MOST] if 0 < place.line <= len(lines) else None


def source_line(source: str) -> str:
    """Return a source line for a message, with spaces for tabs and escapes for control characters."""
    return one_line(source.expandtabs(_TAB_WIDTH))


def caret_line(source: str, column: int, length: int) -> str:
    """Return carets below `length` characters of a quoted line, starting at `column` (1 is the first)."""
    return " " * cell_len(source_line(source[: column - 1])) + "^" * max(1, min(length, _MOST))
