"""y = act(norm(x) * (1 + scale) + shift), with a scale and a shift for the rows of each batch element."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, require, scalar, tensor, uniform
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Float64Array
from webnorm.ops.rows import (
    ACTIVATIONS,
    HI_LO_TOLERANCE,
    SUM_TOLERANCE,
    NormalizedRows,
    activated,
    activation_error,
    normalized_rows,
    rounded_sum,
)

NORMS = ("layer_norm", "rms_norm")
Values = Float64Array | None
Outputs = Float64Array | tuple[Float64Array, Float64Array]


def _distant(sds: float) -> object:
    """Return a function that draws rows whose mean is this many standard deviations."""
    return lambda rng, shape: rng.standard_normal(shape) + sds


def _outlier(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw rows with one channel a thousand times larger than the others."""
    drawn = rng.standard_normal(shape)
    drawn[:, 5] = 3000.0
    return drawn


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw scales that vanish if 1 + scale is rounded to 16 bits."""
    return rng.uniform(-1.0, 1.0, shape) * 2.0**-10


def _by_element(rng: np.random.Generator, shape: tuple[int, ...]) -> Float64Array:
    """Draw values whose size depends on the batch element."""
    return rng.uniform(0.5, 1.5, shape) * np.arange(1.0, shape[0] + 1.0)[:, None]


_SMALL = {"batch": 2, "rows": 3, "cols": 48}

op = define_op(
    sizes={"batch": 16, "rows": 256, "cols": [1152, 3072]},
    inputs=[
        tensor("x", "batch rows*cols"),
        tensor("residual", "batch rows*cols", option="residual"),
        tensor("gate", "batch cols", option="gate", dtype="modulation_dtype", draw=uniform(-1.0, 1.0)),
        tensor("scale", "batch cols", option="scale", dtype="modulation_dtype", draw=uniform(-0.5, 0.5)),
        tensor("shift", "batch cols", option="shift", dtype="modulation_dtype", draw=uniform(-0.5, 0.5)),
        tensor("weight", "cols", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "cols", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("y", "batch rows*cols"),
        tensor("h", "batch rows*cols", option="residual"),
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
        option("residual"),
        option("gate"),
        option("activation", *ACTIVATIONS),
    ],
    require=[require("residual or not gate", "gate multiplies the residual, which the option residual adds")],
    cases=[
        case(
            "each-batch-element",
            {"scale": _by_element, "shift": _by_element},
            sizes={"batch": 4, "rows": 3, "cols": 20},
            source="https://github.com/NUS-HPC-AI-Lab/VideoSys/issues/119",
        ),
        case(
            "small-scales",
            {"scale": _small},
            sizes=_SMALL,
            source="https://github.com/NVIDIA/TransformerEngine/issues/789",
        ),
        case(
            "modulation-of-its-own-type",
            {"scale": _small, "shift": _small},
            sizes=_SMALL,
            options=("modulation_dtype=float32",),
            source="https://github.com/NVIDIA/TensorRT-LLM/pull/17987",
        ),
        case(
            "one-row-per-scale",
            {},
            sizes={"batch": 5, "rows": 1, "cols": 1152},
            source="https://github.com/NVIDIA/TensorRT-LLM/pull/15762",
        ),
        *(
            case(f"gated-residual-{cols}", {}, sizes={**_SMALL, "cols": cols}, options=("residual", "gate"))
            for cols in (1, 48, 257)
        ),
        *(
            case(f"mean-{mean:.0e}-sd", {"x": _distant(mean)}, sizes=_SMALL, source="the goal for every norm")
            for mean in (1e2, 1e4, 1e6)
        ),
        case(
            "outlier-channel",
            {"x": _outlier},
            sizes=_SMALL,
            source="https://arxiv.org/abs/2402.17762",
        ),
    ],
    batch="batch",
    derived={"span": "cols", "has_mean": "is_norm_layer_norm"},
)


def in_rows(x: Float64Array, rows: int) -> Float64Array:
    """Return x as (batch, rows, cols)."""
    return x.reshape(len(x), rows, -1)


def per_batch(value: Values, missing: float = 0.0) -> Float64Array:
    """Return a tensor (batch, cols) as (batch, 1, cols)."""
    return np.full((1, 1, 1), missing) if value is None else value[:, None, :]


def per_column(value: Values, missing: float) -> Float64Array:
    """Return a parameter (cols) for arrays of (batch, rows, cols)."""
    return np.full(1, missing) if value is None else value


def _input(x: Float64Array, residual: Values, gate: Values, rows: int, dtype: str) -> Float64Array:
    """Return h (batch, rows, cols), the input of the norm as kernels store it."""
    h = in_rows(x, rows)
    if residual is None:
        return h
    added = in_rows(residual, rows) * (1.0 if gate is None else gate[:, None, :])
    return rounded_sum(h, added, dtype)


def _modulated(
    rows_of_h: NormalizedRows, scale: Values, shift: Values, weight: Values, bias: Values
) -> Float64Array:
    normalized = rows_of_h.xhat * per_column(weight, 1.0) + per_column(bias, 0.0)
    return normalized * (1.0 + per_batch(scale)) + per_batch(shift)


@op.reference
def modulated_norm(
    x: Float64Array,
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
) -> Outputs:
    """Return y, and with a residual h = x + gate * residual. The norm reads the rounded h."""
    h = _input(x, residual, gate, rows, dtype)
    found = normalized_rows(h, eps, norm == "layer_norm")
    y = activated(_modulated(found, scale, shift, weight, bias), activation).reshape(x.shape)
    return y if residual is None else (y, h.reshape(x.shape))


@op.allowed_error
def allowed_error(
    x: Float64Array,
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
) -> Outputs:
    """Return the errors of y, in units of its terms, and of h.

    In float32, the sum of a product may be rounded once or twice, so h has an error of its own.
    """
    h = _input(x, residual, gate, rows, dtype)
    found = normalized_rows(h, eps, norm == "layer_norm")
    factor = np.abs(1.0 + per_batch(scale))
    size = np.maximum(1.0, np.abs(found.xhat)) * np.abs(per_column(weight, 1.0))
    unit = (size + np.abs(per_column(bias, 0.0))) * factor + np.abs(per_batch(shift))
    error = HI_LO_TOLERANCE * unit
    error_of_h = np.zeros_like(h)
    if residual is not None and dtype == "float32":
        product = in_rows(residual, rows) * per_batch(gate, 1.0)
        error_of_h = SUM_TOLERANCE * (np.abs(h) + np.abs(product))
        if gate is not None:
            error = error + 2.0 * error_of_h * found.rstd * np.abs(per_column(weight, 1.0)) * factor
    z = _modulated(found, scale, shift, weight, bias)
    error = activation_error(z, error, activation).reshape(x.shape)
    return error if residual is None else (error, error_of_h.reshape(x.shape))


@op.mistake("multiplies by scale instead of 1 + scale")
@wraps(modulated_norm)
def without_one(**given: Any) -> Outputs:
    """Return y with the factor scale."""
    scale = given["scale"]
    return modulated_norm(**{**given, "scale": None if scale is None else scale - 1.0})


@op.mistake("swaps scale and shift")
@wraps(modulated_norm)
def swapped(**given: Any) -> Outputs:
    """Return y with shift as the scale, and scale as the shift."""
    scale, shift = given["scale"], given["shift"]
    if shift is None:
        return modulated_norm(**given)
    return modulated_norm(**{**given, "scale": shift, "shift": shift if scale is None else scale})


@op.mistake("uses the scale and shift of the first batch element for all")
@wraps(modulated_norm)
def of_the_first(**given: Any) -> Outputs:
    """Return y with one scale and one shift."""
    return modulated_norm(**given | {name: _first(given[name]) for name in ("scale", "shift")})


@op.mistake("adds the residual without its gate")
@wraps(modulated_norm)
def without_gate(**given: Any) -> Outputs:
    """Return y and h of x + residual."""
    return modulated_norm(**{**given, "gate": None})


@op.mistake("leaves the activation out")
@wraps(modulated_norm)
def without_activation(**given: Any) -> Outputs:
    """Return u in place of act(u)."""
    return modulated_norm(**{**given, "activation": None})


@op.mistake("computes the other norm: with a mean instead of without, or the reverse")
@wraps(modulated_norm)
def other_norm(**given: Any) -> Outputs:
    """Return y of the other norm."""
    return modulated_norm(**{**given, "norm": "rms_norm" if given["norm"] == "layer_norm" else "layer_norm"})


def _first(values: Values) -> Values:
    return None if values is None else np.repeat(values[:1], len(values), axis=0)
