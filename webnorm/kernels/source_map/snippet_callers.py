"""The author's lines behind a line of a snippet of webnorm's: the tag that made it, calls of its function."""

from __future__ import annotations

from collections.abc import Sequence

from webnorm.errors import SourceLocation
from webnorm.kernels.wgsl.declarations import (
    Declaration,
    DeclarationLine,
    LineToken,
    MismatchedBrackets,
    code_of,
    declarations,
    read_line,
)
from webnorm.kernels.wgsl.tokens import CannotInstrument

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
    """The functions of a text, and who calls them; none where the text is not understood."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines: list[DeclarationLine] = []
        self._functions: list[Declaration] = []
        try:
            code, _ = code_of(lines, [False] * len(lines))
            self._lines = [read_line(text) for text in code]
            self._functions = [one for one in declarations(self._lines) if one.keyword == "fn"]
        except (CannotInstrument, MismatchedBrackets):
            pass

    def around(self, line: int, library: Sequence[bool]) -> str:
        """The library's function that contains a line, from 1; empty where none does."""
        around = (one for one in self._functions if one.begin < line <= one.end)
        return next((one.name for one in around if library[one.begin]), "")

    def calls(self, name: str, library: Sequence[bool]) -> list[int]:
        """The lines of the author's that call a function, or one of the library's that does so in turn."""
        waiting, seen, found = [name], {name}, set[int]()
        while waiting:
            called = waiting.pop()
            for number, line in enumerate(self._lines, 1):
                if called not in line.named or not _is_called(line.tokens, called):
                    continue
                if not library[number - 1]:
                    found.add(number)
                elif (caller := self.around(number, library)) not in seen:
                    seen.add(caller)
                    waiting.append(caller)
        return sorted(found)


def _is_called(tokens: Sequence[LineToken], name: str) -> bool:
    texts = ["", *(token.text for token in tokens), ""]
    triples = zip(texts, texts[1:], texts[2:], strict=False)
    return any(word == name and before != "fn" and after == "(" for before, word, after in triples)
