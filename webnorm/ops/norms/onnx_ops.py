"""The ONNX operators LayerNormalization (opset 17) and RMSNormalization (opset 23) as functions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, shown
from webnorm.op.dtypes import DTYPES, STORAGE
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms import functional
from webnorm.ops.norms.resolved import A, Rounding, leading_of

# TensorProto.FLOAT: float32 is the type of the first stage.
_FLOAT = 1


def layer_normalization(
    X: A,
    Scale: AnyArray,
    B: AnyArray | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[A, A, A]:
    """Compute ONNX's LayerNormalization over the dimensions from `axis` on.

    Y = (X - Mean) * InvStdDev * Scale + B, with InvStdDev = 1 / sqrt(Var + epsilon). The normalized X is
    rounded to its dtype before it is scaled, and so are the product and the sum.

    Parameters
    ----------
    X : numpy.ndarray or GpuArray
        Array of one dimension or more; float32, float16 or bfloat16.
    Scale : numpy.ndarray or GpuArray
        Factor of X's dtype, whose shape broadcasts to X's (unidirectionally). If it differs between rows,
        NumPy applies it after the norm.
    B : numpy.ndarray or GpuArray, optional
        Offset with the same requirements as Scale. Default: no offset.
    axis : int, default -1
        First dimension to normalize, from -rank to rank - 1.
    epsilon : float, default 1e-5
        Number added to the variance, 0 or more.
    stash_type : int, default 1
        Type of the computation. The only value is 1, which is float32.

    Returns
    -------
    Y : numpy.ndarray or GpuArray
        Array of X's shape and dtype; a GpuArray if X is one.
    Mean : numpy.ndarray or GpuArray
        float32 of X's shape, with 1 for every normalized dimension. A GpuArray if X is one, but NumPy makes
        it.
    InvStdDev : numpy.ndarray or GpuArray
        Array like Mean.

    Raises
    ------
    WebnormError
        A shape, dtype, axis, epsilon or stash_type is invalid. float64 is not supported.

    References
    ----------
    ONNX operator LayerNormalization, opset 17: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X = np.array([[1, 2, 3, 4]], np.float32)
    >>> Y, Mean, InvStdDev = webnorm.layer_normalization(X, np.ones(4, np.float32))
    >>> Mean
    array([[2.5]], dtype=float32)
    """
    epsilon = EPS.number(epsilon, "epsilon")
    shape: tuple[int, ...] = _normalized_dimensions(X, axis, stash_type)
    ready: dict[str, AnyArray | None] = {"B": None}
    for name, vector in {"Scale": Scale, **({} if B is None else {"B": B})}.items():
        ready[name] = _per_column(name, vector, X, shape)
        if vector.dtype != X.dtype:
            raise WebnormError(f"{name} has dtype {vector.dtype}; expected X's {X.dtype}")
    by_kernel = ready["Scale"] is not None and (B is None or ready["B"] is not None)
    reduced = (*leading_of(X, shape, "X"), *[1] * len(shape))
    found: Any = functional.layer_norm(
        X,
        shape,
        ready["Scale"] if by_kernel else None,
        ready["B"] if by_kernel else None,
        epsilon,
        return_stats=True,
        rounding=_rounding(X),
    )
    Y: Any = found.y if by_kernel else _second_stage(X, found.y, Scale, B, X.dtype)
    stats = found.stats.numpy() if isinstance(X, GpuArray) else found.stats
    rows = replace(found, stats=stats)
    others: list[Any] = [rows.mean.reshape(reduced), rows.rstd.reshape(reduced)]
    if isinstance(X, GpuArray):
        others = [GpuArray.from_numpy(one, X.device) for one in others]
    Mean, InvStdDev = others
    return Y, Mean, InvStdDev


def rms_normalization(X: A, scale: AnyArray, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> A:
    """Compute ONNX's RMSNormalization over the dimensions from `axis` on.

    Y = X / sqrt(mean(X²) + epsilon) * scale. The normalized X is rounded to its dtype before it is scaled.

    Parameters
    ----------
    X : numpy.ndarray or GpuArray
        Array of one dimension or more; float32, float16 or bfloat16.
    scale : numpy.ndarray or GpuArray
        Factor of dtype float32, float16 or bfloat16, whose shape broadcasts to X's (unidirectionally). If it
        differs between rows, NumPy applies it after the norm.
    axis : int, default -1
        First dimension to normalize, from -rank to rank - 1.
    epsilon : float, default 1e-5
        Number added to the mean of the squares, 0 or more.
    stash_type : int, default 1
        Type of the computation. The only value is 1, which is float32.

    Returns
    -------
    numpy.ndarray or GpuArray
        Y of X's shape and scale's dtype; a GpuArray if X is one.

    Raises
    ------
    WebnormError
        A shape, dtype, axis, epsilon or stash_type is invalid. float64 is not supported.

    References
    ----------
    ONNX operator RMSNormalization, opset 23: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.rms_normalization(np.array([[3, 4]], np.float32), np.ones(2, np.float32)).round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    epsilon = EPS.number(epsilon, "epsilon")
    shape = _normalized_dimensions(X, axis, stash_type)
    ready = _per_column("scale", scale, X, shape)
    if ready is None:
        normalized = functional.rms_norm(X, shape, None, epsilon)
        return _second_stage(X, normalized, scale, None, scale.dtype)
    if isinstance(ready, np.ndarray) and ready.dtype != X.dtype:
        ready = ready.astype(np.float32)
    rounding = _rounding(X)
    return cast("A", functional.rms_norm(X, shape, ready, epsilon, out_dtype=scale.dtype, rounding=rounding))


def _rounding(X: AnyArray) -> Rounding:
    """Return the rounding of ONNX's second stage. A float32 X has none, and uses the usual shaders."""
    return None if X.dtype == DTYPES["float32"] else "before_weight"


def _normalized_dimensions(X: AnyArray, axis: int, stash_type: int) -> tuple[int, ...]:
    leading_of(X, (), "X")
    if X.ndim == 0:
        raise WebnormError("X has no dimensions; expected one or more")
    if isinstance(stash_type, bool) or not isinstance(stash_type, int | np.integer) or stash_type != _FLOAT:
        raise WebnormError(f"stash_type is {shown(stash_type)}; expected {_FLOAT} (float32)")
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -X.ndim <= axis < X.ndim:
        raise WebnormError(f"axis is {shown(axis)}; expected an int from {-X.ndim} to {X.ndim - 1}")
    return tuple(X.shape[axis % X.ndim :])


def _per_column(name: str, vector: AnyArray, X: AnyArray, shape: tuple[int, ...]) -> AnyArray | None:
    """Return a scale or shift in the normalized shape, for a kernel; None if it differs between rows."""
    check_array_type(name, vector, known=STORAGE)
    given = tuple(vector.shape)
    aligned = X.shape[X.ndim - len(given) :] if len(given) <= X.ndim else None
    if aligned is None or any(own not in (1, n) for own, n in zip(given, aligned, strict=True)):
        raise WebnormError(f"{name} has shape {given}; expected one that broadcasts to X's {tuple(X.shape)}")
    rows, columns = given[: -len(shape)], given[-len(shape) :]
    if isinstance(vector, GpuArray):
        if math.prod(rows) != 1 or vector.size != math.prod(shape):
            raise WebnormError(f"{name} is a GpuArray of shape {given}; expected {shape}")
        return vector.reshape(shape)
    if math.prod(rows) != 1:
        return None
    return np.broadcast_to(vector.reshape(columns), shape)


def _second_stage(X: A, normalized: Any, scale: AnyArray, shift: AnyArray | None, dtype: np.dtype[Any]) -> A:
    """Apply a scale and shift that differ between rows, and round after each: ONNX's second stage."""
    if isinstance(X, GpuArray):
        raise WebnormError("the scale differs between rows, so NumPy applies it; expected a NumPy array as X")
    # Overflow and NaN are valid results, as in the kernels.
    with np.errstate(over="ignore", invalid="ignore"):
        y = (np.asarray(normalized).astype(np.float32) * np.asarray(scale).astype(np.float32)).astype(dtype)
        if shift is None:
            return y
        return (y.astype(np.float32) + np.asarray(shift).astype(np.float32)).astype(dtype)
