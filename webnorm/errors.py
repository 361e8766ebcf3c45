"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WebnormError(Exception):
    """A mistake of the caller's, told in one line: the value, what was expected, and where."""


def unknown(kind: str, name: str, known: Iterable[str]) -> WebnormError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "there is: " + ", ".join(names)
    return WebnormError(f"unknown {kind} {name!r}; {hint}")
