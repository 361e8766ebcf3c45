"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

from webnorm.printable import MOST, one_line, shortened

# A longer name than that is no slip of the pen; a longer list of those that there are helps nobody.
_LONGEST = 100
_MOST_LISTED = 600
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxtuple = _SHORT.maxlist = 8
_SHORT.maxlevel = 2


class WebnormError(Exception):
    """A mistake of the caller's, told in one line: the value, what was expected, and where.

    Whatever the message is made of, it has no control characters and is of bounded length.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(one_line(message), MOST))


def unknown(kind: str, name: str, known: Iterable[str]) -> WebnormError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5) if len(name) <= _LONGEST else []
    listed = ", ".join(names)
    if len(listed) > _MOST_LISTED:
        listed = listed[:_MOST_LISTED].rpartition(", ")[0] + ", ..."
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {listed}"
    return WebnormError(f"unknown {kind} {shown(name)}; {hint}")


def check_kind(name: str, value: object, kind: type[Any], wanted: str = "") -> None:
    """Raise WebnormError for a value that is of another kind."""
    if not isinstance(value, kind):
        raise WebnormError(f"{name} is {shown(value)}; expected {wanted or f'a {kind.__name__}'}")


def shown(value: object) -> str:
    """A value as a message shows it: in one line, and short whatever it is."""
    try:
        return one_line(_SHORT.repr(value))
    except Exception:  # a __repr__ of the caller's
        return f"a {type(value).__name__}"
