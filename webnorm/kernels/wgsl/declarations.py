"""A rendered text line by line: its words, and what is declared where.

A text is read once. Unlike `tokens.Code` it is kept as lines, which many texts share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from webnorm.kernels.wgsl.tokens import comments, without_comments

_TOKEN = re.compile(r"//.*|[^\W\d]\w*|\d[\w.]*|[^\s\w]")
WORD = re.compile(r"[^\W\d]\w*")
OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())
_DECLARING = frozenset({"fn", "const", "alias", "var", "struct", "override"})


class LineToken(NamedTuple):
    """A word, a number or one character, with its columns from 0."""

    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class DeclarationLine:
    """A line's code. `named` are its words but for members, `other` those of them that are no calls, and
    `residue` the brackets that close what was open before it, and those that it leaves open.
    """

    tokens: tuple[LineToken, ...]
    named: frozenset[str]
    other: frozenset[str]
    residue: str


# Many texts share lines of the library.
@lru_cache(maxsize=1 << 13)
def read_line(line: str) -> DeclarationLine:
    """Read a line that no block comment reaches into."""
    tokens = [LineToken(found[0], *found.span()) for found in _TOKEN.finditer(line)]
    if tokens and tokens[-1].text.startswith("//"):
        tokens.pop()
    named, other, residue = set[str](), set[str](), list[str]()
    before = ""
    for at, token in enumerate(tokens):
        text = token.text
        if WORD.match(text) and before != ".":
            named.add(text)
            if before == "@" or at + 1 == len(tokens) or tokens[at + 1].text != "(":
                other.add(text)
        elif text in CLOSING and residue and OPENING.get(residue[-1]) == text:
            residue.pop()
        elif text in CLOSING or text in OPENING:
            residue.append(text)
        before = text
    return DeclarationLine(tuple(tokens), frozenset(named), frozenset(other), "".join(residue))


@dataclass(frozen=True)
class Declaration:
    """A declaration at the top of a text, in the lines from `begin` to before `end`; `alone` says that they
    hold nothing else. `is_plain` is one without attributes.
    """

    keyword: str
    name: str
    begin: int
    end: int
    alone: bool
    is_plain: bool


class MismatchedBrackets(Exception):
    """A text whose brackets do not belong together."""


def code_of(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], list[bool]]:
    """The lines with blanks for block comments, and which of them are webnorm's and have no part of one."""
    if not any("/*" in line for line in lines):
        return list(lines), list(own)
    whole, free = "\n".join(lines), list(own)
    code, line, at = list(lines), 0, 0
    blank = without_comments(whole).split("\n")
    for start, end in comments(whole):
        line += whole.count("\n", at, start)
        last = line + whole.count("\n", start, end)
        if whole.startswith("/*", start):
            free[line : last + 1] = [False] * (last + 1 - line)
            code[line : last + 1] = blank[line : last + 1]
        line, at = last, end
    return code, free


def declarations(lines: Sequence[DeclarationLine]) -> Iterator[Declaration]:
    """The declarations of a text, in order. Raises MismatchedBrackets."""
    opened, head = list[str](), list[str]()
    begin, starts_line = 0, False
    for number, line in enumerate(lines):
        if opened and _is_inside(line.residue, len(opened)):
            _close(opened, line.residue)
            continue
        for at, (text, _, _) in enumerate(line.tokens):
            if not head and not opened:
                begin, starts_line = number, at == 0
            if text in CLOSING:
                _close(opened, text)
            if not opened:
                head.append(text)
            if text in OPENING:
                opened.append(text)
            if not opened and text in (";", "}"):
                yield _declaration(head, begin, number + 1, starts_line and at == len(line.tokens) - 1)
                head = []
    if opened or head:
        raise MismatchedBrackets


def _is_inside(residue: str, depth: int) -> bool:
    """Whether brackets of a line leave some of those open that were so before it."""
    return sum(bracket in CLOSING for bracket in residue) < depth


def _close(opened: list[str], residue: str) -> None:
    for bracket in residue:
        if bracket in OPENING:
            opened.append(bracket)
        elif not opened or OPENING[opened.pop()] != bracket:
            raise MismatchedBrackets


def _declaration(head: Sequence[str], begin: int, end: int, alone: bool) -> Declaration:
    """What the tokens outside of brackets declare; those of attributes come first."""
    at = 0
    while head[at] == "@":
        at += 4 if head[at + 2 : at + 4] == ["(", ")"] else 2
        if at >= len(head):
            raise MismatchedBrackets
    keyword, is_plain = head[at], at == 0
    if keyword not in _DECLARING:
        return Declaration("", "", begin, end, alone, is_plain)
    at = head.index(">", at) if keyword == "var" and head[at + 1] == "<" and ">" in head else at
    return Declaration(keyword, "".join(head[at + 1 : at + 2]), begin, end, alone, is_plain)
