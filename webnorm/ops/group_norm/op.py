"""y = act((x - mean) / sqrt(var + eps) * weight + bias), with mean and var of a group of channels."""

from __future__ import annotations

import numpy as np

from webnorm.op import define_op, option, require, scalar, tensor, uniform
from webnorm.op.op import Float64Array
from webnorm.ops.channel_groups import flat, group_rows, in_groups, per_channel
from webnorm.ops.rows import (
    ACTIVATIONS,
    HI_LO_TOLERANCE,
    SUM_TOLERANCE,
    activated,
    activation_error,
    rounded_sum,
)

op = define_op(
    sizes={"batch": 2, "channels": [320, 640], "spatial": 4096, "groups": 32},
    inputs=[
        tensor("x", "batch channels*spatial"),
        tensor("residual", "batch channels*spatial", option="residual"),
        tensor("weight", "channels", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "channels", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("y", "batch channels*spatial"),
        tensor("h", "batch channels*spatial", option="residual"),
    ],
    scalars=[scalar("eps", 1e-5)],
    options=[
        option("weight", default=True),
        option("bias", default=True),
        option("weight_dtype", None, "float32", "float16", "bfloat16"),
        option("residual"),
        option("activation", *ACTIVATIONS),
        option("layout", "channels_first", "channels_last"),
    ],
    require=[require("channels % groups == 0", "groups must divide channels")],
    batch="batch",
    derived={"cols": "channels // groups * spatial", "span": "channels // groups * spatial"},
)


Values = Float64Array | None


def _normalized(h: Float64Array, eps: float, layout: str, channels: int, groups: int) -> Float64Array:
    x = in_groups(h, channels, groups, layout)
    return group_rows(x, eps).xhat.reshape(x.shape)


@op.reference
def group_norm(
    x: Float64Array,
    residual: Values,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
    dtype: str,
) -> Float64Array | tuple[Float64Array, Float64Array]:
    """Return y, and with a residual h = x + residual. The norm reads the rounded h."""
    h = x if residual is None else rounded_sum(x, residual, dtype)
    xhat = _normalized(h, eps, layout, channels, groups)
    z = xhat * per_channel(weight, 1.0, groups) + per_channel(bias, 0.0, groups)
    y = flat(activated(z, activation), layout)
    return y if residual is None else (y, h)


@op.allowed_error
def allowed_error(
    x: Float64Array,
    residual: Values,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
    dtype: str,
) -> Float64Array | tuple[Float64Array, Float64Array]:
    """Return the errors of y, for terms as large as max(1, |xhat|) * |weight| + |bias|; and of h."""
    h = x if residual is None else rounded_sum(x, residual, dtype)
    xhat = _normalized(h, eps, layout, channels, groups)
    weight, bias = per_channel(weight, 1.0, groups), per_channel(bias, 0.0, groups)
    unit = np.maximum(1.0, np.abs(xhat)) * np.abs(weight) + np.abs(bias)
    error = flat(activation_error(xhat * weight + bias, HI_LO_TOLERANCE * unit, activation), layout)
    return error if residual is None else (error, SUM_TOLERANCE * np.abs(h))
