"""Heads of queries and keys: what `qk_norm` and its gradient share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from webnorm.op import option, tensor, uniform
from webnorm.op.definition import TensorDefinition
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Float64Array
from webnorm.ops.rows import NormalizedRows, normalized_rows

Values = Float64Array | None

SIZES: Mapping[str, int | Sequence[int]] = {
    "batch": 4,
    "tokens": 512,
    "q_heads": 32,
    "k_heads": 8,
    "q_gap": 0,
    "k_gap": 0,
    "dim": [64, 128, 256],
}
# Rows of heads. With `qkv` a row of q contains the keys too, behind the queries.
INPUTS = (
    tensor("q", "batch tokens*(q_heads*dim+q_gap+key*qkv*k_heads*dim)"),
    tensor("k", "batch tokens*(k_heads*dim+k_gap)", option="key and not qkv"),
)
OPTIONS = (
    option("norm", "rms_norm", "layer_norm", "l2_norm"),
    option("key", default=True),
    option("qkv"),
    option("weight", default=True),
    option("bias"),
    option("weight_per_head"),
    option("weight_dtype", None, *STORAGE),
    option("layout", "tokens_first", "heads_first"),
)
DERIVED = {
    "cols": "dim",
    "span": "dim",
    "has_mean": "is_norm_layer_norm",
    "is_l2": "is_norm_l2_norm",
    "heads": "q_heads + key * k_heads",
    "q_stride": "q_heads * dim + q_gap + key * qkv * k_heads * dim",
    "k_stride": "k_heads * dim + k_gap",
}


def per_head_tensor(
    name: str, heads: str, flag: str, low: float = 0.0, high: float = 1.0
) -> TensorDefinition:
    """Return a tensor with an element per column, or with `weight_per_head` per head and column."""
    shape = f"max(1,weight_per_head*{heads}) dim"
    return tensor(name, shape, "weight_dtype", option=flag, draw=uniform(low, high))


def query_heads(q: Float64Array, tokens: int, heads: int, dim: int) -> Float64Array:
    """Return the heads at the begin of each token's row: (batch, tokens, heads, dim)."""
    rows = q.reshape(len(q), tokens, -1)
    return rows[:, :, : heads * dim].reshape(len(q), tokens, heads, dim)


def key_heads(
    q: Float64Array, k: Values, tokens: int, q_heads: int, k_heads: int, dim: int, qkv: bool
) -> Float64Array:
    """Return the heads of the keys. With `qkv` they lie in the rows of q, behind the queries."""
    if k is not None and not qkv:
        return query_heads(k, tokens, k_heads, dim)
    return query_heads(q, tokens, q_heads + k_heads, dim)[:, :, q_heads:]


def from_layout(y: Float64Array, tokens: int, heads: int, layout: str) -> Float64Array:
    """Return a contiguous output, or its gradient, as (batch, tokens, heads, dim)."""
    if layout == "heads_first":
        return y.reshape(len(y), heads, tokens, -1).swapaxes(1, 2)
    return y.reshape(len(y), tokens, heads, -1)


def to_layout(y: Float64Array, layout: str) -> Float64Array:
    """Return the inverse of `from_layout`."""
    return (y.swapaxes(1, 2) if layout == "heads_first" else y).reshape(len(y), -1)


def normalized_heads(x: Float64Array, norm: str, eps: float) -> tuple[NormalizedRows, float]:
    """Return the normalized heads divided by a factor, and the factor.

    The L2 norm x / sqrt(sum(x²) + eps) is the RMS norm with eps / dim, divided by sqrt(dim).
    """
    if norm == "l2_norm":
        dim = x.shape[-1]
        return normalized_rows(x, eps / dim, has_mean=False), 1.0 / math.sqrt(dim)
    return normalized_rows(x, eps, norm == "layer_norm"), 1.0


def factor_of(weight: Values, offset: float) -> Float64Array:
    """Return the factor of the normalized heads, which broadcasts to (batch, tokens, heads, dim)."""
    return np.ones(1) if weight is None else weight + offset
