"""y = norm(x) * weight * act(z), or norm(x * act(z)) * weight, for each head of a row."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor, uniform
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Float64Array
from webnorm.ops.rows import (
    HI_LO_TOLERANCE,
    NormalizedRows,
    activated,
    evaluation_error,
    normalized_rows,
)

NORMS = ("rms_norm", "layer_norm")
ORDERS = ("norm_first", "gate_first")
GATES = ("silu", "sigmoid", "gelu", "gelu_tanh")
Values = Float64Array | None


def _closed(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw gates that are almost closed, except for a few."""
    return rng.standard_normal(shape) * 4.0 - 12.0


def _by_head(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw four groups of very different sizes."""
    sizes = np.repeat([1e-2, 1.0, 1e2, 1e3], shape[1] // 4)
    return np.asarray(rng.standard_normal(shape) * sizes)


def _wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw gates beyond the range where exp(-z) is a finite float32."""
    return rng.standard_normal(shape) * 100.0


_SMALL = {"rows": 3, "heads": 2, "cols": 48}

op = define_op(
    sizes={"rows": 4096, "heads": [1, 8], "cols": [128, 512]},
    inputs=[
        tensor("x", "rows heads*cols"),
        tensor("z", "rows heads*cols", draw=uniform(-4.0, 4.0)),
        tensor("weight", "heads*cols", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "heads*cols", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[tensor("y", "rows heads*cols")],
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
        case(
            "one-group-of-all-columns",
            {},
            sizes={"rows": 3, "heads": 1, "cols": 1536},
            options=("order=gate_first",),
            source="https://github.com/state-spaces/mamba/blob/main/mamba_ssm/ops/triton/layernorm_gated.py",
        ),
        *(
            case(
                f"groups-of-different-sizes-{order}",
                {"x": _by_head},
                sizes={"rows": 3, "heads": 4, "cols": 12},
                options=(f"order={order}",),
                source="https://github.com/state-spaces/mamba/pull/910",
            )
            for order in ORDERS
        ),
        case(
            "many-heads-of-128-columns",
            {},
            sizes={"rows": 5, "heads": 32, "cols": 128},
            source="https://github.com/vllm-project/vllm/pull/26207",
        ),
        *(
            case(f"{name}-gates-{order}", {"z": draw}, sizes=_SMALL, options=(f"order={order}",))
            for name, draw in (("wide", _wide), ("closed", _closed))
            for order in ORDERS
        ),
        *(
            case(
                f"layer-norm-mean-{mean:.0e}-sd",
                {"x": lambda rng, shape, mean=mean: rng.standard_normal(shape) + mean},
                sizes=_SMALL,
                options=("norm=layer_norm",),
                source="the goal for every norm",
            )
            for mean in (1e2, 1e4, 1e6)
        ),
    ],
    batch="rows",
    derived={"span": "cols", "has_mean": "is_norm_layer_norm"},
)


def in_heads(x: Float64Array, heads: int) -> Float64Array:
    """Return x as (rows, heads, cols)."""
    return x.reshape(-1, heads, x.shape[-1] // heads)


def per_head(parameter: Values, missing: float, heads: int) -> Float64Array:
    """Return a parameter for arrays of (rows, heads, cols)."""
    return np.full((1, 1), missing) if parameter is None else parameter.reshape(heads, -1)


def normalized_heads(
    x: Float64Array, z: Float64Array, eps: float, norm: str, order: str, activation: str, heads: int
) -> NormalizedRows:
    """Return the normalized heads: of x, or of x * act(z)."""
    h = x * activated(z, activation) if order == "gate_first" else x
    return normalized_rows(in_heads(h, heads), eps, norm == "layer_norm")


@op.reference
def gated_norm(
    x: Float64Array,
    z: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    order: str,
    activation: str,
    heads: int,
) -> Float64Array:
    """Return y."""
    found = normalized_heads(x, z, eps, norm, order, activation, heads)
    y = (found.xhat * per_head(weight, 1.0, heads) + per_head(bias, 0.0, heads)).reshape(x.shape)
    return y * activated(z, activation) if order == "norm_first" else y


@op.allowed_error
def allowed_error(
    x: Float64Array,
    z: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    norm: str,
    order: str,
    activation: str,
    heads: int,
) -> Float64Array:
    """Return the errors of y for terms as large as max(1, |xhat|) * |weight| + |bias|, and of the gate."""
    found = normalized_heads(x, z, eps, norm, order, activation, heads)
    factor, offset = np.abs(per_head(weight, 1.0, heads)), np.abs(per_head(bias, 0.0, heads))
    unit = HI_LO_TOLERANCE * (np.maximum(1.0, np.abs(found.xhat)) * factor + offset)
    gate, error = activated(z, activation), evaluation_error(z, activation)
    if order == "norm_first":
        y = np.abs(found.xhat) * factor + offset
        return unit.reshape(x.shape) * np.abs(gate) + y.reshape(x.shape) * error
    return (unit + input_error(in_heads(x * error, heads), found) * factor).reshape(x.shape)


def input_error(error: Float64Array, rows: NormalizedRows) -> Float64Array:
    """Return the errors of normalized rows whose inputs have independent errors."""
    scaled = np.abs(error) * rows.rstd
    typical = np.sqrt((scaled * scaled).mean(axis=-1, keepdims=True))
    return np.asarray(scaled + np.maximum(1.0, np.abs(rows.xhat)) * typical)


@op.mistake("applies the gate before the norm instead of after it, or the reverse")
@wraps(gated_norm)
def other_order(**given: Any) -> Float64Array:
    """Return y of the other order."""
    order = "gate_first" if given["order"] == "norm_first" else "norm_first"
    return gated_norm(**{**given, "order": order})


@op.mistake("swaps x and z")
@wraps(gated_norm)
def swapped(**given: Any) -> Float64Array:
    """Return y of z with the gate x."""
    return gated_norm(**{**given, "x": given["z"], "z": given["x"]})


@op.mistake("normalizes all heads together")
@wraps(gated_norm)
def together(**given: Any) -> Float64Array:
    """Return y of whole rows."""
    return gated_norm(**{**given, "heads": 1})


@op.mistake("computes the other norm: with a mean instead of without, or the reverse")
@wraps(gated_norm)
def other_norm(**given: Any) -> Float64Array:
    """Return y of the other norm."""
    return gated_norm(**{**given, "norm": "rms_norm" if given["norm"] == "layer_norm" else "layer_norm"})


@op.mistake("uses the weight of the first head for all")
@wraps(gated_norm)
def first_weight(**given: Any) -> Float64Array:
    """Return y with one head's weight."""
    weight, heads = given["weight"], given["heads"]
    first = None if weight is None else np.tile(weight[: weight.size // heads], heads)
    return gated_norm(**{**given, "weight": first})


@op.mistake("multiplies by z instead of act(z)")
@wraps(gated_norm)
def without_activation(**given: Any) -> Float64Array:
    """Return y with the gate z."""
    x, z = given["x"], given["z"]
    # The sigmoid of 0 is a half, which the norm divides out if it is applied to its input.
    halved = {**given, "z": np.zeros_like(z), "activation": "sigmoid"}
    if given["order"] == "gate_first":
        return gated_norm(**{**halved, "x": x * z})
    return np.asarray(2.0 * gated_norm(**halved) * z)
