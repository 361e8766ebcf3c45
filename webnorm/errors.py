"""`WebnormError`, the exception for everything a user can fix, and helpers that make text safe to display.

Characters that a terminal would interpret are written as Python escapes.
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

# Control characters, line separators, bidirectional overrides (U+202A to U+202E and U+2066 to U+2069:
# https://trojansource.codes), lone surrogates, which no encoding has, and the two noncharacters that
# webnorm.kernels uses to mark lines.
_ONE_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0\ufdd1]")
NOT_TO_SHOW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0\ufdd1]"
)

# Characters of a message, however long the values in it are.
MOST = 2000
# A longer name is not a typing mistake, so no suggestion is searched for it.
_LONGEST = 100
# The least similarity (difflib's ratio) of a suggestion. The user chooses among few names, so even a distant
# name helps.
LIKELY = 0.55
# Of many names, such as all identifiers of a text, one that is not meant is often as near as that.
CLOSE = 0.76
# Characters of a list of valid names. A longer list would hide the message.
_MOST_LISTED = 240
# With more completions than this, the message suggests the nearest name only.
_MOST_BEGUN = 3
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxtuple = _SHORT.maxlist = 8
_SHORT.maxlevel = 2
# reprlib bounds each list, but nested lists of long numbers would still fill a message.
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
    problem : str
        The first half of the message, without the hint.
    suggested : tuple of str
        The names that the message suggests. If it is empty, the message lists the valid names.
    """

    kind: str = ""
    name: str = ""
    problem: str = ""
    suggested: tuple[str, ...] = ()


class LimitReached(WebnormError):
    """An error for a time limit that was reached. It does not mean that the slow work is wrong."""


def nearest(name: str, known: Iterable[str], cutoff: float = LIKELY) -> str | None:
    """Return the known name that is most similar to `name`, or None if difflib's ratio is below `cutoff`.

    The search ignores case only if it finds nothing otherwise.
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


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an s unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unknown(
    kind: str,
    given: object,
    known: Iterable[str],
    like: str | None = None,
    elsewhere: Mapping[str, str] | None = None,
    problem: str | None = None,
) -> WebnormError:
    """Return the error for a name that does not exist, with suggestions.

    The message lists the valid names if the nearest one differs only in its digits: "float64" is another
    name than "float32", not a typing mistake. Of too many names for a list, it suggests the nearest one.

    Parameters
    ----------
    kind
        What the name stands for, such as "kernel".
    given
        The name as the user gave it.
    known
        The valid names. The message suggests completions of `given` if they are few, else the nearest name.
    like
        A name to search for instead of `given`, if the caller knows a likely meaning.
    elsewhere
        For names that exist but do not fit here, the end of the sentence that says so.
    problem
        The first half of the message. Default: "unknown KIND NAME".
    """
    name = given if isinstance(given, str) else shown(given)
    names = sorted(known)
    listed, complete = _listed(names)
    meant = [one for one in names if name and one.startswith(name)]
    if like not in (None, name) or not 0 < len(meant) <= _MOST_BEGUN:
        near = nearest(like or name, names)
        meant = [] if near is None or (complete and _differ_in_digits(name, near)) else [near]
    if name in (elsewhere or {}):
        return WebnormError(f"{kind} {shown(given)} {(elsewhere or {})[name]}; expected one of {listed}")
    hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else f"expected one of {listed}"
    problem = problem or f"unknown {kind} {shown(given)}"
    error = UnknownName(f"{problem}; {hint}")
    error.kind, error.name, error.problem, error.suggested = kind, name, problem, tuple(meant)
    return error


def listing(names: Iterable[str]) -> str:
    """Join names with commas; a long list is cut, and ends with its number of names."""
    return _listed(names)[0]


def _listed(names: Iterable[str]) -> tuple[str, bool]:
    """Return the joined names as in `listing`, and whether they are all there."""
    every = [shortened(name, _MOST_LISTED) for name in names]
    listed = ", ".join(every)
    if len(listed) <= _MOST_LISTED:
        return listed, True
    # With the separator behind it, even the longest first name stays.
    cut = listed[: _MOST_LISTED + len(", ")].rpartition(", ")[0]
    return f"{cut}, ... ({len(every)} in all)", False


def _differ_in_digits(one: str, other: str) -> bool:
    """Return True if two names differ only in their digits, and not only in the order of them."""
    letters, others = (re.sub(r"\d+", "", name) for name in (one, other))
    return letters == others and sorted(one) != sorted(other)


def check_kind(name: str, value: object, kind: type[Any], wanted: str = "") -> None:
    """Raise WebnormError if a value is not an instance of `kind`; `wanted` describes it in the message."""
    if not isinstance(value, kind):
        raise WebnormError(f"{name} is {shown(value)}; expected {wanted or f'a {kind.__name__}'}")


def shown(value: object) -> str:
    """Return a short, single-line representation of any value for a message."""
    try:
        return shortened(one_line(_SHORT.repr(value)), _MOST_SHOWN)
    except Exception:  # a __repr__ of the caller's
        return f"a {type(value).__name__}"


def described(value: object) -> str:
    """Return `shown(value)` for short values, and the type's name for others, such as "a torch.Tensor".

    Lists, tuples and objects of other packages may be of any size.
    """
    kind = type(value)
    if kind in (list, tuple):
        return f"a {kind.__name__}"
    if kind.__module__ == "builtins" or isinstance(value, str) or not hasattr(kind, "__len__"):
        return shown(value)
    named = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def size_in_bytes(size: int) -> str:
    """Return a size in MiB or GiB with one digit after the point; below 1 MiB in bytes."""
    if size < 1 << 20:
        return counted(size, "byte")
    in_mib = round(size / (1 << 20), 1)
    number, unit = (in_mib, "MiB") if in_mib < 1024 else (size / (1 << 30), "GiB")
    return f"{number:,.1f}".removesuffix(".0") + f" {unit}"


def sizes_in_bytes(size: int, limit: int) -> tuple[str, str]:
    """Return a size and the limit that it exceeds, as texts that differ."""
    texts = size_in_bytes(size), size_in_bytes(limit)
    return texts if texts[0] != texts[1] else (f"{size:,} bytes", f"{limit:,} bytes")


def printable(text: str) -> str:
    """Escape the characters that a terminal would interpret; line feeds and tabs stay."""
    return NOT_TO_SHOW.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escape text that has to fit one line, such as a name: also line feeds and tabs."""
    return _ONE_LINE.sub(_escaped, text)


def shell_command(words: Iterable[str]) -> str:
    """Quote the words of a command for a shell, in one printable line."""
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    """Quote one word for a shell.

    Unprintable characters, such as line feeds or bytes that are not UTF-8, become escapes in `$'...'`. That
    syntax works in bash, zsh, ksh and POSIX.1-2024.
    """
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_for_shell, word))}'"


def _for_shell(sign: str) -> str:
    if sign in "'\\":
        return f"\\{sign}"
    # Three octal digits, because a hexadecimal escape would absorb digits that follow it.
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))


def path_argument(path: Path) -> str:
    """Return a path as a command's argument, with `./` in front if it would look like an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def utf8(text: str) -> str:
    """Escape lone surrogates, which Python puts into paths for bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def sentence(text: str, most: int = MOST) -> str:
    """Return the message of another library in one line of at most `most` characters."""
    return shortened(one_line(re.sub(r"\s*[\t\n\r]\s*", " ", text.strip())), most)


def shortened(text: str, most: int) -> str:
    """Shorten a text to `most` characters: its beginning, its original length, and its end.

    Shortening a shortened text changes nothing, so files that are read and written again stay the same.
    """
    if len(text) <= most:
        return text
    mark = f" [of {len(text)} characters] "
    left = most - len(mark)
    end = left // 4
    return f"{text[: left - end]}{mark}{text[len(text) - end :]}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
