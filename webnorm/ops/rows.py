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
# A gradient's element depends on several normalized values: rstd, x̂ and the row's two means each have the
# error of one.
GRADIENT_TOLERANCE = 4.0 * HI_LO_TOLERANCE
# Half an ulp of 1.0 in float32.
UNIT_ROUNDOFF = 2.0**-24
# The smallest normal float32: a GPU may replace smaller numbers by 0.
_LEAST_NORMAL = 2.0**-126
# h is a sum of two or three terms, each rounded once to float32.
SUM_TOLERANCE = 2.0**-23
# The values of an option `activation`. Kernels compute them by lib/activations.wgsl.
ACTIVATIONS = (None, "silu", "gelu", "gelu_tanh")
# No slope of these activations is larger, and no slope of a slope.
_STEEPEST, _STEEPEST_SLOPE = 1.13, 0.9
# gelu_tanh is x times the logistic function of this times x + 0.044715 x³.
_TANH_FACTOR = math.sqrt(8.0 / math.pi)
# The error of evaluating an activation, relative to its argument: WGSL allows 3 + 2 |x| units in the last
# place for exp(x), which x exp(x) makes smaller than this.
_EVALUATION_ERROR = 8 * UNIT_ROUNDOFF

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


def row_gradient(
    g: Float64Array, rows: NormalizedRows, has_mean: bool = True
) -> tuple[Float64Array, Float64Array]:
    """Return the gradient of x from the gradient g of its normalized rows, and the size of its terms.

    dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd, without mean(g) if the norm has no mean. Multiply the
    size by GRADIENT_TOLERANCE for the allowed error.
    """
    size = np.maximum(1.0, np.abs(rows.xhat))
    dx = g - rows.xhat * (g * rows.xhat).mean(axis=-1, keepdims=True)
    unit = np.abs(g) + size * (np.abs(g) * size).mean(axis=-1, keepdims=True)
    if has_mean:
        dx -= g.mean(axis=-1, keepdims=True)
        unit += np.abs(g).mean(axis=-1, keepdims=True)
    return dx * rows.rstd, unit * rows.rstd


def sum_error(terms: Float64Array, sizes: Float64Array, axis: int | tuple[int, ...]) -> Float64Array:
    """Return the allowed error of the sum of `terms` over some axes, each with an error of its size.

    A size is in units of GRADIENT_TOLERANCE. Errors of terms count as independent.
    """
    axes = (axis,) if isinstance(axis, int) else axis
    count = math.prod(terms.shape[one] for one in axes)
    own = GRADIENT_TOLERANCE * np.sqrt((sizes * sizes).sum(axis=axes))
    return np.asarray(own + UNIT_ROUNDOFF * math.sqrt(count) * np.abs(terms).sum(axis=axes))


def activated(x: Float64Array, activation: str | None) -> Float64Array:
    """Return an activation of x.

    "silu" is x * sigmoid(x), "gelu" is x * Phi(x) with the normal distribution Phi, and "gelu_tanh" its
    approximation by tanh. "sigmoid" is 1 / (1 + exp(-x)). None is x.

    References
    ----------
    Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
    """
    match activation:
        case "silu":
            return x * _logistic(x)
        case "sigmoid":
            return _logistic(x)
        case "gelu":
            return x * _normal_cdf(x)
        case "gelu_tanh":
            return x * _logistic(_TANH_FACTOR * (x + 0.044715 * x * x * x))
    return x


def activation_slope(x: Float64Array, activation: str | None) -> Float64Array:
    """Return the derivative of `activated`."""
    match activation:
        case "silu":
            return _logistic(x) * (1.0 + x * _logistic(-x))
        case "sigmoid":
            return _logistic(x) * _logistic(-x)
        case "gelu":
            return _normal_cdf(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
        case "gelu_tanh":
            u = _TANH_FACTOR * (x + 0.044715 * x * x * x)
            inner = _TANH_FACTOR * (1.0 + 0.134145 * x * x)
            return _logistic(u) * (1.0 + x * _logistic(-u) * inner)
    return np.ones_like(x)


def _normal_cdf(x: Float64Array) -> Float64Array:
    return np.asarray(0.5 * _erfc(x * -math.sqrt(0.5)), np.float64)


def _logistic(x: Float64Array) -> Float64Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0.0, e, 1.0) / (1.0 + e)


def activation_error(x: Float64Array, error: Float64Array, activation: str | None) -> Float64Array:
    """Return the allowed error of an activation of x, for arguments with this error."""
    if activation is None:
        return error
    return _STEEPEST * error + _EVALUATION_ERROR * np.abs(x)


def evaluation_error(x: Float64Array, activation: str | None) -> Float64Array:
    """Return the allowed error of an activation of an exact x, most of it relative to the value.

    exp(a) of a negative a has an error of 3 + 2 |a| units in the last place in WGSL, and may be 0 where it is
    a denormal. Where the activation is nearly 0, its value is proportional to such a number.
    """
    match activation:
        case "gelu":
            exponent = 0.5 * x * x
        case "gelu_tanh":
            exponent = np.abs(_TANH_FACTOR * (x + 0.044715 * x * x * x))
        case _:
            exponent = np.abs(x)
    units = 8.0 + 4.0 * np.where(x < 0.0, exponent, 0.0)
    least = _LEAST_NORMAL * np.maximum(1.0, np.abs(x))
    return UNIT_ROUNDOFF * units * np.abs(activated(x, activation)) + least


def activation_slope_error(x: Float64Array, error: Float64Array, activation: str | None) -> Float64Array:
    """Return the allowed error of the derivative of an activation, for arguments with this error."""
    if activation is None:
        return np.zeros_like(x)
    return _STEEPEST_SLOPE * error + 2.0 * _EVALUATION_ERROR * (1.0 + np.abs(x))
