"""The gradients of qk_norm: dq and dk contiguous, and the sums over tokens dweight and dbias."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from webnorm.op import define_op, scalar, tensor
from webnorm.op.op import Float64Array
from webnorm.ops.qk_norm.cases import CASES
from webnorm.ops.qk_norm.heads import (
    DERIVED,
    INPUTS,
    OPTIONS,
    SIZES,
    Values,
    factor_of,
    from_layout,
    key_heads,
    normalized_heads,
    per_head_tensor,
    query_heads,
)
from webnorm.ops.rows import GRADIENT_TOLERANCE, row_gradient, sum_error

Axes = tuple[int, ...]
# dx, dweight and dbias, or their errors.
Gradients = tuple[Float64Array, Float64Array, Float64Array]
Result = tuple[Float64Array, ...]

op = define_op(
    sizes=SIZES,
    inputs=[
        *INPUTS,
        tensor("dyq", "batch tokens*q_heads*dim"),
        tensor("dyk", "batch tokens*k_heads*dim", option="key"),
        per_head_tensor("weight_q", "q_heads", "weight", 0.5, 1.5),
        per_head_tensor("weight_k", "k_heads", "weight and key", 0.5, 1.5),
    ],
    outputs=[
        tensor("dq", "batch tokens*q_heads*dim"),
        tensor("dk", "batch tokens*k_heads*dim", option="key"),
        per_head_tensor("dweight_q", "q_heads", "weight"),
        per_head_tensor("dweight_k", "k_heads", "weight and key"),
        per_head_tensor("dbias_q", "q_heads", "bias"),
        per_head_tensor("dbias_k", "k_heads", "bias and key"),
    ],
    scalars=[scalar("eps", 1e-6), scalar("weight_offset", 0.0)],
    options=OPTIONS,
    cases=CASES,
    batch="batch",
    # Without the gaps, which no kernel reads.
    bytes="3 * itemsize * batch * tokens * (q_heads + key * k_heads) * dim",
    derived={**DERIVED, "sums": "weight + bias"},
)


def _gradient(
    x: Float64Array, dy: Float64Array, weight: Values, offset: float, norm: str, eps: float, axes: Axes
) -> Gradients:
    rows, factor = normalized_heads(x, norm, eps)
    g = dy * factor_of(weight, offset) * factor
    dx, _ = row_gradient(g, rows, norm == "layer_norm")
    return dx, (dy * rows.xhat * factor).sum(axis=axes), dy.sum(axis=axes)


def _error(
    x: Float64Array, dy: Float64Array, weight: Values, offset: float, norm: str, eps: float, axes: Axes
) -> Gradients:
    """Return the errors for normalized values with the errors of the forward direction."""
    rows, factor = normalized_heads(x, norm, eps)
    g = dy * factor_of(weight, offset) * factor
    _, size = row_gradient(g, rows, norm == "layer_norm")
    terms = dy * rows.xhat * factor
    sizes = np.abs(dy) * np.maximum(1.0, np.abs(rows.xhat)) * factor
    none = np.zeros_like(dy)
    return GRADIENT_TOLERANCE * size, sum_error(terms, sizes, axes), sum_error(dy, none, axes)


def _of_both(compute: Callable[..., Gradients]) -> Callable[..., Result]:
    """Return a function that computes arrays for the queries, and with `key` for the keys."""

    def qk_norm_backward(
        q: Float64Array,
        k: Values,
        dyq: Float64Array,
        dyk: Values,
        weight_q: Values,
        weight_k: Values,
        eps: float,
        weight_offset: float,
        norm: str,
        key: bool,
        qkv: bool,
        weight: bool,
        bias: bool,
        weight_per_head: bool,
        layout: str,
        tokens: int,
        q_heads: int,
        k_heads: int,
        dim: int,
    ) -> Result:
        axes = (0, 1) if weight_per_head else (0, 1, 2)
        numbers = (weight_offset, norm, eps, axes)
        dy = from_layout(dyq, tokens, q_heads, layout)
        found = [compute(query_heads(q, tokens, q_heads, dim), dy, weight_q, *numbers)]
        if dyk is not None:
            keys = key_heads(q, k, tokens, q_heads, k_heads, dim, qkv)
            found.append(compute(keys, from_layout(dyk, tokens, k_heads, layout), weight_k, *numbers))
        present = (True, weight, bias)
        kinds = [
            kind for kind, is_present in zip(zip(*found, strict=True), present, strict=True) if is_present
        ]
        dx, *sums = ([*kind] for kind in kinds)
        flat = [one.reshape(len(q), -1) for one in dx]
        return (*flat, *(one.reshape(-1, dim) for kind in sums for one in kind))

    return qk_norm_backward


qk_norm_backward = op.reference(_of_both(_gradient))
op.allowed_error(_of_both(_error))


def _with_dx(compute: Callable[..., Float64Array]) -> Callable[..., Result]:
    """Return the gradients with another dx, a function of g, the normalized heads, 1 / dim and the norm."""

    def gradient(
        x: Float64Array, dy: Float64Array, weight: Values, offset: float, norm: str, eps: float, axes: Axes
    ) -> Gradients:
        rows, factor = normalized_heads(x, norm, eps)
        _, dweight, dbias = _gradient(x, dy, weight, offset, norm, eps, axes)
        return compute(dy * factor_of(weight, offset) * factor, rows, norm) * rows.rstd, dweight, dbias

    return _of_both(gradient)


def _mean(x: Float64Array) -> Float64Array:
    return np.asarray(x.mean(axis=-1, keepdims=True))


@op.mistake("treats the mean and the root as constants")
@wraps(qk_norm_backward)
def constant_statistics(**given: Any) -> Result:
    """Return the gradients for statistics that do not depend on the input."""
    return _with_dx(lambda g, rows, norm: g)(**given)


@op.mistake("leaves the mean of g out")
@wraps(qk_norm_backward)
def without_mean_of_g(**given: Any) -> Result:
    """Return the gradients of a norm with a mean, as if the mean were constant."""
    return _with_dx(lambda g, rows, norm: g - rows.xhat * _mean(g * rows.xhat))(**given)


@op.mistake("leaves the mean of g * xhat out")
@wraps(qk_norm_backward)
def without_projection(**given: Any) -> Result:
    """Return the gradients as if the root were constant."""
    return _with_dx(lambda g, rows, norm: g - _mean(g) if norm == "layer_norm" else g)(**given)


@op.mistake("leaves the weight out of dx")
@wraps(qk_norm_backward)
def without_weight(**given: Any) -> Result:
    """Return the gradients of a norm whose weight is 1."""
    return qk_norm_backward(**{**given, "weight_q": None, "weight_k": None})


@op.mistake("leaves weight_offset out")
@wraps(qk_norm_backward)
def without_offset(**given: Any) -> Result:
    """Return the gradients without the offset of the weight."""
    return qk_norm_backward(**{**given, "weight_offset": 0.0})
