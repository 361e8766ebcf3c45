"""The operators LayerNormalization and RMSNormalization of ONNX (opsets 17 and 23), as functions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, shown
from webnorm.op.dtypes import STORAGE
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms import functional
from webnorm.ops.norms.resolved import A, leading_of

# TensorProto.FLOAT: stage one is computed in float32.
_FLOAT = 1


def layer_normalization(
    X: A,
    Scale: AnyArray,
    B: AnyArray | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[A, A, A]:
    """ONNX's LayerNormalization: (Y, Mean, InvStdDev), the dimensions from `axis` on normalised.

    Y = (X - Mean) * InvStdDev * Scale + B with InvStdDev = 1 / sqrt(Var + epsilon). Where ONNX rounds the
    normalised X to its dtype before it is scaled, a float16 or bfloat16 Y is rounded once, at the end.

    Args:
        X: float32, float16 or bfloat16, one dimension or more.
        Scale: X's dtype, of a shape that broadcasts to X's (unidirectionally). A Scale that differs between
            rows is applied by NumPy, behind the norm.
        B: as Scale; None for 0.
        axis: the first dimension to normalise, in [-rank, rank).
        epsilon: added to the variance.
        stash_type: 1, for float32, in which all is computed.

    Returns:
        Y of X's shape and dtype; Mean and InvStdDev, float32 of X's shape with 1 for every normalised
        dimension. They are GpuArrays where X is one, but then Mean and InvStdDev go through NumPy.

    Raises:
        WebnormError: a wrong shape, dtype, axis, epsilon or stash_type; double is not computed.
    """
    epsilon = EPS.number(epsilon, "epsilon")
    shape: tuple[int, ...] = _normalised_dimensions(X, axis, stash_type)
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
        out_dtype=None if by_kernel else "float32",
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
    """ONNX's RMSNormalization: Y = X / sqrt(mean(X²) + epsilon) * scale over the dimensions from `axis` on.

    Args:
        X: float32, float16 or bfloat16, one dimension or more.
        scale: float32, float16 or bfloat16, of a shape that broadcasts to X's (unidirectionally); its dtype
            is Y's. A scale that differs between rows is applied by NumPy, behind the norm.
        axis: the first dimension to normalise, in [-rank, rank).
        epsilon: added to the mean of the squares.
        stash_type: 1, for float32, in which all is computed.

    Returns:
        Y of X's shape and scale's dtype; a GpuArray where X is one.

    Raises:
        WebnormError: a wrong shape, dtype, axis, epsilon or stash_type; double is not computed.
    """
    epsilon = EPS.number(epsilon, "epsilon")
    shape = _normalised_dimensions(X, axis, stash_type)
    ready = _per_column("scale", scale, X, shape)
    if ready is None:
        normalised = functional.rms_norm(X, shape, None, epsilon, out_dtype="float32")
        return _second_stage(X, normalised, scale, None, scale.dtype)
    if isinstance(ready, np.ndarray) and ready.dtype != X.dtype:
        ready = ready.astype(np.float32)
    return cast("A", functional.rms_norm(X, shape, ready, epsilon, out_dtype=scale.dtype))


def _normalised_dimensions(X: AnyArray, axis: int, stash_type: int) -> tuple[int, ...]:
    leading_of(X, (), "X")
    if X.ndim == 0:
        raise WebnormError("X has no dimensions; expected one or more")
    if isinstance(stash_type, bool) or not isinstance(stash_type, int | np.integer) or stash_type != _FLOAT:
        raise WebnormError(f"stash_type is {shown(stash_type)}; expected {_FLOAT} (float32)")
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -X.ndim <= axis < X.ndim:
        raise WebnormError(f"axis is {shown(axis)}; expected an int from {-X.ndim} to {X.ndim - 1}")
    return tuple(X.shape[axis % X.ndim :])


def _per_column(name: str, vector: AnyArray, X: AnyArray, shape: tuple[int, ...]) -> AnyArray | None:
    """A scale or shift of the normalised shape, as a kernel takes it; None where it differs between rows."""
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


def _second_stage(X: A, normalised: Any, scale: AnyArray, shift: AnyArray | None, dtype: np.dtype[Any]) -> A:
    """What ONNX calls the second stage, in float32, for a scale or shift that differs between rows."""
    if isinstance(X, GpuArray):
        raise WebnormError("a scale that differs between rows is applied by NumPy; expected NumPy's X")
    # Past the largest number and NaN are answers here, as they are in the kernels.
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.asarray(normalised) * np.asarray(scale).astype(np.float32)
        y = y if shift is None else y + np.asarray(shift).astype(np.float32)
        return y.astype(dtype)
