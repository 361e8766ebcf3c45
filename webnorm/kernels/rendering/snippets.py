"""webnorm's snippets in a rendered text: removal of unused declarations, and a call graph.

Snippets declare everything that any kernel may call. A user's lines stay unchanged, and so do all
declarations that their words name, even in comments.

A declaration in a snippet begins in the first column. It ends in the same line or at the next brace in the
first column. tests/kernels/test_strip_unused.py checks every kernel.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from webnorm.kernels.wgsl.tokens import UnterminatedComment, without_comments

_BEGIN = re.compile(r"(?:fn|const|alias|var<\w+>) +(\w+)")
_WORD = re.compile(r"\b[^\W\d]\w*")
_COMMENT = re.compile(r" *//.*")
_FUNCTION = re.compile(r"fn +(\w+)")


class _Declaration(NamedTuple):
    """A declaration with its comment, in the lines from `begin` up to, but not including, `end`."""

    name: str
    begin: int
    end: int


def strip_unused(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], list[int]]:
    """Return the lines without unused declarations, and their original numbers.

    `own` marks the lines that come from webnorm's files; all others stay.
    """
    words = [_words(line, mine) for line, mine in zip(lines, own, strict=True)]
    removable: dict[str, list[_Declaration]] = {}
    outside = [True] * len(lines)
    for one in _declarations(lines, own):
        removable.setdefault(one.name, []).append(one)
        outside[one.begin : one.end] = [False] * (one.end - one.begin)
    named = set[str]().union(*(words[at] for at, is_outside in enumerate(outside) if is_outside))
    # Duplicate declarations stay, so that the compiler reports them.
    named |= {name for name, some in removable.items() if len(some) > 1}
    waiting = [*named & removable.keys()]
    while waiting:
        for one in removable.pop(waiting.pop(), ()):
            inside = set[str]().union(*words[one.begin : one.end])
            waiting += inside & removable.keys()
    dropped = {at for some in removable.values() for one in some for at in range(one.begin, one.end)}
    return _collapsed(lines, [at for at in range(len(lines)) if at not in dropped])


@lru_cache(maxsize=1 << 13)  # the library's lines occur in many texts
def _words(line: str, own: bool) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", line) if own else line))


def _declarations(lines: Sequence[str], own: Sequence[bool]) -> Iterator[_Declaration]:
    """Yield webnorm's declarations without attributes; the others belong to the interface of a pipeline."""
    closed = [at for at, line in enumerate(lines) if line.startswith("}")]
    end = 0
    for at, line in enumerate(lines):
        found = _BEGIN.match(line) if own[at] and at >= end else None
        if not found or (at and lines[at - 1].startswith("@")):
            continue
        end = at + 1
        if not _COMMENT.sub("", line).endswith((";", "}")):
            following = bisect(closed, at)
            end = closed[following] + 1 if following < len(closed) else len(lines)
        begin = at
        while begin and own[begin - 1] and lines[begin - 1].startswith("//"):
            begin -= 1
        if all(own[begin:end]):
            yield _Declaration(found[1], begin, end)


def _collapsed(lines: Sequence[str], kept: Sequence[int]) -> tuple[list[str], list[int]]:
    """Remove repeated blank lines, and blank lines before a closing brace."""
    found, numbers = list[str](), list[int]()
    for at in kept:
        line = lines[at]
        if not (line or (found and found[-1])):
            continue
        if line.lstrip() == "}" and found and not found[-1]:
            found.pop(), numbers.pop()
        found.append(line)
        numbers.append(at)
    return found, numbers


class CallGraph:
    """The functions of webnorm's snippets in a text, and their callers.

    `library` marks the lines that come from snippets. Each function begins and ends in the first column.
    """

    def __init__(self, lines: Sequence[str], library: Sequence[bool]) -> None:
        self._library = library
        self._lines: list[str] = []
        # For each line the function that contains it, or "".
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
        """Return the library function that contains a line, from 1; empty if none does."""
        return self._around[line - 1] if self._around else ""

    def calls(self, name: str) -> list[int]:
        """Return the author's lines that call a function, directly or through library functions."""
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
