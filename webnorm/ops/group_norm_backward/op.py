"""The gradients of act((x - mean) / sqrt(var + eps) * weight + bias), with mean and var of a group of channels."""

from __future__ import annotations

import numpy as np

from webnorm.op import define_op, option, require, scalar, tensor, uniform
from webnorm.op.op import Float64Array
from webnorm.ops.channel_groups import flat, group_rows, in_groups, per_channel
from webnorm.ops.rows import (
    ACTIVATIONS,
    GRADIENT_TOLERANCE,
    HI_LO_TOLERANCE,
    activation_slope,
    activation_slope_error,
    row_gradient,
    sum_error,
)

op = define_op(
    sizes={"batch": 2, "channels": [320, 640], "spatial": 4096, "groups": 32},
    inputs=[
        tensor("x", "batch channels*spatial"),
        tensor("dy", "batch channels*spatial"),
        tensor("weight", "channels", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "channels", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("dx", "batch channels*spatial"),
        tensor("dweight", "channels", option="weight", dtype="weight_dtype"),
        tensor("dbias", "channels", option="bias", dtype="weight_dtype"),
    ],
    scalars=[scalar("eps", 1e-5)],
    options=[
        option("weight", default=True),
        option("bias", default=True),
        option("weight_dtype", None, "float32", "float16", "bfloat16"),
        option("activation", *ACTIVATIONS),
        option("layout", "channels_first", "channels_last"),
    ],
    require=[require("channels % groups == 0", "groups must divide channels")],
    batch=None,
    derived={"cols": "channels // groups * spatial", "span": "channels // groups * spatial"},
)

Values = Float64Array | None
Outputs = Float64Array | tuple[Float64Array, ...]
# Axes of (batch, groups, channels of a group, spatial) over which a parameter's gradient is a sum.
_SUMMED = (0, 3)


def _outputs(
    dx: Float64Array, dweight: Float64Array, dbias: Float64Array, weight: Values, bias: Values
) -> Outputs:
    """Return the outputs that the op has with these parameters."""
    sums = [one.reshape(-1) for one, parameter in ((dweight, weight), (dbias, bias)) if parameter is not None]
    return (dx, *sums) if sums else dx


@op.reference
def group_norm_backward(
    x: Float64Array,
    dy: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
) -> Outputs:
    """Return dx, dweight and dbias: the gradients of the sum of y * dy."""
    dy = in_groups(dy, channels, groups, layout)
    rows = group_rows(in_groups(x, channels, groups, layout), eps)
    xhat = rows.xhat.reshape(dy.shape)
    factor = per_channel(weight, 1.0, groups)
    dz = dy * activation_slope(xhat * factor + per_channel(bias, 0.0, groups), activation)
    dx, _ = row_gradient((dz * factor).reshape(rows.xhat.shape), rows)
    sums = (dz * xhat).sum(_SUMMED), dz.sum(_SUMMED)
    return _outputs(flat(dx.reshape(dy.shape), layout), *sums, weight, bias)


@op.allowed_error
def allowed_error(
    x: Float64Array,
    dy: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
) -> Outputs:
    """Return the errors of dx, dweight and dbias.

    Normalized values have the error of a forward kernel, which changes the slope of the activation, too.
    """
    dy = in_groups(dy, channels, groups, layout)
    rows = group_rows(in_groups(x, channels, groups, layout), eps)
    xhat = rows.xhat.reshape(dy.shape)
    size = np.maximum(1.0, np.abs(xhat))
    factor, offset = per_channel(weight, 1.0, groups), per_channel(bias, 0.0, groups)
    z, unit = xhat * factor + offset, HI_LO_TOLERANCE * (size * np.abs(factor) + np.abs(offset))
    dz = dy * activation_slope(z, activation)
    # In units of GRADIENT_TOLERANCE.
    error = np.abs(dz) + np.abs(dy) * activation_slope_error(z, unit, activation) / GRADIENT_TOLERANCE
    # Products have rows' means as factors, so larger terms stand for their errors.
    _, dx = row_gradient((error * factor).reshape(rows.xhat.shape), rows)
    sums = sum_error(dz * xhat, error * size, _SUMMED), sum_error(dz, error, _SUMMED)
    return _outputs(GRADIENT_TOLERANCE * flat(dx.reshape(dy.shape), layout), *sums, weight, bias)
