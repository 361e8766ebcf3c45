"""The numbers that a problem takes: one rule each, for Python, the command and exported packages.

A package's manifest has the rules as data, and its runtime refuses with the same words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from webnorm.errors import WebnormError, shown

# The smallest normal float32 number. WGSL lets a GPU take a smaller one, a denormal, for 0.
_LEAST = 2.0**-126
# From here on the inverse of a float32 is a denormal.
_BELOW = 2.0**126


@dataclass(frozen=True)
class NumberRule:
    """A number of a name, from `least` up to, but not including, `below`; 0 where `zero` admits it.

    `expected` says so in words that go on after "expected".
    """

    name: str
    zero: bool
    expected: str
    least: float = _LEAST
    below: float = _BELOW

    def number(self, value: object, name: str | None = None) -> float:
        """Return the value as a float. Raise WebnormError, with `name` in place of the rule's, for another.

        A bool, a string, a Decimal and an array are no numbers here; NumPy's scalars and fractions are.
        """
        if not isinstance(value, bool) and isinstance(value, Real):
            found = _as_float(value)
            if self.least <= found < self.below or (self.zero and found == 0):
                return found
        raise WebnormError(f"{name or self.name} is {shown(value)}; expected {self.expected}")

    def as_json(self) -> dict[str, Any]:
        """The rule as a manifest has it."""
        return {name: value for name, value in vars(self).items() if name != "name"}


def _as_float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:  # an int past float64's range
        return math.inf
