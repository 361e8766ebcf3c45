"""Groups of channels, as the references of GroupNorm and its gradient see them."""

from __future__ import annotations

import numpy as np

from webnorm.op.op import Float64Array
from webnorm.ops.rows import NormalizedRows, normalized_rows


def in_groups(x: Float64Array, channels: int, groups: int, layout: str) -> Float64Array:
    """Return x (batch, channels * spatial) as (batch, groups, channels of a group, spatial)."""
    if layout == "channels_last":
        x = x.reshape(len(x), -1, channels).swapaxes(1, 2)
    return x.reshape(len(x), groups, channels // groups, -1)


def flat(x: Float64Array, layout: str) -> Float64Array:
    """Return the inverse of `in_groups`."""
    x = x.reshape(len(x), x.shape[1] * x.shape[2], x.shape[3])
    return (x.swapaxes(1, 2) if layout == "channels_last" else x).reshape(len(x), -1)


def group_rows(x: Float64Array, eps: float) -> NormalizedRows:
    """Return the normalized rows of what `in_groups` returns: (batch, groups, elements of a group)."""
    return normalized_rows(x.reshape(*x.shape[:2], -1), eps)


def per_channel(parameter: Float64Array | None, missing: float, groups: int) -> Float64Array:
    """Return a parameter in the form of `in_groups`, or an array of one element if it is missing."""
    return np.full((1, 1, 1), missing) if parameter is None else parameter.reshape(groups, -1, 1)
