"""The values of a norm if every step were computed in float16, simulated with NumPy.

Sums are trees: the halves of a row are added until one number is left. That is the most accurate order of a
GPU's sums, so a result that is wrong here is wrong in every order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webnorm.op.dtypes import Array

LARGEST = float(np.finfo(np.float16).max)
# Rounding a number to float16 changes it by at most this share.
ROUNDING = 2.0**-11
# Errors of more than this many roundings are wrong.
MOST_ROUNDINGS = 10.0


@dataclass(frozen=True)
class Float16Result:
    """The error of float16 arithmetic, and why it would be wrong; "" if it would not."""

    error: float
    reason: str


def normalized_in_float16(rows: Array, eps: float, has_mean: bool) -> Float16Result:
    """Return the error of the normalized rows in float16 arithmetic, relative to max(1, abs(value))."""
    stored = rows.astype(np.float16)
    exact = stored.astype(np.float64)
    centered = exact - exact.mean(axis=1, keepdims=True) if has_mean else exact
    squares = (centered**2).sum(axis=1)
    expected = centered / np.sqrt(squares[:, None] / rows.shape[1] + eps)
    with np.errstate(all="ignore"):
        error = _error(_normalized(stored, eps, has_mean), expected)
    if (worst := float(squares.max())) > LARGEST:
        return Float16Result(error, f"a sum of squares is {worst:.3g}, beyond {LARGEST:.0f}")
    if not error <= MOST_ROUNDINGS * ROUNDING:
        return Float16Result(error, f"the error is {error / ROUNDING:.3g} times the rounding of float16")
    return Float16Result(error, "")


def _normalized(x: Array, eps: float, has_mean: bool) -> Array:
    count = np.float16(x.shape[1])
    centered = x - (_sum(x) / count)[:, None] if has_mean else x
    variance = _sum(centered * centered) / count
    found: Array = centered * (np.float16(1) / np.sqrt(variance + np.float16(eps)))[:, None]
    return found


def _sum(rows: Array) -> Array:
    """Return the sums of rows, with each addition rounded to float16."""
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rest = rows[:, 2 * half :]
        rows = np.concatenate([rows[:, :half] + rows[:, half : 2 * half], rest], axis=1)
    found: Array = rows[:, 0]
    return found


def _error(got: Array, expected: Array) -> float:
    error = np.abs(got.astype(np.float64) - expected) / np.maximum(1.0, np.abs(expected))
    return float(np.where(np.isfinite(error), error, np.inf).max())
