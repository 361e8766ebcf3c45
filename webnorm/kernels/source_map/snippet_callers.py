"""The author's lines behind a line of a snippet of webnorm's: the tag that made it, calls of its function."""

from __future__ import annotations

import re
from collections.abc import Sequence

from webnorm.errors import SourceLocation
from webnorm.kernels.wgsl.tokens import UnterminatedComment, without_comments

_FUNCTION = re.compile(r"fn +(\w+)")
_CLOSED_BY = {"{{": "}}", "{%": "%}"}


def tag_location(source: Sequence[str], file: str, line: int, column: int) -> SourceLocation:
    """The place of the tag that begins at a column of a template, or else of the whole line."""
    text = source[line - 1] if 1 <= line <= len(source) else ""
    end = text.find(_CLOSED_BY.get(text[column - 1 : column + 1], "\n"), column)
    if end < 0:
        column = len(text) - len(text.lstrip()) + 1
        return SourceLocation(file, line, column, max(len(text.rstrip()) + 1 - column, 0))
    return SourceLocation(file, line, column, end + 3 - column)


class CallGraph:
    """The functions of webnorm's snippets in a text, and who calls them; `library` says which lines are
    theirs. Each begins and ends in the first column.
    """

    def __init__(self, lines: Sequence[str], library: Sequence[bool]) -> None:
        self._library = library
        self._lines: list[str] = []
        # The function that contains a line; empty where none does.
        self._around: list[str] = []
        try:
            self._lines = without_comments("\n".join(lines)).split("\n")
        except UnterminatedComment:
            return
        name = ""
        for line, mine in zip(self._lines, library, strict=True):
            begun = _FUNCTION.match(line) if mine else None
            name = begun[1] if begun else name
            self._around.append(name if mine else "")
            if line.startswith("}") or (begun and line.endswith("}")):
                name = ""

    def around(self, line: int) -> str:
        """The library's function that contains a line, from 1; empty where none does."""
        return self._around[line - 1] if self._around else ""

    def calls(self, name: str) -> list[int]:
        """The lines of the author's that call a function, or one of the library's that does so in turn."""
        waiting, seen, found = [name], {name, ""}, set[int]()
        while waiting:
            call = re.compile(rf"(?<!\w)(?<!\bfn ){waiting.pop()} *\(")
            for number, line in enumerate(self._lines, 1):
                if not call.search(line):
                    continue
                if not self._library[number - 1]:
                    found.add(number)
                elif (caller := self.around(number)) not in seen:
                    seen.add(caller)
                    waiting.append(caller)
        return sorted(found)
