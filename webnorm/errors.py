"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2


class WebnormError(Exception):
    """A mistake of the caller's, told in one line: the value, what was expected, and where."""


def unknown(kind: str, name: str, known: Iterable[str]) -> WebnormError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "there is: " + ", ".join(names)
    return WebnormError(f"unknown {kind} {name!r}; {hint}")


def one_line(text: str) -> str:
    """Foreign text as a message may hold it: a line without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def shown(value: object) -> str:
    """A value as a message shows it: in one line, and short whatever it is."""
    try:
        return one_line(_SHORT.repr(value))
    except Exception:  # a __repr__ of the caller's
        return f"a {type(value).__name__}"
