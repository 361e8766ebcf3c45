"""y = (x - mean) / sqrt(var + eps) * weight + bias, for each head of queries and keys in rows with gaps."""

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
    key_heads,
    normalized_heads,
    per_head_tensor,
    query_heads,
    to_layout,
)
from webnorm.ops.rows import HI_LO_TOLERANCE

op = define_op(
    sizes=SIZES,
    inputs=[
        *INPUTS,
        per_head_tensor("weight_q", "q_heads", "weight", 0.5, 1.5),
        per_head_tensor("weight_k", "k_heads", "weight and key", 0.5, 1.5),
        per_head_tensor("bias_q", "q_heads", "bias", -0.5, 0.5),
        per_head_tensor("bias_k", "k_heads", "bias and key", -0.5, 0.5),
    ],
    outputs=[
        tensor("yq", "batch tokens*q_heads*dim"),
        tensor("yk", "batch tokens*k_heads*dim", option="key"),
    ],
    scalars=[scalar("eps", 1e-6), scalar("weight_offset", 0.0)],
    options=OPTIONS,
    cases=CASES,
    batch="batch",
    # Without the gaps, which no kernel reads.
    bytes="2 * itemsize * batch * tokens * (q_heads + key * k_heads) * dim",
    derived=DERIVED,
)


Result = Float64Array | tuple[Float64Array, Float64Array]


def _output(
    x: Float64Array, weight: Values, bias: Values, offset: float, norm: str, eps: float
) -> Float64Array:
    rows, factor = normalized_heads(x, norm, eps)
    y = rows.xhat * factor * factor_of(weight, offset)
    return y if bias is None else y + bias


def _error(
    x: Float64Array, weight: Values, bias: Values, offset: float, norm: str, eps: float
) -> Float64Array:
    """Return the errors for terms as large as max(1, |xhat|) * |weight| + |bias|."""
    rows, factor = normalized_heads(x, norm, eps)
    unit = np.maximum(1.0, np.abs(rows.xhat)) * factor * np.abs(factor_of(weight, offset))
    return HI_LO_TOLERANCE * (unit if bias is None else unit + np.abs(bias))


def _of_both(compute: Callable[..., Float64Array]) -> Callable[..., Result]:
    """Return a function that computes an array for the queries, and with `key` one for the keys."""

    def qk_norm(
        q: Float64Array,
        k: Values,
        weight_q: Values,
        weight_k: Values,
        bias_q: Values,
        bias_k: Values,
        eps: float,
        weight_offset: float,
        norm: str,
        key: bool,
        qkv: bool,
        layout: str,
        tokens: int,
        q_heads: int,
        k_heads: int,
        dim: int,
    ) -> Result:
        queries = query_heads(q, tokens, q_heads, dim)
        of_queries = to_layout(compute(queries, weight_q, bias_q, weight_offset, norm, eps), layout)
        if not key:
            return of_queries
        keys = key_heads(q, k, tokens, q_heads, k_heads, dim, qkv)
        return of_queries, to_layout(compute(keys, weight_k, bias_k, weight_offset, norm, eps), layout)

    return qk_norm


qk_norm = op.reference(_of_both(_output))
op.allowed_error(_of_both(_error))


@op.mistake("divides the sum of squares by dim - 1 instead of dim")
@wraps(qk_norm)
def sample_variance(**given: Any) -> Result:
    """Return the outputs with Bessel's correction."""
    count = given["dim"]
    return _of_both(_scaled(lambda variance, eps: np.sqrt(variance * count / max(1, count - 1) + eps)))(
        **given
    )


@op.mistake("adds eps to the root instead of the variance")
@wraps(qk_norm)
def eps_outside(**given: Any) -> Result:
    """Return the outputs with eps outside of the root."""
    return _of_both(_scaled(lambda variance, eps: np.sqrt(variance) + eps))(**given)


def _scaled(root: Callable[[Float64Array, float], Float64Array]) -> Callable[..., Float64Array]:
    """Return `_output` with another root in the denominator, a function of the variance and eps."""

    def computed(
        x: Float64Array, weight: Values, bias: Values, offset: float, norm: str, eps: float
    ) -> Float64Array:
        rows, _ = normalized_heads(x, norm, eps)
        own_eps = eps / x.shape[-1] if norm == "l2_norm" else eps
        scale = 1.0 / (rows.rstd * root(rows.rstd**-2 - own_eps, own_eps))
        y = _output(x, weight, None, offset, norm, eps) * scale
        return y if bias is None else y + bias

    return computed


@op.mistake("does not subtract the mean")
@wraps(qk_norm)
def without_mean(**given: Any) -> Result:
    """Return the outputs of an RMS norm."""
    return qk_norm(**{**given, "norm": "rms_norm" if given["norm"] == "layer_norm" else given["norm"]})


@op.mistake("leaves weight_offset out")
@wraps(qk_norm)
def without_offset(**given: Any) -> Result:
    """Return the outputs without the offset of the weight."""
    return qk_norm(**{**given, "weight_offset": 0.0})


@op.mistake("multiplies the keys by the weight of the queries")
@wraps(qk_norm)
def one_weight(**given: Any) -> Result:
    """Return the outputs with one weight for both, if the weights have the same shape."""
    alike = np.shape(given["weight_q"]) == np.shape(given["weight_k"])
    return qk_norm(**{**given, "weight_k": given["weight_q" if alike else "weight_k"]})


@op.mistake("ignores the gaps between the rows of tokens")
@wraps(qk_norm)
def without_gaps(**given: Any) -> Result:
    """Return the outputs for rows that are read as if they were contiguous."""
    changed = dict(given)
    for name, heads in (("q", "q_heads"), ("k", "k_heads")):
        if given[name] is not None:
            width = given[heads] * given["dim"]
            rows = given[name].reshape(len(given[name]), given["tokens"], -1).copy()
            rows[:, :, :width] = given[name][:, : given["tokens"] * width].reshape(*rows.shape[:2], width)
            changed[name] = rows.reshape(given[name].shape)
    return qk_norm(**changed)


@op.mistake("writes its outputs in the other layout")
@wraps(qk_norm)
def other_layout(**given: Any) -> Result:
    """Return the outputs with heads and tokens exchanged."""
    layout = "tokens_first" if given["layout"] == "heads_first" else "heads_first"
    return qk_norm(**{**given, "layout": layout})
