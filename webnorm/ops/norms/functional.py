"""LayerNorm and RMSNorm, forward and backward, on NumPy arrays and on GpuArrays.

Names, meaning and defaults are those of torch.nn.functional and, for what torch lacks, of TransformerEngine.
Each function hands on all of its arguments by their names, which are those of its op's tensors and options.
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
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | NormOutput[Any]:
    """Normalise the trailing dimensions of x to mean 0 and variance 1, then scale and shift.

    y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance (Ba, Kiros and Hinton,
    "Layer Normalization", 2016); the meaning is torch.nn.functional.layer_norm's. With `residual` it is
    h = x + residual + residual_bias that is normalised, rounded to x's dtype first.

    Args:
        x: float32, float16 or bfloat16, any number of leading dimensions and then `normalized_shape`. A
            NumPy array, or a GpuArray: then the results are GpuArrays. All arithmetic is float32.
        normalized_shape: the trailing dimensions to normalise over; an int stands for one.
        weight: of `normalized_shape`, x's dtype or float32; None for 1. All parameters have one dtype.
        bias: as weight; None for 0.
        eps: added to the variance, 0 or more.
        residual: of x's shape and dtype.
        residual_bias: as weight; the bias of the projection that made x. It needs `residual`.
        zero_centered_weight: scale by 1 + weight.
        return_stats: give the rows' statistics too, which the backward pass can take.
        out_dtype: what y is stored as, by name or as a NumPy dtype: "float8_e4m3fn" or "float8_e5m2" (of
            ml_dtypes), "int8" with a scale for each row, float32, float16 or bfloat16. None is x's.
        scale: multiplies a float8 y before it is rounded.
        max_workgroups: above 0, at most so many workgroups, so that other work on the device finds room.
        kernel: name or path of the kernel; None or "auto" takes the recorded tuning or the rules' choice.
        device: a device from `webnorm.open_device`; None is that of the GpuArrays, or one that calls share.

    Returns:
        y, of x's shape, a new array; a NormOutput that names the parts where there are more: with
        `residual`, `return_stats`, or an `out_dtype` of float8 or int8.

        Arrays that are not contiguous are copied; a size of 0 in the leading dimensions gives an empty y. A
        row that holds NaN or Inf comes out as NaN (int8: its y_scale does) on adapters that honour IEEE 754,
        and touches no other row.

    Raises:
        WebnormError: wrong shape, dtype or kind of an argument, arrays on different devices, an unknown
            kernel, a kernel that cannot run the problem, a problem larger than the device's buffers, or no
            adapter.
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
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | NormOutput[Any]:
    """Divide the trailing dimensions of x by their root mean square, then scale.

    y = x / sqrt(mean(x²) + eps) * weight (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019);
    the meaning is torch.nn.functional.rms_norm's. With `bias` it is added.

    Args, results and errors are those of `layer_norm`, except for:
        eps: None is float32's machine epsilon, as in torch, which computes in float32 too.
        bias: an addition of this library; None for 0.
        return_stats: the statistics are rstd = 1 / sqrt(mean(x²) + eps) alone, of shape (*leading, 1).
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
    bias_grad: bool = True,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[Any, ...]:
    """The gradients of `layer_norm`.

    With x̂ the normalised x and g = dy * weight: dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd + dh;
    dweight = sum of dy * x̂ over the leading dimensions, dbias = sum of dy, dresidual_bias = sum of dx. The
    formula follows by the chain rule and is that of torch's native_layer_norm_backward.

    Args:
        dy: the gradient of y, of x's shape and dtype.
        x: what was normalised: x of the forward pass, or its h where that had a residual.
        normalized_shape: as in the forward pass.
        weight: as in the forward pass.
        eps: as in the forward pass; not looked at where `stats` are given.
        stats: those of the forward pass (`return_stats`); None computes them from x anew.
        dh: the gradient that reached h from elsewhere, of x's shape and dtype; it is added to dx.
        zero_centered_weight: as in the forward pass.
        bias_grad: compute dbias.
        residual_bias_grad: compute dresidual_bias.
        max_workgroups: as in the forward pass.
        kernel: as in the forward pass; a kernel of layer_norm_backward.
        device: as in the forward pass.

    Returns:
        (dx, dweight, dbias), and dresidual_bias as a fourth where it is asked for. dx has x's shape and
        dtype; where the forward pass had a residual it is the gradient of both x and residual. The others
        have `normalized_shape` and the dtype of weight, x's without one. dweight is None without weight, and
        dbias without `bias_grad`. All are GpuArrays where x is one.

    Raises:
        WebnormError: as `layer_norm` does.
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
    bias_grad: bool = False,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[Any, ...]:
    """The gradients of `rms_norm`.

    With x̂ = x * rstd and g = dy * weight: dx = (g - x̂ * mean(g * x̂)) * rstd + dh; dweight = sum of dy * x̂
    over the leading dimensions. The formula follows by the chain rule.

    Args and errors are those of `layer_norm_backward`; eps None is float32's machine epsilon.

    Returns:
        (dx, dweight); behind them dbias where `bias_grad` and dresidual_bias where `residual_bias_grad` asks
        for it.
    """
    return _backward("rms_norm_backward", locals())


def _backward(op: str, given: Given) -> tuple[Any, ...]:
    return backward_result(OPS[op], computed(OPS[op], given))
