"""The formulas of torch's functions in float64, on arrays that are converted to it, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from webnorm.op.dtypes import Array
from webnorm.op.op import Float64Array

Values = Float64Array | None
# A step of differences, for which rounding and curvature have errors of about 1e-9.
_STEP = 1e-6


def standardized(x: Float64Array, axes: tuple[int, ...], eps: float) -> Float64Array:
    """Return (x - mean) / sqrt(var + eps) over some axes."""
    centered = x - x.mean(axes, keepdims=True)
    return np.asarray(centered / np.sqrt((centered**2).mean(axes, keepdims=True) + eps))


def of_channels(y: Float64Array, weight: Values, bias: Values) -> Float64Array:
    """Return y (N, C, ...) times a factor, plus an offset, of each channel."""
    ones = (-1, *[1] * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(ones)
    return y if bias is None else y + bias.reshape(ones)


def group_norm(
    x: Float64Array, num_groups: int, weight: Values = None, bias: Values = None, eps: float = 1e-5
) -> Float64Array:
    """Return torch.nn.functional.group_norm."""
    groups = x.reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)
    return of_channels(standardized(groups, (2,), eps).reshape(x.shape), weight, bias)


def batch_norm(
    x: Float64Array,
    running_mean: Values,
    running_var: Values,
    weight: Values = None,
    bias: Values = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Float64Array:
    """Return torch.nn.functional.batch_norm."""
    if training:
        return of_channels(standardized(x, (0, *range(2, x.ndim)), eps), weight, bias)
    return running(x, running_mean, running_var, weight, bias, eps)


def running(
    x: Float64Array, mean: Values, variance: Values, weight: Values, bias: Values, eps: float
) -> Float64Array:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, with running statistics."""
    assert mean is not None and variance is not None
    rstd = 1.0 / np.sqrt(variance + eps)
    return of_channels(of_channels(x, rstd, -mean * rstd), weight, bias)


def instance_norm(
    x: Float64Array,
    running_mean: Values = None,
    running_var: Values = None,
    weight: Values = None,
    bias: Values = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Float64Array:
    """Return torch.nn.functional.instance_norm, without its effect on the running statistics."""
    if use_input_stats:
        return of_channels(standardized(x, tuple(range(2, x.ndim)), eps), weight, bias)
    return running(x, running_mean, running_var, weight, bias, eps)


def updated(mean: Array, variance: Array, x: Float64Array, momentum: float) -> tuple[Array, Array]:
    """Return the running statistics after instance_norm of x (N, C, ...)."""
    flat = x.reshape(*x.shape[:2], -1)
    return (
        (1.0 - momentum) * mean + momentum * flat.mean((0, 2)),
        (1.0 - momentum) * variance + momentum * flat.var(2, ddof=1).mean(0),
    )


def layer_norm(
    x: Float64Array,
    normalized_shape: Sequence[int],
    weight: Values = None,
    bias: Values = None,
    eps: float = 1e-5,
) -> Float64Array:
    """Return torch.nn.functional.layer_norm."""
    y = standardized(x, tuple(range(-len(normalized_shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(
    x: Float64Array, normalized_shape: Sequence[int], weight: Values = None, eps: float | None = None
) -> Float64Array:
    """Return torch.nn.functional.rms_norm of float32 values."""
    axes = tuple(range(-len(normalized_shape), 0))
    squares = (x**2).mean(axes, keepdims=True)
    y = x / np.sqrt(squares + (np.finfo(np.float32).eps if eps is None else eps))
    return np.asarray(y if weight is None else y * weight)


def normalize(x: Float64Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Float64Array:
    """Return torch.nn.functional.normalize for p of 1 and 2."""
    total = (np.abs(x) ** p).sum(dim, keepdims=True) ** (1.0 / p)
    return np.asarray(x / np.maximum(total, eps))


def softmax(x: Float64Array, dim: int) -> Float64Array:
    """Return torch.softmax. An array without dimensions counts as one element."""
    z = x.reshape(x.shape or (1,))
    e = np.exp(z - z.max(dim, keepdims=True)) if z.size else z
    return np.asarray(e / e.sum(dim, keepdims=True)).reshape(x.shape)


def log_softmax(x: Float64Array, dim: int) -> Float64Array:
    """Return torch.log_softmax."""
    z = x.reshape(x.shape or (1,))
    z = z - z.max(dim, keepdims=True) if z.size else z
    return np.asarray(z - np.log(np.exp(z).sum(dim, keepdims=True))).reshape(x.shape)


def gradients(
    function: Callable[..., Float64Array], arrays: Mapping[str, Float64Array], dy: Float64Array
) -> dict[str, Float64Array]:
    """Return the gradients of sum(dy * function(**arrays)), by central differences."""
    found = {}
    for name, array in arrays.items():
        gradient = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            ends: list[Any] = []
            for sign in (1.0, -1.0):
                moved = array.copy()
                moved[index] += sign * _STEP
                ends.append((dy * function(**{**arrays, name: moved})).sum())
            gradient[index] = (ends[0] - ends[1]) / (2.0 * _STEP)
        found[name] = gradient
    return found
