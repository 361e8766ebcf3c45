"""LayerNorm and RMSNorm, forward and backward, on NumPy arrays and on GpuArrays.

The names, meanings and defaults follow torch.nn.functional, and some arguments that torch lacks follow
TransformerEngine. Each function passes on all of its arguments by name: these are the names of its op's
tensors and options.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from webnorm.calls.call import AnyArray
from webnorm.gpu.device import Device
from webnorm.op.registry import OPS
from webnorm.ops.norms.resolved import (
    A,
    BackwardArguments,
    DtypeLike,
    ForwardArguments,
    Given,
    NormOutput,
    Plain,
    Rounding,
    Scaled,
    backward_result,
    computed,
    forward_result,
)


@overload
def layer_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: None = None,
    return_stats: Literal[False] = False,
    out_dtype: Plain | None = None,
    **more: Unpack[ForwardArguments],
) -> A: ...
@overload
def layer_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: AnyArray | None = None,
    return_stats: bool = False,
    out_dtype: Scaled,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def layer_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: AnyArray | None = None,
    return_stats: Literal[True],
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def layer_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: AnyArray,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def layer_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: AnyArray | None = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> A | NormOutput[A]: ...
def layer_norm(
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    residual: AnyArray | None = None,
    residual_bias: AnyArray | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    rounding: Rounding = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    scale_block: int = 0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | NormOutput[Any]:
    """Normalize the trailing dimensions of x to mean 0 and variance 1, then scale and shift.

    The result is y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance. The semantics
    match torch.nn.functional.layer_norm. With `residual`, the function normalizes h = x + residual +
    residual_bias, rounded to residual's dtype. All arithmetic is float32.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of shape `leading + normalized_shape`, with any number of leading dimensions. The dtype is
        float32, float16 or bfloat16. With a GpuArray the results are GpuArrays.
    normalized_shape : int or sequence of int
        The trailing dimensions to normalize over. An int stands for one dimension.
    weight : numpy.ndarray or GpuArray, optional
        Factor of shape `normalized_shape`; the dtype is x's or float32. Default: no factor. All parameters
        must have the same dtype.
    bias : numpy.ndarray or GpuArray, optional
        Offset with the shape and dtype of `weight`. Default: no offset.
    eps : float, default 1e-5
        Number added to the variance, 0 or more.
    residual : numpy.ndarray or GpuArray, optional
        Array of x's shape that is added to x first; float32, float16 or bfloat16. `h` has its dtype.
    residual_bias : numpy.ndarray or GpuArray, optional
        Vector with the shape and dtype of `weight` that is added to h: the bias of the projection that made
        x. It requires `residual`.
    zero_centered_weight : bool, default False
        Multiply by 1 + weight. It stands for `weight_offset` 1.
    weight_offset : float, default 0.0
        Multiply by weight_offset + weight.
    rounding : {"before_weight"}, optional
        Round the normalized x to x's dtype before `weight` multiplies it, as Llama and ONNX do, and then the
        product and the sum with bias. These have x's dtype, or float32 if the parameters have another dtype.
        Default: round once, at the end, as torch does.
    return_stats : bool, default False
        Also return the statistics of the rows, which the backward pass accepts.
    out_dtype : str, numpy.dtype or type, optional
        Storage type of y: "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2" or "int8". An int8
        y has one scale per row. Default: x's dtype.
    scale : float, default 1.0
        Factor that multiplies a float8 y before it is rounded.
    scale_block : int, default 0
        Number of columns that share a scale of an int8 y: 32, 64 or 128; 0 for a scale per row.
    max_workgroups : int, default 0
        Largest number of workgroups to dispatch, which leaves room for other work on the device. 0 is no
        limit.
    kernel : str or pathlib.Path, optional
        Name or path of the kernel. Default, also "auto": the recorded tuning, or else the choice of the
        rules.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray, GpuArray or NormOutput
        y, a new array of x's shape. You get a NormOutput with `residual`, with `return_stats`, and with a
        float8 or int8 `out_dtype`.

    Raises
    ------
    WebnormError
        An argument has the wrong shape, dtype or type. Arrays are on different devices. The kernel is unknown
        or cannot run the problem. The problem is larger than the device's buffers. There is no adapter.

    Notes
    -----
    Arrays that are not contiguous are copied. If a leading dimension is 0, y is empty. A row with NaN or Inf
    gives NaN (with int8, in its `y_scale`) on adapters that follow IEEE 754, and does not change any other
    row.

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization", 2016, arXiv:1607.06450.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> webnorm.layer_norm(x, 4).round(3)
    array([[-1.342, -0.447,  0.447,  1.342]], dtype=float32)
    >>> webnorm.layer_norm(x, 4, return_stats=True).mean
    array([2.5], dtype=float32)
    """
    return forward_result(computed(OPS["layer_norm"], locals()))


@overload
def rms_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: None = None,
    return_stats: Literal[False] = False,
    out_dtype: Plain | None = None,
    **more: Unpack[ForwardArguments],
) -> A: ...
@overload
def rms_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: AnyArray | None = None,
    return_stats: bool = False,
    out_dtype: Scaled,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def rms_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: AnyArray | None = None,
    return_stats: Literal[True],
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def rms_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: AnyArray,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> NormOutput[A]: ...
@overload
def rms_norm(
    x: A,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: AnyArray | None = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    **more: Unpack[ForwardArguments],
) -> A | NormOutput[A]: ...
def rms_norm(
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    eps: float | None = None,
    *,
    bias: AnyArray | None = None,
    residual: AnyArray | None = None,
    residual_bias: AnyArray | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    rounding: Rounding = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    scale_block: int = 0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | NormOutput[Any]:
    """Divide the trailing dimensions of x by their root mean square, then scale.

    The result is y = x / sqrt(mean(x²) + eps) * weight, plus `bias` if you pass one. The semantics match
    torch.nn.functional.rms_norm. With `residual`, the function normalizes h = x + residual + residual_bias,
    rounded to x's dtype. All arithmetic is float32.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of shape `leading + normalized_shape`, with any number of leading dimensions. The dtype is
        float32, float16 or bfloat16. With a GpuArray the results are GpuArrays.
    normalized_shape : int or sequence of int
        The trailing dimensions to normalize over. An int stands for one dimension.
    weight : numpy.ndarray or GpuArray, optional
        Factor of shape `normalized_shape`; the dtype is x's or float32. Default: no factor.
    eps : float, optional
        Number added to the mean of the squares, 0 or more. Default: float32's machine epsilon, 2**-23, as in
        torch.
    bias : numpy.ndarray or GpuArray, optional
        Offset with the shape and dtype of `weight`, which torch.nn.functional.rms_norm does not have.
    residual, residual_bias, zero_centered_weight, weight_offset, rounding : optional
        As for `layer_norm`.
    return_stats : bool, default False
        Also return rstd = 1 / sqrt(mean(x²) + eps) of each row, as `stats` of shape `leading + (1,)`.
    out_dtype, scale, scale_block, max_workgroups, kernel, device : optional
        As for `layer_norm`.

    Returns
    -------
    numpy.ndarray, GpuArray or NormOutput
        y, a new array of x's shape. You get a NormOutput with `residual`, with `return_stats`, and with a
        float8 or int8 `out_dtype`.

    Raises
    ------
    WebnormError
        For the same reasons as `layer_norm`.

    References
    ----------
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[3, 4]], np.float32)
    >>> webnorm.rms_norm(x, 2).round(3)
    array([[0.849, 1.131]], dtype=float32)
    >>> out = webnorm.rms_norm(x, 2, residual=np.ones_like(x))
    >>> out.h
    array([[4., 5.]], dtype=float32)
    """
    return forward_result(computed(OPS["rms_norm"], locals()))


@overload
def layer_norm_backward(
    dy: A,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float = 1e-5,
    bias_grad: bool = True,
    residual_bias_grad: Literal[False] = False,
    **more: Unpack[BackwardArguments],
) -> tuple[A, A | None, A | None]: ...
@overload
def layer_norm_backward(
    dy: A,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float = 1e-5,
    bias_grad: bool = True,
    residual_bias_grad: bool,
    **more: Unpack[BackwardArguments],
) -> tuple[A | None, ...]: ...
def layer_norm_backward(
    dy: AnyArray,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float = 1e-5,
    stats: AnyArray | None = None,
    dh: AnyArray | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    bias_grad: bool = True,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of `layer_norm`.

    With x̂ the normalized x and g = dy * weight, the gradients are:

    - dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd + dh
    - dweight, the sum of dy * x̂ over the leading dimensions
    - dbias, the sum of dy over the leading dimensions
    - dresidual_bias, the sum of dx over the leading dimensions

    Parameters
    ----------
    dy : numpy.ndarray or GpuArray
        Gradient of y, of x's shape and dtype.
    x : numpy.ndarray or GpuArray
        The array that the forward pass normalized: its x, or its `h` if it had a residual.
    normalized_shape, weight, zero_centered_weight, weight_offset
        As in the forward pass.
    eps : float, default 1e-5
        As in the forward pass. It is not used if you pass `stats`.
    stats : numpy.ndarray or GpuArray, optional
        Statistics from a forward pass with `return_stats`. Default: compute them again from x.
    dh : numpy.ndarray or GpuArray, optional
        Gradient that reaches h from elsewhere, of x's shape and dtype. It is added to dx.
    bias_grad : bool, default True
        Compute dbias.
    residual_bias_grad : bool, default False
        Compute dresidual_bias.
    max_workgroups : int, default 0
        Largest number of workgroups to dispatch. 0 is no limit.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of layer_norm_backward.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    tuple
        (dx, dweight, dbias), followed by dresidual_bias if you asked for it. dx has x's shape and dtype; with
        a residual it is the gradient of both x and residual. The other gradients have the shape
        `normalized_shape`, and the dtype of weight, or x's dtype without a weight. dweight is None without a
        weight, and dbias is None if `bias_grad` is False. All of them are GpuArrays if x is one.

    Raises
    ------
    WebnormError
        For the same reasons as `layer_norm`.

    References
    ----------
    The formula follows from `layer_norm` by the chain rule, as in torch's native_layer_norm_backward.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> dy = np.array([[1, 0, 0, 0]], np.float32)
    >>> dx, dweight, dbias = webnorm.layer_norm_backward(dy, x, 4, np.ones(4, np.float32))
    >>> dweight.round(3)
    array([-1.342,  0.   ,  0.   ,  0.   ], dtype=float32)
    """
    return _backward("layer_norm_backward", locals())


@overload
def rms_norm_backward(
    dy: A,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float | None = None,
    bias_grad: Literal[False] = False,
    residual_bias_grad: Literal[False] = False,
    **more: Unpack[BackwardArguments],
) -> tuple[A, A | None]: ...
@overload
def rms_norm_backward(
    dy: A,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float | None = None,
    bias_grad: bool = False,
    residual_bias_grad: bool = False,
    **more: Unpack[BackwardArguments],
) -> tuple[A | None, ...]: ...
def rms_norm_backward(
    dy: AnyArray,
    x: AnyArray,
    normalized_shape: int | Sequence[int],
    weight: AnyArray | None = None,
    *,
    eps: float | None = None,
    stats: AnyArray | None = None,
    dh: AnyArray | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    bias_grad: bool = False,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of `rms_norm`.

    With x̂ = x * rstd and g = dy * weight, the gradients are:

    - dx = (g - x̂ * mean(g * x̂)) * rstd + dh
    - dweight, the sum of dy * x̂ over the leading dimensions
    - dbias, the sum of dy over the leading dimensions
    - dresidual_bias, the sum of dx over the leading dimensions

    Parameters
    ----------
    dy : numpy.ndarray or GpuArray
        Gradient of y, of x's shape and dtype.
    x : numpy.ndarray or GpuArray
        The array that the forward pass normalized: its x, or its `h` if it had a residual.
    normalized_shape, weight, zero_centered_weight, weight_offset
        As in the forward pass.
    eps : float, optional
        As in the forward pass. Default: float32's machine epsilon, 2**-23.
    bias_grad : bool, default False
        Compute dbias.
    residual_bias_grad : bool, default False
        Compute dresidual_bias.
    stats, dh, max_workgroups, kernel, device : optional
        As for `layer_norm_backward`.

    Returns
    -------
    tuple
        (dx, dweight), followed by dbias and dresidual_bias if you asked for them. Shapes and dtypes are as
        for `layer_norm_backward`.

    Raises
    ------
    WebnormError
        For the same reasons as `layer_norm`.

    References
    ----------
    The formula follows from `rms_norm` by the chain rule.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[3, 4]], np.float32)
    >>> dx, dweight = webnorm.rms_norm_backward(np.ones_like(x), x, 2, np.ones(2, np.float32))
    >>> dweight.round(3)
    array([0.849, 1.131], dtype=float32)
    """
    return _backward("rms_norm_backward", locals())


def _backward(op: str, given: Given) -> tuple[Any, ...]:
    return backward_result(OPS[op], computed(OPS[op], given))
