"""Functions along one axis: normalize and softmax, with torch's names, meanings and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.calls.loaded_op import op_function
from webnorm.errors import WebnormError, shown
from webnorm.functions.dimensions import Rows, axis_of, empty_like, rows_of
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.resolved import A, DtypeLike, check_like_x, dtype_name


def normalize(
    x: A,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    *,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Divide x by its norm along one dimension, or by eps if the norm is smaller.

    The result is y = x / max(norm, eps), with the sum of |x| as norm if p is 1, and the root of the sum of x²
    if p is 2. The semantics match torch.nn.functional.normalize.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of any shape; float32, float16 or bfloat16.
    p : float, default 2.0
        1 or 2.
    dim : int, default 1
        The dimension of the norm. Unless it is the last one, NumPy copies x; a GpuArray is then rejected.
    eps : float, default 1e-12
        Lower limit of the divisor, 0 or more.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of the op l2_norm. Default, also "auto": the choice of the rules.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of x, or the shared device.

    Returns
    -------
    numpy.ndarray or GpuArray
        y, a new array of x's shape and dtype; a GpuArray if x is one.

    Raises
    ------
    WebnormError
        A dtype, dim, p or eps is invalid, or x is a GpuArray and dim is not its last dimension.

    References
    ----------
    torch.nn.functional.normalize, whose formula this is.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.normalize(np.array([[3, 4], [0, 0]], np.float32)).round(3)
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    rows = norm_rows("x", x, dim, "dim", p)
    if not x.size:
        return cast("A", empty_like(x))
    given = {"p": str(int(p)), "eps_mode": "clamp", "eps": EPS.number(eps)}
    y = op_function("l2_norm")(rows.array, kernel=kernel, device=device, **given)
    return cast("A", rows.restored(y))


def norm_rows(name: str, x: AnyArray, axis: int, axis_name: str, p: float) -> Rows:
    """Return x as the rows of a norm; raise WebnormError for another p than 1 or 2."""
    check_array_type(name, x, known=STORAGE)
    if isinstance(p, bool) or not isinstance(p, int | float | np.number) or p not in (1, 2):
        raise WebnormError(f"p is {shown(p)}; expected 1 or 2")
    return rows_of(x, (axis_of(axis_name, axis, x.ndim),), name)


def softmax(
    x: A,
    dim: int = -1,
    *,
    scale: float = 1.0,
    mask: AnyArray | None = None,
    causal: str | None = None,
    fully_masked: str = "nan",
    dtype: DtypeLike = None,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Divide the exponentials of x by their sum along one dimension.

    The result is y = exp(z) / sum(exp(z)) with z = scale * x + mask. The maximum is subtracted first, so that
    nothing overflows. Without the other arguments, the semantics match torch.nn.functional.softmax, and
    ONNX's Softmax from opset 13 with `dim` as axis.

    Parameters
    ----------
    x : numpy.ndarray or GpuArray
        Array of any shape; float32, float16 or bfloat16.
    dim : int, default -1
        The dimension of the sum. Unless it is the last one, NumPy copies x; a GpuArray is then rejected.
    scale : float, default 1.0
        Factor of x.
    mask : numpy.ndarray or GpuArray, optional
        Array of x's dtype that is added, of the shape of x's last two dimensions or of x. A NumPy array may
        also broadcast to x's shape.
    causal : str, optional
        "lower_right" or "upper_left": the corner of x's last two dimensions from which a triangle is hidden,
        in torch's words. Default: no causal mask.
    fully_masked : str, default "nan"
        "nan" or "zeros": the result of rows whose elements are all -inf.
    dtype : str, numpy.dtype or type, optional
        Storage type to which NumPy casts x first. Default: x's dtype.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of the op softmax. Default, also "auto": the choice of the rules.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray or GpuArray
        y, a new array of x's shape, and of x's dtype or `dtype`; a GpuArray if x is one.

    Raises
    ------
    WebnormError
        A shape, dtype, dim or option is invalid. x is a GpuArray and NumPy would have to move or cast it. A
        mask or a causal mask is given, and dim is not the last dimension.

    References
    ----------
    torch.nn.functional.softmax; ONNX operator Softmax, opset 13: https://onnx.ai/onnx/operators/onnx__Softmax.html

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.softmax(np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    >>> webnorm.softmax(np.zeros((2, 2), np.float32), causal="upper_left")
    array([[1. , 0. ],
           [0.5, 0.5]], dtype=float32)
    """
    given = {"scale": scale, "causal": causal, "fully_masked": fully_masked}
    return _softmax(x, dim, mask, dtype, {**given, "kernel": kernel, "device": device})


def log_softmax(
    x: A,
    dim: int = -1,
    *,
    scale: float = 1.0,
    mask: AnyArray | None = None,
    causal: str | None = None,
    fully_masked: str = "nan",
    dtype: DtypeLike = None,
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A:
    """Return the logarithm of `softmax`, computed without taking the logarithm of small numbers.

    The result is y = z - log(sum(exp(z))) with z = scale * x + mask. The semantics match
    torch.nn.functional.log_softmax, and ONNX's LogSoftmax from opset 13 with `dim` as axis.

    Parameters
    ----------
    x, dim, scale, mask, causal, dtype, kernel, device
        As for `softmax`.
    fully_masked : str, default "nan"
        "nan", or "zeros" for -inf, the logarithm of 0.

    Returns
    -------
    numpy.ndarray or GpuArray
        As for `softmax`.

    Raises
    ------
    WebnormError
        For the same reasons as `softmax`.

    References
    ----------
    torch.nn.functional.log_softmax; ONNX operator LogSoftmax, opset 13.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> webnorm.log_softmax(np.array([0, 1000], np.float32))
    array([-1000.,     0.], dtype=float32)
    """
    given = {"scale": scale, "causal": causal, "fully_masked": fully_masked, "log": True}
    return _softmax(x, dim, mask, dtype, {**given, "kernel": kernel, "device": device})


def _softmax(x: A, dim: int, mask: AnyArray | None, dtype: DtypeLike, given: dict[str, Any]) -> A:
    """Compute the op softmax. `given` has its other arguments."""
    check_array_type("x", x, known=STORAGE)
    axis = axis_of("dim", dim, x.ndim)
    if dtype is not None:
        x = _cast(x, dtype)
    rows = rows_of(x, (axis,), "x")
    queries = queries_of(x, axis, is_masked=mask is not None or given["causal"] is not None)
    if not x.size:
        return cast("A", empty_like(x))
    masks: dict[str, Any] = {} if mask is None else _mask(x, mask)
    y = op_function("softmax")(rows.array.reshape(-1, queries, rows.array.shape[1]), **masks, **given)
    return cast("A", rows.restored(y))


def queries_of(x: AnyArray, axis: int, is_masked: bool) -> int:
    """Return the number of queries, which have masks of their own; 1 without a mask.

    Raises
    ------
    WebnormError
        There is a mask, and the axis is not the last of two dimensions or more.
    """
    if not is_masked:
        return 1
    if x.ndim < 2 or axis != x.ndim - 1:
        raise WebnormError(f"dim is {axis}; expected the last of two dimensions or more with a mask")
    return x.shape[-2]


def _cast(x: A, dtype: DtypeLike) -> A:
    wanted = DTYPES[dtype_name(dtype, known=STORAGE)]
    if x.dtype == wanted:
        return x
    if isinstance(x, GpuArray):
        raise WebnormError(f"x is a GpuArray of dtype {x.dtype}, and NumPy casts to {wanted}; pass x.numpy()")
    return x.astype(wanted)


def _mask(x: AnyArray, mask: AnyArray) -> dict[str, AnyArray]:
    """Return a mask as the input of the op softmax that has its shape."""
    shape, whole = tuple(x.shape[-2:]), (-1, *x.shape[-2:])
    check_array_type("mask", mask, known=STORAGE)
    if tuple(mask.shape) == shape:
        return {"mask": mask}
    if isinstance(mask, np.ndarray) and mask.shape != tuple(x.shape):
        try:
            mask = np.broadcast_to(mask, x.shape)
        except ValueError as error:
            raise WebnormError(f"mask has shape {mask.shape}; expected {shape} or x's {x.shape}") from error
    check_like_x("mask", mask, x)
    return {"batch_mask": mask.reshape(whole)}
