"""Formulas that the ops of `define_op` share: rows normalized in float64, activations, and their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Float64Array

# Error of a normalized element in units of max(1, |x̂|), if no accumulator adds more than 64 terms one after
# another and the mean has two words. The largest measured error for means up to 1e6 standard deviations is
# 1.9e-6. Half an ulp of an outlier's x̂ = sqrt(N) alone is 3.8e-6 absolute, hence the relative part.
HI_LO_TOLERANCE = 2e-6
# h is a sum of two or three terms, each rounded once to float32.
SUM_TOLERANCE = 2.0**-23
# The values of an option `activation`. Kernels compute them by lib/activations.wgsl.
ACTIVATIONS = (None, "silu", "gelu", "gelu_tanh")
# No slope of these activations is larger.
_STEEPEST = 1.13
# The error of evaluating an activation, relative to its argument: WGSL allows 3 + 2 |x| units in the last
# place for exp(x), which x exp(x) makes smaller than this.
_EVALUATION_ERROR = 8 * 2.0**-24

_erfc: Any = np.frompyfunc(math.erfc, 1, 1)


def centered(x: Array) -> tuple[Float64Array, Float64Array]:
    """Return x - mean and the mean (rows, 1) of every row of x (rows, cols), in float64.

    Each row is first shifted by its first element. The differences are exact for float32 values of similar
    magnitude, so constant rows have a variance of exactly 0.
    """
    y = x.astype(np.float64)
    pivot = y[:, :1].copy()
    y -= pivot
    low = y.mean(axis=1, keepdims=True)
    y -= low
    return y, pivot + low


@dataclass(frozen=True)
class NormalizedRows:
    """Normalized rows of x: `xhat` (rows, cols); mean, rstd and |mean| * rstd, each (rows, 1)."""

    xhat: Float64Array
    mean: Float64Array
    rstd: Float64Array
    condition: Float64Array


def normalize(x: Array, eps: float, has_mean: bool) -> NormalizedRows:
    """Return (x - mean) / sqrt(var + eps) of every row, or x / sqrt(mean(x²) + eps) without a mean.

    A row with NaN or Inf gives NaN, and so does a constant row if eps is 0.

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization", 2016, equations 3 and 4, with the biased variance.
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if has_mean:
            xhat, mean = centered(x)
        else:
            xhat = x.astype(np.float64)
            mean = np.zeros((x.shape[0], 1))
        variance = np.einsum("ij,ij->i", xhat, xhat)[:, None] / x.shape[1]
        rstd = 1.0 / np.sqrt(variance + eps)
        xhat *= rstd
        return NormalizedRows(xhat, mean, rstd, np.abs(mean) * rstd)


def normalized_rows(x: Float64Array, eps: float, has_mean: bool = True) -> NormalizedRows:
    """Return (x - mean) / sqrt(var + eps) along the last axis; x / sqrt(mean(x²) + eps) without a mean.

    Statistics have a last axis of 1.

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization", 2016, equations 3 and 4, with the biased variance.
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    found = normalize(x.reshape(-1, x.shape[-1]), eps, has_mean)
    ones = (*x.shape[:-1], 1)
    return NormalizedRows(
        found.xhat.reshape(x.shape), *(one.reshape(ones) for one in (found.mean, found.rstd, found.condition))
    )


def rounded_sum(x: Float64Array, residual: Float64Array, dtype: str) -> Float64Array:
    """Return x + residual as kernels store it: rounded to float32, then to the storage type."""
    return (x + residual).astype(np.float32).astype(DTYPES[dtype]).astype(np.float64)


def activated(x: Float64Array, activation: str | None) -> Float64Array:
    """Return an activation of x.

    "silu" is x * sigmoid(x), "gelu" is x * Phi(x) with the normal distribution Phi, and "gelu_tanh" its
    approximation by tanh.

    References
    ----------
    Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
    """
    match activation:
        case "silu":
            return x * _logistic(x)
        case "gelu":
            return x * np.asarray(0.5 * _erfc(x * -math.sqrt(0.5)), np.float64)
        case "gelu_tanh":
            return x * _logistic(math.sqrt(8.0 / math.pi) * (x + 0.044715 * x * x * x))
    return x


def _logistic(x: Float64Array) -> Float64Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0.0, e, 1.0) / (1.0 + e)


def activation_error(x: Float64Array, error: Float64Array, activation: str | None) -> Float64Array:
    """Return the allowed error of an activation of x, for arguments with this error."""
    if activation is None:
        return error
    return _STEEPEST * error + _EVALUATION_ERROR * np.abs(x)
