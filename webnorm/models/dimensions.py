"""The sizes of symbolic dimensions: given ones, and defaults by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Defaults by what a name contains; the first that fits counts.
BATCH, SEQUENCE, IMAGE = 1, 128, 64
_DEFAULTS = (
    (re.compile(r"past|cache", re.IGNORECASE), SEQUENCE),
    (re.compile(r"batch|^n$|^b$|beam", re.IGNORECASE), BATCH),
    (re.compile(r"height|width|^h$|^w$|sample_size", re.IGNORECASE), IMAGE),
)


@dataclass
class Dimensions:
    """The sizes of a model's symbolic dimensions.

    Attributes
    ----------
    given : Mapping
        Sizes by name, from the user.
    assumed : dict
        The defaults that were used, by name.
    used : set
        The names of given sizes that were used.
    """

    given: Mapping[str, int]
    assumed: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def size(self, name: str, axis: int | None = None, default: int | None = None) -> int:
        """Return the size of a dimension; `axis` is its position in an input's shape."""
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        if default is None:
            default = next((size for pattern, size in _DEFAULTS if pattern.search(name)), None)
        self.assumed[name] = default or (BATCH if axis == 0 else SEQUENCE)
        return self.assumed[name]
