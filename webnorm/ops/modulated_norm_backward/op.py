"""The gradients of `modulated_norm`, from the norm's input x and the gradient dy of y."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor, uniform
from webnorm.op.dtypes import STORAGE, finfo
from webnorm.op.op import Float64Array
from webnorm.ops.modulated_norm.op import NORMS, in_rows, per_batch, per_column
from webnorm.ops.rows import (
    ACTIVATIONS,
    GRADIENT_TOLERANCE,
    HI_LO_TOLERANCE,
    SUM_TOLERANCE,
    UNIT_ROUNDOFF,
    NormalizedRows,
    activation_slope,
    activation_slope_error,
    normalized_rows,
    rounded_sum,
    row_gradient,
    sum_error,
)

Values = Float64Array | None
_SMALL = {"batch": 3, "rows": 10, "cols": 48}

op = define_op(
    sizes={"batch": 16, "rows": 256, "cols": [1152, 3072]},
    inputs=[
        tensor("x", "batch rows*cols"),
        tensor("dy", "batch rows*cols"),
        tensor("dh", "batch rows*cols", option="dh"),
        tensor("residual", "batch rows*cols", option="gate"),
        tensor("gate", "batch cols", option="gate", dtype="modulation_dtype", draw=uniform(-1.0, 1.0)),
        tensor("scale", "batch cols", option="scale", dtype="modulation_dtype", draw=uniform(-0.5, 0.5)),
        tensor("shift", "batch cols", option="shift", dtype="modulation_dtype", draw=uniform(-0.5, 0.5)),
        tensor("weight", "cols", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "cols", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("dx", "batch rows*cols"),
        tensor("dresidual", "batch rows*cols", option="gate"),
        tensor("dgate", "batch cols", option="gate", dtype="modulation_dtype"),
        tensor("dscale", "batch cols", option="scale", dtype="modulation_dtype"),
        tensor("dshift", "batch cols", option="shift", dtype="modulation_dtype"),
        tensor("dweight", "cols", option="weight", dtype="weight_dtype"),
        tensor("dbias", "cols", option="bias", dtype="weight_dtype"),
    ],
    scalars=[scalar("eps", 1e-6)],
    options=[
        option("norm", *NORMS),
        option("scale", default=True),
        option("shift", default=True),
        option("weight"),
        option("bias"),
        option("weight_dtype", None, *STORAGE),
        option("modulation_dtype", None, *STORAGE),
        option("dh"),
        option("gate"),
        option("activation", *ACTIVATIONS),
    ],
    cases=[
        case("many-rows", {}, sizes={"batch": 2, "rows": 300, "cols": 8}, source="several blocks of rows"),
        case("all", {}, sizes=_SMALL, options=("dh", "gate", "weight", "bias", "activation=silu")),
        case("all-odd", {}, sizes={**_SMALL, "cols": 7}, options=("dh", "gate", "weight", "bias")),
        case("many-weighted", {}, sizes={"batch": 70, "rows": 1, "cols": 8}, options=("weight", "bias")),
    ],
    batch="batch",
    derived={"span": "cols", "has_mean": "is_norm_layer_norm"},
)


@dataclass(frozen=True)
class _Terms:
    """Arrays of (batch, rows, cols), or arrays that broadcast to them, and the allowed errors of some."""

    found: NormalizedRows
    normalized: Float64Array
    normalized_size: Float64Array
    du: Float64Array
    du_error: Float64Array
    factor: Float64Array

    @property
    def size(self) -> Float64Array:
        """Return max(1, |xhat|), in which the error of xhat is counted."""
        return np.maximum(1.0, np.abs(self.found.xhat))


def _terms(
    x: Float64Array,
    dy: Float64Array,
    scale: Values,
    shift: Values,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    activation: str | None,
    rows: int,
) -> _Terms:
    found = normalized_rows(in_rows(x, rows), eps, norm == "layer_norm")
    weights, biases = per_column(weight, 1.0), per_column(bias, 0.0)
    factor = 1.0 + per_batch(scale)
    n = found.xhat * weights + biases
    u = n * factor + per_batch(shift)
    size = np.maximum(1.0, np.abs(found.xhat)) * np.abs(weights) + np.abs(biases)
    u_error = HI_LO_TOLERANCE * (size * np.abs(factor) + np.abs(per_batch(shift)))
    upstream = in_rows(dy, rows)
    du_error = np.abs(upstream) * activation_slope_error(u, u_error, activation)
    return _Terms(found, n, size, upstream * activation_slope(u, activation), du_error, factor)


def _chosen(*pairs: tuple[Values, Float64Array]) -> tuple[Float64Array, ...]:
    """Return the gradients, or errors, of the inputs that exist."""
    return tuple(gradient for given, gradient in pairs if given is not None)


@op.reference
def modulated_norm_backward(
    x: Float64Array,
    dy: Float64Array,
    dh: Values,
    residual: Values,
    gate: Values,
    scale: Values,
    shift: Values,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    activation: str | None,
    rows: int,
    dtype: str,
) -> tuple[Float64Array, ...]:
    """Return dx, and the gradients of the inputs that exist, in the order of the outputs.

    dresidual and dgate follow from dx as kernels store it.
    """
    one = _terms(x, dy, scale, shift, weight, bias, eps, norm, activation, rows)
    dn = one.du * one.factor
    dx, _ = row_gradient(dn * per_column(weight, 1.0), one.found, norm == "layer_norm")
    dx = dx.reshape(x.shape) + (0.0 if dh is None else dh)
    whole = in_rows(rounded_sum(dx, np.zeros(1), dtype), rows)
    return (
        dx,
        *_chosen(
            (gate, (whole * per_batch(gate)).reshape(x.shape)),
            (gate, (whole * in_rows(x if residual is None else residual, rows)).sum(axis=1)),
            (scale, (one.du * one.normalized).sum(axis=1)),
            (shift, one.du.sum(axis=1)),
            (weight, (dn * one.found.xhat).sum(axis=(0, 1))),
            (bias, dn.sum(axis=(0, 1))),
        ),
    )


@op.allowed_error
def allowed_error(
    x: Float64Array,
    dy: Float64Array,
    dh: Values,
    residual: Values,
    gate: Values,
    scale: Values,
    shift: Values,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    activation: str | None,
    rows: int,
    dtype: str,
) -> tuple[Float64Array, ...]:
    """Return the errors: of normalized values and slopes in each term, and of sums."""
    one = _terms(x, dy, scale, shift, weight, bias, eps, norm, activation, rows)
    has_mean = norm == "layer_norm"
    weights = per_column(weight, 1.0)
    factor = one.factor * weights
    dx, unit = row_gradient(one.du * factor, one.found, has_mean)
    _, carried = row_gradient(one.du_error * factor, one.found, has_mean)
    error = GRADIENT_TOLERANCE * unit + carried
    if dh is not None:
        dx = dx + in_rows(dh, rows)
        error = error + SUM_TOLERANCE * (np.abs(dx) + np.abs(in_rows(dh, rows)))
    # dx may be rounded to either neighbour in its storage type.
    step = UNIT_ROUNDOFF if dtype == "float32" else finfo(dtype).eps
    stored = error + np.abs(dx) * step + float(finfo(dtype).smallest_subnormal)
    added = in_rows(x if residual is None else residual, rows)
    own = np.abs(one.du) + one.du_error / GRADIENT_TOLERANCE
    scaled, terms = own * np.abs(one.factor), one.du * one.factor
    return (
        error.reshape(x.shape),
        *_chosen(
            (gate, (stored * np.abs(per_batch(gate))).reshape(x.shape)),
            (gate, sum_error(dx * added, stored * np.abs(added) / GRADIENT_TOLERANCE, 1)),
            (scale, sum_error(one.du * one.normalized_size, own * one.normalized_size, 1)),
            (shift, sum_error(one.du, own, 1)),
            (weight, sum_error(terms * one.found.xhat, scaled * one.size, (0, 1))),
            (bias, sum_error(terms, scaled, (0, 1))),
        ),
    )
