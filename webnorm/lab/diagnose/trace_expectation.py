"""What float64 says of a traced value, and whether a kernel's departs from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from webnorm.lab.verify.deviations import DENORMAL
from webnorm.op.op import Float64Array

_LARGEST = float(np.finfo(np.float32).max)
# h3 and y_value are elements of h and y.
_SUFFIX = re.compile(r"(_value)?[0-9]*$")


@dataclass(frozen=True)
class TraceExpectation:
    """A value in float64 and how far float32 may be off, each with the batch first.

    With `relative_to` the traced value is what is left of this one when the traced one of that name is taken
    off.
    """

    value: Float64Array
    tolerance: Float64Array
    relative_to: str | None = None


def tensor_named(name: str) -> str:
    """The tensor whose element a variable seems to be: h3 is one of h."""
    return _SUFFIX.sub("", name)


def beyond_tolerance(value: float, expected: float, tolerance: float) -> bool:
    """Whether a value is off by more, denormals aside. Past float32's range the order of additions decides
    between an infinity and NaN.
    """
    if not abs(expected) <= _LARGEST:
        return bool(np.isfinite(value))
    # The tolerance of a row past float32's range is none.
    return not (value == expected or abs(value - expected) <= tolerance + DENORMAL)
