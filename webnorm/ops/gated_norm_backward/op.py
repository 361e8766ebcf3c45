"""The gradients of `gated_norm`, from its inputs and the gradient dy of y."""

from __future__ import annotations

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor, uniform
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Float64Array
from webnorm.ops.gated_norm.op import (
    GATES,
    NORMS,
    ORDERS,
    in_heads,
    input_error,
    normalized_heads,
    per_head,
)
from webnorm.ops.rows import (
    GRADIENT_TOLERANCE,
    HI_LO_TOLERANCE,
    activated,
    activation_slope,
    activation_slope_error,
    evaluation_error,
    row_gradient,
    sum_error,
)

Values = Float64Array | None

op = define_op(
    sizes={"rows": 4096, "heads": [1, 8], "cols": [128, 512]},
    inputs=[
        tensor("x", "rows heads*cols"),
        tensor("z", "rows heads*cols", draw=uniform(-4.0, 4.0)),
        tensor("dy", "rows heads*cols"),
        tensor("weight", "heads*cols", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "heads*cols", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("dx", "rows heads*cols"),
        tensor("dz", "rows heads*cols"),
        tensor("dweight", "heads*cols", option="weight", dtype="weight_dtype"),
        tensor("dbias", "heads*cols", option="bias", dtype="weight_dtype"),
    ],
    scalars=[scalar("eps", 1e-6)],
    options=[
        option("norm", *NORMS),
        option("order", *ORDERS),
        option("activation", *GATES),
        option("weight", default=True),
        option("bias"),
        option("weight_dtype", None, *STORAGE),
    ],
    cases=[
        case("many-rows", {}, sizes={"rows": 300, "heads": 2, "cols": 8}, source="several blocks of rows"),
        *(
            case(
                f"layer-norm-{order}",
                {},
                sizes={"rows": 7, "heads": 3, "cols": cols},
                options=(f"order={order}", "norm=layer_norm", "bias"),
            )
            for order, cols in zip(ORDERS, (48, 9), strict=True)
        ),
    ],
    batch="rows",
    derived={"span": "cols", "has_mean": "is_norm_layer_norm"},
)


@op.reference
def gated_norm_backward(
    x: Float64Array,
    z: Float64Array,
    dy: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    order: str,
    activation: str,
    heads: int,
) -> tuple[Float64Array, ...]:
    """Return dx, dz, and the gradients of the parameters that exist."""
    found = normalized_heads(x, z, eps, norm, order, activation, heads)
    gate, slope = activated(z, activation), activation_slope(z, activation)
    weights = per_head(weight, 1.0, heads)
    # The gradient of the normalized row times weight plus bias.
    dn = in_heads(dy * gate if order == "norm_first" else dy, heads)
    dh = row_gradient(dn * weights, found, norm == "layer_norm")[0].reshape(x.shape)
    if order == "norm_first":
        n = (found.xhat * weights + per_head(bias, 0.0, heads)).reshape(x.shape)
        dx, dz = dh, dy * n * slope
    else:
        dx, dz = dh * gate, dh * x * slope
    return dx, dz, *_chosen(weight, (dn * found.xhat).sum(axis=0)), *_chosen(bias, dn.sum(axis=0))


def _chosen(parameter: Values, gradient: Float64Array) -> tuple[Float64Array, ...]:
    """Return the gradient, or its error, of a parameter that exists."""
    return () if parameter is None else (gradient.reshape(-1),)


@op.allowed_error
def allowed_error(
    x: Float64Array,
    z: Float64Array,
    dy: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    order: str,
    activation: str,
    heads: int,
) -> tuple[Float64Array, ...]:
    """Return the errors: of normalized values, of the gate and of its slope in each term, and of sums."""
    found = normalized_heads(x, z, eps, norm, order, activation, heads)
    gate, gate_error = activated(z, activation), evaluation_error(z, activation)
    slope = np.abs(activation_slope(z, activation))
    slope_error = activation_slope_error(z, np.zeros_like(z), activation)
    weights = per_head(weight, 1.0, heads)
    size = np.maximum(1.0, np.abs(found.xhat))
    late = order == "norm_first"
    dn = in_heads(dy * gate if late else dy, heads)
    dn_error = in_heads(np.abs(dy) * gate_error if late else np.zeros_like(dy), heads)
    xhat_error = np.zeros_like(size) if late else input_error(in_heads(x * gate_error, heads), found)
    dh, unit = row_gradient(dn * weights, found, norm == "layer_norm")
    dh_error = GRADIENT_TOLERANCE * unit + row_gradient(dn_error * weights, found, norm == "layer_norm")[1]
    dh_error = (dh_error + 3.0 * xhat_error.max(axis=-1, keepdims=True) * unit).reshape(x.shape)
    if late:
        n_size = (size * np.abs(weights) + np.abs(per_head(bias, 0.0, heads))).reshape(x.shape)
        dx_error = dh_error
        dz_error = np.abs(dy) * n_size * (2.0 * HI_LO_TOLERANCE * slope + slope_error)
    else:
        dh = np.abs(dh).reshape(x.shape)
        dx_error = dh_error * np.abs(gate) + dh * gate_error
        dz_error = np.abs(x) * (dh_error * slope + dh * (slope_error + HI_LO_TOLERANCE * slope))
    own = np.abs(dn) + dn_error / GRADIENT_TOLERANCE
    terms = own * size + np.abs(dn) * xhat_error / GRADIENT_TOLERANCE
    return (
        dx_error,
        dz_error,
        *_chosen(weight, sum_error(dn * found.xhat, terms, 0)),
        *_chosen(bias, sum_error(dn, own, 0)),
    )
