"""The outcome of a public case: passed, failed, or the reason why webnorm does not compute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.dtypes import Array

# Reasons for webnorm's errors. A case whose error is not among them has failed.
_REASONS = (
    (r"expected two dimensions or more", "x has one dimension, so there are no channels"),
    (r"float64", "WebGPU has no float64"),
    (r"eps is -", "eps is negative; webnorm rejects it, and torch gives NaN for small variances"),
    (r"p is \S+; expected 1 or 2", "the kernel computes the norms of p = 1 and 2"),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    `reason` is set if webnorm rejects the case, and `failure` if the result is wrong. `with_gradient` is True
    if the gradients were compared, too.
    """

    name: str
    reason: str | None = None
    failure: str | None = None
    with_gradient: bool = False

    @property
    def passed(self) -> bool:
        """True if webnorm's results are right."""
        return self.reason is None and self.failure is None


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference: absolute + relative * |expected|."""

    relative: float
    absolute: float


def outcome(name: str, complaint: Callable[[], str | None], with_gradient: bool = False) -> Outcome:
    """Return the outcome of a case, from a function that returns what is wrong with the results, or None."""
    try:
        return Outcome(name, failure=complaint(), with_gradient=with_gradient)
    except WebnormError as error:
        message = str(error)
    for pattern, reason in _REASONS:
        if re.search(pattern, message):
            return Outcome(name, reason=reason)
    return Outcome(name, failure=message)


def rejected(call: Callable[[], Any]) -> str | None:
    """Return None if a call of a case that torch rejects raises WebnormError, or what is wrong."""
    try:
        call()
    except WebnormError:
        return None
    return "no error"


def difference(found: Any, expected: Array, tolerance: Tolerance, dtype: Any = None) -> str | None:
    """Return what is wrong with an array: its shape, its dtype or its values; None if nothing is."""
    got = np.asarray(found)
    if got.shape != expected.shape:
        return f"shape {got.shape} in place of {expected.shape}"
    if dtype is not None and got.dtype != np.dtype(dtype):
        return f"dtype {got.dtype} in place of {np.dtype(dtype)}"
    wide = got.astype(np.float64)
    if (np.isnan(wide) != np.isnan(expected)).any():
        return "NaN at other places"
    close = np.allclose(wide, expected, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    return None if close else f"off by {np.nanmax(np.abs(wide - expected)):.2g}"


def first(complaints: Sequence[str | None]) -> str | None:
    """Return the first complaint."""
    return next((one for one in complaints if one is not None), None)
