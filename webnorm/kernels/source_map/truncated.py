"""Text that ends too early where another file goes on: compilers complain of what they find there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from webnorm.errors import SourceLocation
from webnorm.kernels.wgsl.diagnostics import NagaReport
from webnorm.kernels.wgsl.tokens import CannotInstrument, WgslToken, tokenize, without_comments

# naga's words for a single sign that is missing before what it found.
_MISSING = re.compile(r"expected (`[^`\w]+`), found ")
# What begins nowhere but outside functions and structures.
_GLOBAL = re.compile(
    r"(?:fn|struct|alias|override)\b"
    r"|@\s*(?:compute|workgroup_size|group|binding|id|must_use)\b"
    r"|var\s*<\s*(?:workgroup|private|storage|uniform)\b"
)
# How many tokens of such a beginning naga may have read by then: `var<workgroup`.
_READ = 3


class TruncatedText(NamedTuple):
    """The line of the rendered text, from 1, that lacks something at its end, the complaint, and the place
    behind what stands there last.
    """

    line: int
    complaint: str
    place: SourceLocation


def find_truncation(
    text: str, report: NagaReport, place: Callable[[int, int, int], SourceLocation | None]
) -> TruncatedText | None:
    """What a file lacks before the first token of another's, of which a report complains.

    `place` is Shader.place. None unless it is certain: the report is of another token, or what stands before
    it is whole.
    """
    try:
        code = without_comments(text)
        tokens = tokenize(code)
    except CannotInstrument:
        return None
    meant = _marked(code, tokens, report)
    for number in range(meant, max(0, meant - _READ), -1):
        last, first = tokens[number - 1], tokens[number]
        at = place(first.line, _column(code, first), len(first.text))
        behind = place(last.line, _column(code, last) + len(last.text) - 1, 1)
        if at is None or behind is None or at.file == behind.file:
            continue
        missing = _MISSING.match(report.complaint) if number == meant else None
        if not missing and not (_GLOBAL.match(code, first.start) and _in_braces(tokens[:number])):
            return None
        complaint = f'expected {missing[1] if missing else "`}`"}, found "{first.text}" at {at}'
        behind = replace(behind, column=behind.column + behind.length, length=0)
        return TruncatedText(last.line, complaint, behind)
    return None


def _column(code: str, token: WgslToken) -> int:
    """From 1."""
    return token.start - code.rfind("\n", 0, token.start)


def _marked(code: str, tokens: Sequence[WgslToken], report: NagaReport) -> int:
    """The number of the token that a report marks; 0 where it marks none."""
    place = report.line, report.column
    found = (at for at, one in enumerate(tokens) if (one.line, _column(code, one)) == place)
    return next(found, 0)


def _in_braces(tokens: Sequence[WgslToken]) -> bool:
    """Whether the innermost bracket that these leave open is a brace."""
    opened = []
    for token in tokens:
        if token.text in ("(", "[", "{"):
            opened.append(token.text)
        elif token.text in (")", "]", "}") and opened:
            opened.pop()
    return opened[-1:] == ["{"]
