"""Heads of queries and keys as rows of tokens, in place where the memory of a NumPy view has such rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.calls.call import AnyArray
from webnorm.op.dtypes import Array


@dataclass(frozen=True)
class HeadRows:
    """The heads of every token as rows of memory: `array` (batch, tokens * (heads * dim + gap))."""

    array: AnyArray
    gap: int


def rows_of_heads(q: AnyArray, k: AnyArray | None = None) -> dict[str, Any]:
    """Return the arguments of the op qk_norm for heads (batch, tokens, heads, dim): arrays, gaps and qkv."""
    if isinstance(q, np.ndarray) and isinstance(k, np.ndarray) and (both := _rows_of_both(q, k)):
        return {"q": both.array, "q_gap": both.gap, "k_gap": 0, "qkv": True}
    queries = head_rows(q)
    if k is None:
        return {"q": queries.array, "q_gap": queries.gap, "k_gap": 0}
    keys = head_rows(k)
    return {"q": queries.array, "q_gap": queries.gap, "k": keys.array, "k_gap": keys.gap}


def head_rows(x: AnyArray) -> HeadRows:
    """Return heads (batch, tokens, heads, dim) as rows; NumPy copies them if memory has no such rows."""
    batch, tokens, heads, dim = x.shape
    found = _view(x, heads * dim) if isinstance(x, np.ndarray) else None
    return HeadRows(x.reshape(batch, tokens * heads * dim), 0) if found is None else found


def _rows_of_both(q: Array, k: Array) -> HeadRows | None:
    """Return rows that contain the keys directly behind the queries; None if memory has no such rows."""
    width = q.shape[2] * q.shape[3]
    if _address(k) != _address(q) + width * q.itemsize or _token_stride(k) != _token_stride(q):
        return None
    return _view(q, width + k.shape[2] * k.shape[3])


def _view(x: Array, width: int) -> HeadRows | None:
    """Return the memory of rows that begin with `width` elements of heads, without a copy."""
    stride, itemsize = _token_stride(x), x.itemsize
    if stride is None or stride % itemsize or stride < width * itemsize:
        return None
    batch, tokens = x.shape[:2]
    if _address(x) + batch * tokens * stride > _end_of_owner(x):
        return None
    shape, strides = (batch, tokens * stride // itemsize), (tokens * stride, itemsize)
    array = np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
    return HeadRows(array, stride // itemsize - width)


def _token_stride(x: Array) -> int | None:
    """Return the bytes from a token to the next; None if its heads, or the tokens, do not follow in order."""
    batch, tokens, heads, dim = x.shape
    of_batch, of_tokens, of_heads, of_dim = x.strides
    # A dimension of size 1 may have any stride.
    if (dim > 1 and of_dim != x.itemsize) or (heads > 1 and of_heads != dim * x.itemsize):
        return None
    if tokens == 1:
        return of_batch if batch > 1 else heads * dim * x.itemsize
    return of_tokens if batch == 1 or of_batch == tokens * of_tokens else None


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def _end_of_owner(x: Array) -> int:
    """Return the address behind the memory of the array whose view x is; 0 if that is unknown."""
    owner = x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return _address(owner) + owner.nbytes if owner.flags.forc else 0
