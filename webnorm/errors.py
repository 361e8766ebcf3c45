"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from webnorm.printable import one_line, shortened

# What is told of a value, or a path, of any length.
_MOST = 2000


class WebnormError(Exception):
    """A mistake of the caller's, told in one line: the value, what was expected, and where.

    Whatever the message is made of, it has no control characters and is of bounded length.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(one_line(message), _MOST))


def unknown(kind: str, name: str, known: Iterable[str]) -> WebnormError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name[:_MOST], names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "there is: " + ", ".join(names)
    return WebnormError(f"unknown {kind} {name!r}; {hint}")
