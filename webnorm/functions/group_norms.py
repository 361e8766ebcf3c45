"""GroupNorm and InstanceNorm, with the names, meanings and defaults of torch.nn.functional."""

from __future__ import annotations

import math
from numbers import Real
from pathlib import Path
from typing import Any, cast, overload

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array
from webnorm.calls.call import AnyArray
from webnorm.calls.loaded_op import op_function
from webnorm.errors import WebnormError, shown
from webnorm.functions.dimensions import channels_of, check_parameter, empty_like
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPE_NAMES, Array
from webnorm.op.op import Float64Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.resolved import A, NormOutput, as_count, as_flag, check_like_x


@overload
def group_norm(
    x: A,
    num_groups: int,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: None = None,
    channels_last: bool = False,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A: ...
@overload
def group_norm(
    x: A,
    num_groups: int,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: AnyArray,
    channels_last: bool = False,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> NormOutput[A]: ...
def group_norm(
    x: AnyArray,
    num_groups: int,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: AnyArray | None = None,
    channels_last: bool = False,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | NormOutput[Any]:
    """Normalize groups of channels to mean 0 and variance 1, then scale and shift each channel.

    The result is y = act((x - mean) / sqrt(var + eps) * weight + bias). Each group of each batch element has
    its own mean and biased variance. The semantics match torch.nn.functional.group_norm. With
    `residual`, the function normalizes h = x + residual, rounded to x's dtype. All arithmetic is float32.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of shape (N, C, ...), or (N, ..., C) with `channels_last`. The dtype is float32, float16 or
        bfloat16. With a GpuArray the results are GpuArrays.
    num_groups : int
        Number of groups. It must divide C.
    weight : numpy.ndarray or GpuArray, optional
        Factor of shape (C,), of any of these dtypes. Default: no factor.
    bias : numpy.ndarray or GpuArray, optional
        Offset with the shape and dtype of `weight`. Default: no offset.
    eps : float, default 1e-5
        Number added to the variance, 0 or more.
    activation : str, optional
        "silu", "gelu" or "gelu_tanh". Default: none.
    residual : numpy.ndarray or GpuArray, optional
        Array of x's shape and dtype that is added to x first.
    channels_last : bool, default False
        The channels are the last dimension instead of the second.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of the op group_norm. Default, also "auto": the recorded tuning, or else the
        choice of the rules.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray, GpuArray or NormOutput
        y, a new array of x's shape and dtype. With `residual` you get a NormOutput with y and h.

    Raises
    ------
    WebnormError
        An argument has the wrong shape, dtype or type, or num_groups does not divide C. There are no elements
        to normalize. Arrays are on different devices. The kernel is unknown or cannot run the problem.

    Notes
    -----
    If N is 0, y is empty. torch also rejects groups of one element, which webnorm normalizes to 0.

    References
    ----------
    Wu and He, "Group Normalization", 2018, arXiv:1803.08494.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[[1, 2], [3, 4]]], np.float32)
    >>> webnorm.group_norm(x, 1).round(3)
    array([[[-1.342, -0.447],
            [ 0.447,  1.342]]], dtype=float32)
    """
    last = as_flag("channels_last", channels_last)
    channels, spatial = channels_of(x, last)
    if residual is not None:
        check_like_x("residual", residual, x)
    flat = (x.shape[0], channels * spatial)
    groups, given = groups_of(num_groups, channels), parameters_of(x, channels, weight, bias)
    if not x.shape[0]:
        return empty_like(x) if residual is None else NormOutput(empty_like(x), empty_like(x))
    found = op_function("group_norm")(
        x=x.reshape(flat),
        residual=None if residual is None else residual.reshape(flat),
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
    if residual is None:
        y: AnyArray = found.reshape(x.shape)
        return y
    y, h = (one.reshape(x.shape) for one in found)
    return NormOutput(y, h)


def parameters_of(
    x: AnyArray, channels: int, weight: AnyArray | None, bias: AnyArray | None
) -> dict[str, Any]:
    """Return the arguments of an op for the parameters, and their storage type if it is not x's.

    Raises
    ------
    WebnormError
        A parameter does not have one element per channel.
    """
    found: dict[str, Any] = {"weight": False, "bias": False}
    for name, array in (("weight", weight), ("bias", bias)):
        if array is None:
            continue
        check_parameter(name, array, channels)
        found[name] = array
        if array.dtype != x.dtype:
            found.setdefault("weight_dtype", DTYPE_NAMES[array.dtype])
    return found


def groups_of(num_groups: int, channels: int) -> int:
    """Return the number of groups; raise WebnormError if it does not divide the channels."""
    groups = as_count("num_groups", num_groups)
    if not groups or channels % groups:
        raise WebnormError(
            f"num_groups is {shown(num_groups)}; expected a divisor of the {channels} channels"
        )
    return groups


def instance_norm(
    x: A,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Normalize each channel of each batch element, or use running statistics.

    The result is y = (x - mean) / sqrt(var + eps) * weight + bias. The semantics match
    torch.nn.functional.instance_norm: it is `group_norm` with one channel per group. With
    `use_input_stats=False` mean and var are the running ones; then nothing is normalized, and NumPy computes
    the result in float64.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of shape (N, C, ...); float32, float16 or bfloat16.
    running_mean, running_var : numpy.ndarray, optional
        Arrays of shape (C,) of a float dtype. With `use_input_stats` the call replaces their elements by
        (1 - momentum) * running + momentum * the batch's mean, or unbiased variance. NumPy computes these.
    weight, bias : numpy.ndarray or GpuArray, optional
        As for `group_norm`.
    use_input_stats : bool, default True
        Normalize by the statistics of x. If False, both running arrays are required.
    momentum : float, default 0.1
        Share of x's statistics in the new running statistics.
    eps, kernel, device : optional
        As for `group_norm`.

    Returns
    -------
    numpy.ndarray or GpuArray
        y, a new array of x's shape and dtype; a GpuArray if x is one.

    Raises
    ------
    WebnormError
        For the same reasons as `group_norm`. NumPy would have to compute, but x is a GpuArray.

    References
    ----------
    Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016, arXiv:1607.08022.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[[1, 3], [10, 30]]], np.float32)
    >>> webnorm.instance_norm(x).round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    channels, spatial = channels_of(x, channels_last=False)
    running = _running(channels, running_mean, running_var)
    array: Any = x
    if running and isinstance(x, GpuArray):
        raise WebnormError("x is a GpuArray, and NumPy computes with running statistics; pass x.numpy()")
    if not as_flag("use_input_stats", use_input_stats):
        if len(running) < 2:
            raise WebnormError("use_input_stats is False; expected running_mean and running_var with it")
        affine: Any = _affine(array, running, weight, bias, EPS.number(eps))
        return cast("A", affine)
    share = _share(momentum)
    y = group_norm(x, channels, weight, bias, eps, kernel=kernel, device=device)
    if running and x.shape[0]:
        _update(running, array.reshape(-1, channels, spatial), share)
    return y


def _running(channels: int, mean: Array | None, variance: Array | None) -> dict[str, Array]:
    """Return the running statistics that are given; raise WebnormError if one is invalid."""
    found = {}
    for name, array in (("running_mean", mean), ("running_var", variance)):
        if array is None:
            continue
        check_array(name, array, device_arrays=False)
        # The kind of bfloat16 is not "f".
        if array.shape != (channels,) or not (array.dtype.kind == "f" or array.dtype in DTYPE_NAMES):
            raise WebnormError(
                f"{name} is {array.dtype} of shape {array.shape}; expected floats of shape {(channels,)}"
            )
        if not array.flags.writeable:
            raise WebnormError(f"{name} is read-only; expected an array that the call may change")
        found[name] = array
    return found


def _affine(
    x: Array, running: dict[str, Array], weight: AnyArray | None, bias: AnyArray | None, eps: float
) -> Array:
    """Return (x - running_mean) / sqrt(running_var + eps) * weight + bias, in x's dtype."""
    ones = (-1, *[1] * (x.ndim - 2))
    found = {**running}
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            check_parameter(name, given, x.shape[1])
            found[name] = np.asarray(given)
    wide: dict[str, Float64Array] = {
        name: one.astype(np.float64).reshape(ones) for name, one in found.items()
    }
    with np.errstate(all="ignore"):
        normalized = (x - wide["running_mean"]) / np.sqrt(wide["running_var"] + eps)
        return (normalized * wide.get("weight", 1.0) + wide.get("bias", 0.0)).astype(x.dtype)


def _share(momentum: float) -> float:
    valid = isinstance(momentum, Real) and not isinstance(momentum, bool) and math.isfinite(momentum)
    if not valid:
        raise WebnormError(f"momentum is {shown(momentum)}; expected a number")
    return float(momentum)


def _update(running: dict[str, Array], x: Array, share: float) -> None:
    """Move running statistics in place towards the statistics of x (N, C, elements of a channel)."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        unbiased = x.shape[2] / np.float64(x.shape[2] - 1)
        seen = {"running_mean": wide.mean(2).mean(0), "running_var": (wide.var(2) * unbiased).mean(0)}
    for name, array in running.items():
        array[...] = (1.0 - share) * array.astype(np.float64) + share * seen[name]
