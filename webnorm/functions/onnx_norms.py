"""ONNX's normalization operators as functions. LayerNormalization and RMSNormalization are in ops.norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.calls.loaded_op import op_function
from webnorm.errors import WebnormError, shown
from webnorm.functions.dimensions import axes_of, channels_of, check_parameter, empty_like, rows_of
from webnorm.functions.group_norms import group_norm, groups_of
from webnorm.functions.row_functions import norm_rows
from webnorm.op.dtypes import STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.functional import layer_norm
from webnorm.ops.norms.resolved import A

# TensorProto.FLOAT: float32 is the type of the first stage.
_FLOAT = 1
# The opset in which the scale of GroupNormalization changed from one number per group to one per channel.
_PER_CHANNEL = 21
_OPSETS = (18, _PER_CHANNEL)
# ONNX's function adds 1e-9 to the standard deviation. This number has the same effect on constant rows.
_MVN_EPS = 1e-18


def group_normalization(
    X: A,
    scale: AnyArray,
    bias: AnyArray,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    *,
    opset: int = 21,
) -> A:
    """Compute ONNX's GroupNormalization.

    Y = (X - mean) / sqrt(variance + epsilon) * scale + bias, with the statistics of a group of channels. ONNX
    rounds the normalized X to its dtype before it is scaled. webnorm rounds once, at the end.

    Parameters
    ----------
    X : numpy.ndarray or GpuArray
        Array of shape (N, C, ...); float32, float16 or bfloat16.
    scale, bias : numpy.ndarray or GpuArray
        Factor and offset of shape (C,). With `opset=18` they have the shape (num_groups,).
    num_groups : int
        Number of groups. It must divide C.
    epsilon : float, default 1e-5
        Number added to the variance, 0 or more.
    stash_type : int, default 1
        Type of the computation. The only value is 1, which is float32.
    opset : int, default 21
        Opset of the operator: 18, with one scale per group, or 21, with one per channel.

    Returns
    -------
    numpy.ndarray or GpuArray
        Y of X's shape and dtype; a GpuArray if X is one.

    Raises
    ------
    WebnormError
        A shape, dtype or attribute is invalid. float64 is not supported.

    References
    ----------
    ONNX operator GroupNormalization, opsets 18 and 21:
    https://onnx.ai/onnx/operators/onnx__GroupNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X = np.array([[[1, 2], [3, 4]]], np.float32)
    >>> webnorm.group_normalization(X, np.ones(2, np.float32), np.zeros(2, np.float32), 2).round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    channels, _ = channels_of(X, channels_last=False, name="X")
    groups = groups_of(num_groups, channels)
    check_stash_type(stash_type)
    if isinstance(opset, bool) or opset not in _OPSETS:
        raise WebnormError(f"opset is {shown(opset)}; expected 18 or 21")
    count = groups if opset < _PER_CHANNEL else channels
    check_parameter("scale", scale, count)
    check_parameter("bias", bias, count)
    if count != channels:
        scale, bias = _repeated("scale", scale, channels), _repeated("bias", bias, channels)
    return group_norm(X, groups, scale, bias, EPS.number(epsilon, "epsilon"))


def _repeated(name: str, array: AnyArray, channels: int) -> Array:
    """Return a parameter with one element per group as one with an element per channel."""
    if isinstance(array, GpuArray):
        raise WebnormError(f"{name} is a GpuArray with one element per group; pass {name}.numpy()")
    return np.repeat(array, channels // len(array))


def check_stash_type(stash_type: object) -> None:
    """Raise WebnormError if a stash_type is not float32's."""
    if isinstance(stash_type, bool) or not isinstance(stash_type, int | np.integer) or stash_type != _FLOAT:
        raise WebnormError(f"stash_type is {shown(stash_type)}; expected {_FLOAT} (float32)")


def instance_normalization(input: A, scale: AnyArray, B: AnyArray, epsilon: float = 1e-5) -> A:
    """Compute ONNX's InstanceNormalization.

    Y = (input - mean) / sqrt(variance + epsilon) * scale + B, with the statistics of one channel of one batch
    element.

    Parameters
    ----------
    input : numpy.ndarray or GpuArray
        Array of shape (N, C, ...); float32, float16 or bfloat16.
    scale, B : numpy.ndarray or GpuArray
        Factor and offset of shape (C,).
    epsilon : float, default 1e-5
        Number added to the variance, 0 or more.

    Returns
    -------
    numpy.ndarray or GpuArray
        Array of input's shape and dtype; a GpuArray if input is one.

    Raises
    ------
    WebnormError
        A shape, dtype or epsilon is invalid. float64 is not supported.

    References
    ----------
    ONNX operator InstanceNormalization, opset 22:
    https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X = np.array([[[1, 3]]], np.float32)
    >>> webnorm.instance_normalization(X, np.ones(1, np.float32), np.zeros(1, np.float32)).round(3)
    array([[[-1.,  1.]]], dtype=float32)
    """
    channels, _ = channels_of(input, channels_last=False, name="input")
    check_parameter("scale", scale, channels)
    check_parameter("B", B, channels)
    return group_norm(input, channels, scale, B, EPS.number(epsilon, "epsilon"))


def mean_variance_normalization(X: A, axes: Sequence[int] = (0, 2, 3)) -> A:
    """Compute ONNX's MeanVarianceNormalization over some axes.

    Y = (X - mean) / sqrt(variance + 1e-18). ONNX divides by sqrt(variance) + 1e-9, which is the same for
    constant rows, and within 1e-4 for a standard deviation of 1e-5 or more.

    Parameters
    ----------
    X : numpy.ndarray or GpuArray
        Array of one dimension or more; float32, float16 or bfloat16.
    axes : sequence of int, default (0, 2, 3)
        The axes that are normalized together. Unless they are the last ones, NumPy copies X; a GpuArray is
        then rejected.

    Returns
    -------
    numpy.ndarray or GpuArray
        Array of X's shape and dtype; a GpuArray if X is one.

    Raises
    ------
    WebnormError
        A dtype or axis is invalid, there are no elements along the axes, or X is a GpuArray whose axes are
        not the last ones.

    References
    ----------
    ONNX operator MeanVarianceNormalization, opset 13:
    https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X = np.array([[1, 10], [3, 30]], np.float32)
    >>> webnorm.mean_variance_normalization(X, axes=(0,)).round(3)
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    check_array_type("X", X, known=STORAGE)
    found = axes_of("axes", axes, X.ndim)
    if math.prod(X.shape[axis] for axis in found if X.ndim) == 0:
        raise WebnormError(f"X has shape {tuple(X.shape)}; expected elements along the axes {shown(axes)}")
    rows = rows_of(X, found, "X")
    y: Any = layer_norm(rows.array, rows.array.shape[-1], eps=_MVN_EPS)
    return cast("A", rows.restored(y))


def lp_normalization(input: A, axis: int = -1, p: int = 2) -> A:
    """Compute ONNX's LpNormalization: divide by the sum of |x| (p = 1), or by the root of the sum of x².

    Elements whose norm is 0 stay 0, as in opset 22.

    Parameters
    ----------
    input : numpy.ndarray or GpuArray
        Array of one dimension or more; float32, float16 or bfloat16.
    axis : int, default -1
        The axis of the norm. Unless it is the last one, NumPy copies input; a GpuArray is then rejected.
    p : int, default 2
        1 or 2.

    Returns
    -------
    numpy.ndarray or GpuArray
        Array of input's shape and dtype; a GpuArray if input is one.

    Raises
    ------
    WebnormError
        A dtype, axis or p is invalid, or input is a GpuArray whose axis is not the last one.

    References
    ----------
    ONNX operator LpNormalization, opset 22: https://onnx.ai/onnx/operators/onnx__LpNormalization.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.lp_normalization(np.array([[3, 4], [0, 0]], np.float32)).round(3)
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    rows = norm_rows("input", input, axis, "axis", p)
    if not input.size:
        return cast("A", empty_like(input))
    return cast("A", rows.restored(op_function("l2_norm")(rows.array, p=str(p), eps_mode="none")))
