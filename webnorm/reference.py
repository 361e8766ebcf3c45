"""The ops in float64, the answers that every kernel is held against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from webnorm.problem import Array

Float64Array = npt.NDArray[np.float64]


def copy(x: Array) -> Float64Array:
    """X itself, as float64."""
    return x.astype(np.float64)


def layer_norm(x: Array, weight: Array | None, bias: Array | None, eps: float) -> Float64Array:
    """(x - mean) / sqrt(var + eps) * weight + bias for every row of x (rows, cols), in float64.

    Ba, Kiros and Hinton, "Layer Normalization", 2016, equations 3 and 4, with the biased variance.
    Each row is first shifted by its own first element: the differences are exact for float32 values of
    like magnitude, so that constant rows have a variance of exactly 0. A row with NaN or Inf gives NaN,
    and so does a constant row when eps is 0.
    """
    y = x.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        y -= y[:, :1].copy()
        y -= y.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", y, y)[:, None] / y.shape[1]
        y /= np.sqrt(variance + eps)
        if weight is not None:
            y *= weight.astype(np.float64)
        if bias is not None:
            y += bias.astype(np.float64)
    return y


def condition(x: Array, eps: float) -> Float64Array:
    """|mean| / sqrt(var + eps) of every row of x (rows, cols), shape (rows,).

    Times the unit roundoff it is the error that y inherits from a mean rounded to float32.
    """
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio: Float64Array = np.abs(wide.mean(axis=1)) / np.sqrt(wide.var(axis=1) + eps)
    return ratio
