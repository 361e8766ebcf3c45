"""The gradients of group_norm, normalize and softmax."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.calls.loaded_op import op_function
from webnorm.functions.dimensions import axis_of, channels_of, empty_like, rows_of
from webnorm.functions.group_norms import groups_of, parameters_of
from webnorm.functions.row_functions import norm_rows, queries_of
from webnorm.gpu.device import Device
from webnorm.op.dtypes import STORAGE
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.resolved import A, as_flag, check_like_x


def group_norm_backward(
    dy: A,
    x: AnyArray,
    num_groups: int,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    *,
    eps: float = 1e-5,
    activation: str | None = None,
    channels_last: bool = False,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[A, A | None, A | None]:
    """Return the gradients of `group_norm`, and of `instance_norm` with one channel per group.

    With x̂ the normalized x, dz = dy * act'(x̂ * weight + bias) and g = dz * weight, the gradients are:

    - dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd, with means of a group
    - dweight, the sums of dz * x̂ over each channel
    - dbias, the sums of dz over each channel

    Parameters
    ----------
    dy : numpy.ndarray or GpuArray
        Gradient of y, of x's shape and dtype.
    x : numpy.ndarray or GpuArray
        The array that the forward pass normalized: its x, or its `h` if it had a residual.
    num_groups, weight, bias, eps, activation, channels_last
        As in the forward pass.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of group_norm_backward.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    tuple
        (dx, dweight, dbias). dx has x's shape and dtype. The others have the shape and dtype of their
        parameters, and are None without them. All of them are GpuArrays if an array is one.

    Raises
    ------
    WebnormError
        For the same reasons as `group_norm`.

    References
    ----------
    The formula follows from `group_norm` by the chain rule, as in torch's native_group_norm_backward.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x, dy = np.array([[[[1, 3]]], [[[1, 0]]]], np.float32)
    >>> ones = np.ones(1, np.float32)
    >>> dx, dweight, dbias = webnorm.group_norm_backward(dy, x, 1, ones, ones)
    >>> dbias
    array([1.], dtype=float32)
    """
    last = as_flag("channels_last", channels_last)
    channels, spatial = channels_of(x, last)
    check_like_x("dy", dy, x)
    groups, given = groups_of(num_groups, channels), parameters_of(x, channels, weight, bias)
    if not x.shape[0]:
        return cast("A", empty_like(x)), _zeros_like(weight, x), _zeros_like(bias, x)
    flat = (x.shape[0], channels * spatial)
    found = op_function("group_norm_backward")(
        x=x.reshape(flat),
        dy=dy.reshape(flat),
        **given,
        eps=EPS.number(eps),
        activation=activation,
        layout="channels_last" if last else "channels_first",
        channels=channels,
        spatial=spatial,
        groups=groups,
        kernel=kernel,
        device=device,
    )
    dx, *sums = found if isinstance(found, tuple) else (found,)
    dweight = sums.pop(0) if weight is not None else None
    return dx.reshape(x.shape), dweight, sums.pop() if bias is not None else None


def _zeros_like(parameter: AnyArray | None, x: AnyArray) -> Any:
    """Return the gradient of a parameter for an empty batch, of x's kind."""
    if parameter is None:
        return None
    zeros = np.zeros(parameter.shape, parameter.dtype)
    return GpuArray.from_numpy(zeros, x.device) if isinstance(x, GpuArray) else zeros


def normalize_backward(
    dy: A,
    x: AnyArray,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    *,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Return the gradient of `normalize`.

    For p = 2 it is dx = (dy - y * sum(y * dy)) / norm, and dy / eps where the norm is below eps.

    Parameters
    ----------
    dy : numpy.ndarray or GpuArray
        Gradient of y, of x's shape and dtype.
    x, p, dim, eps
        As in the forward pass.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of l2_norm_backward.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray or GpuArray
        dx, of x's shape and dtype; a GpuArray if an array is one.

    Raises
    ------
    WebnormError
        For the same reasons as `normalize`.

    References
    ----------
    The formula follows from `normalize` by the chain rule.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x, dy = np.array([[[3, 4]], [[1, 0]]], np.float32)
    >>> webnorm.normalize_backward(dy, x).round(3)
    array([[ 0.128, -0.096]], dtype=float32)
    """
    rows = norm_rows("x", x, dim, "dim", p)
    check_like_x("dy", dy, x)
    if not x.size:
        return cast("A", empty_like(x))
    given = {"p": str(int(p)), "eps_mode": "clamp", "eps": EPS.number(eps)}
    dy_rows = rows_of(dy, rows.axes, "dy")
    dx = op_function("l2_norm_backward")(rows.array, dy_rows.array, kernel=kernel, device=device, **given)
    return cast("A", rows.restored(dx))


def softmax_backward(
    dy: A,
    y: AnyArray,
    dim: int = -1,
    *,
    scale: float = 1.0,
    causal: str | None = None,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Return the gradient of `softmax`: dx = scale * y * (dy - sum(y * dy)).

    Parameters
    ----------
    dy : numpy.ndarray or GpuArray
        Gradient of y, of y's shape and dtype.
    y : numpy.ndarray or GpuArray
        The result of the forward pass.
    dim, scale, causal
        As in the forward pass.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of softmax_backward.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray or GpuArray
        dx, of y's shape and dtype; a GpuArray if an array is one.

    Raises
    ------
    WebnormError
        For the same reasons as `softmax`.

    References
    ----------
    The formula follows from `softmax` by the chain rule.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> y, dy = np.array([[0.5, 0.5], [1, 0]], np.float32)
    >>> webnorm.softmax_backward(dy, y)
    array([ 0.25, -0.25], dtype=float32)
    """
    given = {"scale": scale, "causal": causal, "kernel": kernel, "device": device}
    return _softmax_backward(dy, y, dim, given)


def log_softmax_backward(
    dy: A,
    y: AnyArray,
    dim: int = -1,
    *,
    scale: float = 1.0,
    causal: str | None = None,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Return the gradient of `log_softmax`: dx = scale * (dy - exp(y) * sum(dy)).

    Parameters
    ----------
    dy, y, dim, scale, causal, kernel, device
        As for `softmax_backward`.

    Returns
    -------
    numpy.ndarray or GpuArray
        As for `softmax_backward`.

    Raises
    ------
    WebnormError
        For the same reasons as `softmax`.

    References
    ----------
    The formula follows from `log_softmax` by the chain rule.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> y, dy = np.log(np.array([0.5, 0.5], np.float32)), np.array([1, 0], np.float32)
    >>> webnorm.log_softmax_backward(dy, y).round(3)
    array([ 0.5, -0.5], dtype=float32)
    """
    given = {"scale": scale, "causal": causal, "log": True, "kernel": kernel, "device": device}
    return _softmax_backward(dy, y, dim, given)


def _softmax_backward(dy: A, y: AnyArray, dim: int, given: dict[str, Any]) -> A:
    """Compute the op softmax_backward. `given` has its other arguments."""
    check_array_type("y", y, known=STORAGE)
    check_like_x("dy", dy, y)
    axis = axis_of("dim", dim, y.ndim)
    rows = rows_of(y, (axis,), "y")
    queries = queries_of(y, axis, is_masked=given["causal"] is not None)
    if not y.size:
        return cast("A", empty_like(y))
    shape = (-1, queries, rows.array.shape[1])
    of_dy = rows_of(dy, (axis,), "dy").array
    dx = op_function("softmax_backward")(rows.array.reshape(shape), of_dy.reshape(shape), **given)
    return cast("A", rows.restored(dx))
