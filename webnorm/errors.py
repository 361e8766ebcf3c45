"""The one exception that means: the user can mend this, and where; and text made fit to be shown.

What a terminal would obey is written as an escape, as Python does.
"""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Control characters, what breaks lines, what turns the direction of text around (U+202A to U+202E and
# U+2066 to U+2069: https://trojansource.codes), halves of surrogate pairs, which no encoding has,
# and two of those that are no characters, with which webnorm.kernels marks lines.
_ONE_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0\ufdd1]")
NOT_TO_SHOW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0\ufdd1]"
)

# What is told of a value, or a path, of any length.
MOST = 2000
# A longer name than that is no slip of the pen; a longer list of those that there are helps nobody.
_LONGEST = 100
_MOST_LISTED = 600
# Of more names that begin alike, the nearest is as good a guess.
_MOST_BEGUN = 3
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxtuple = _SHORT.maxlist = 8
_SHORT.maxlevel = 2
# Lists in a list, of numbers with all their digits, are longer than a message should be.
_MOST_SHOWN = 400


@dataclass(frozen=True)
class SourceLocation:
    """A place in the text of a file.

    Attributes
    ----------
    file : str
        The path of the file.
    line : int
        The line, from 1.
    column : int
        The column in characters, from 1.
    length : int
        Length in characters. 0 is unknown, and stands for the rest of the line.
    """

    file: str
    line: int
    column: int = 1
    length: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class WebnormError(Exception):
    """An error that the caller can fix, as a message of one line.

    The message states the value, the place and the fix. It has no control characters and at most 2000
    characters.

    Parameters
    ----------
    message : str
        The message. Control characters become escapes, and a long message loses its middle.
    place : SourceLocation, optional
        The place of the mistake.

    Attributes
    ----------
    place : SourceLocation or None
        The place of the mistake in a kernel's file or a snippet, if it is known.

    Examples
    --------
    >>> import webnorm
    >>> webnorm.Problem(rows=-1, cols=8)
    Traceback (most recent call last):
        ...
    webnorm.errors.WebnormError: rows is -1; expected 0 or more
    """

    def __init__(self, message: str, place: SourceLocation | None = None) -> None:
        super().__init__(shortened(one_line(message), MOST))
        self.place = place


class UnknownName(WebnormError):
    """An error for a name that does not exist.

    Attributes
    ----------
    kind : str
        The kind of name, such as "op".
    name : str
        The unknown name.
    """

    kind: str = ""
    name: str = ""


class LimitReached(WebnormError):
    """An error for a time limit that was reached. It does not mean that the slow work is wrong."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The one of `known` that is most like a name, where difflib's ratio of the two is `cutoff` or more;
    upper case is lower case where nothing else is alike.
    """
    if len(name) > _LONGEST:
        return None
    names = [*known]
    for near in difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
        return near
    folded = {one.casefold(): one for one in names}
    for near in difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff):
        return folded[near]
    return None


def unknown(
    kind: str,
    given: object,
    known: Iterable[str],
    like: str | None = None,
    elsewhere: Mapping[str, str] | None = None,
) -> WebnormError:
    """The error for a name that does not exist, with those that go on from it, where they are few, or the
    nearest one that does exist: to `like`, where that is known to be meant.

    For a name that exists, but is of no use here, `elsewhere` has the words that follow it.
    """
    name = given if isinstance(given, str) else shown(given)
    names = sorted(known)
    meant = [one for one in names if name and one.startswith(name)]
    if like not in (None, name) or not 0 < len(meant) <= _MOST_BEGUN:
        near = nearest(like or name, names)
        meant = [] if near is None else [near]
    listed = ", ".join(names)
    if len(listed) > _MOST_LISTED:
        listed = listed[:_MOST_LISTED].rpartition(", ")[0] + ", ..."
    if name in (elsewhere or {}):
        return WebnormError(f"{kind} {shown(given)} {(elsewhere or {})[name]}; expected one of {listed}")
    hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else f"there is: {listed}"
    error = UnknownName(f"unknown {kind} {shown(given)}; {hint}")
    error.kind, error.name = kind, name
    return error


def check_kind(name: str, value: object, kind: type[Any], wanted: str = "") -> None:
    """Raise WebnormError for a value that is of another kind."""
    if not isinstance(value, kind):
        raise WebnormError(f"{name} is {shown(value)}; expected {wanted or f'a {kind.__name__}'}")


def shown(value: object) -> str:
    """A value as a message shows it: in one line, and short whatever it is."""
    try:
        return shortened(one_line(_SHORT.repr(value)), _MOST_SHOWN)
    except Exception:  # a __repr__ of the caller's
        return f"a {type(value).__name__}"


def described(value: object) -> str:
    """A value of Python's own as `shown` has it; another, which may be of any size, by its type, such as
    "a torch.Tensor".
    """
    kind = type(value)
    if kind.__module__ == "builtins" or isinstance(value, str) or not hasattr(kind, "__len__"):
        return shown(value)
    named = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey; line feeds and tabs stay."""
    return NOT_TO_SHOW.sub(_escaped, text)


def one_line(text: str) -> str:
    """The same for what has to be a single line, such as a name: line feeds and tabs become escapes, too."""
    return _ONE_LINE.sub(_escaped, text)


def shell_command(words: Iterable[str]) -> str:
    """A command as a shell takes it, in one line that every screen, comment and page can show."""
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    """A word that a shell reads as this text.

    What cannot be shown, such as a line's end or a byte that is not UTF-8, is an escape in `$'...'`, which
    bash, zsh, ksh and POSIX.1-2024 know.
    """
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_for_shell, word))}'"


def _for_shell(sign: str) -> str:
    if sign in "'\\":
        return f"\\{sign}"
    # Three octal digits: a hexadecimal escape could go on in the next sign.
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))


def path_argument(path: Path) -> str:
    """A path as a command's argument, which is taken for no option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def utf8(text: str) -> str:
    """The text as UTF-8 has it: halves of surrogate pairs, which paths have for odd bytes, are escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def sentence(text: str, most: int = MOST) -> str:
    """What somebody else says, in one line and no longer than `most`: where it breaks lines are spaces."""
    return shortened(one_line(re.sub(r"\s*[\t\n\r]\s*", " ", text.strip())), most)


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
