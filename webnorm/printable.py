"""Foreign text made fit to be shown: what a terminal would obey is written as an escape, as Python does."""

from __future__ import annotations

import re

# Control characters, what breaks lines, what turns the direction of text around (U+202A to U+202E and
# U+2066 to U+2069: https://trojansource.codes), and halves of surrogate pairs, which no encoding has.
_ONE_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# What is told of a value, or a path, of any length.
MOST = 2000


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey; line feeds and tabs stay."""
    return _LINES.sub(_escaped, text)


def one_line(text: str) -> str:
    """The same for what has to be a single line, such as a name: line feeds and tabs become escapes, too."""
    return _ONE_LINE.sub(_escaped, text)


def shortened(text: str, most: int) -> str:
    """The text, or `most` characters where it has more: its beginning, how many it had, and its end.

    Shortening once more changes nothing, so what is read and written again stays as it is.
    """
    if len(text) <= most:
        return text
    told = f" [of {len(text)} characters] "
    left = most - len(told)
    end = left // 4
    return f"{text[: left - end]}{told}{text[len(text) - end :]}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
