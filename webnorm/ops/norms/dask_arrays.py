"""LayerNorm and RMSNorm, forward and backward, on dask arrays: larger than memory, or on many machines.

`webnorm.dask` is the public name of this module and documents it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from webnorm.calls import session
from webnorm.calls.arrays import GpuArray
from webnorm.errors import WebnormError, described, shown
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Op, Tensor
from webnorm.op.registry import OPS
from webnorm.ops.norms.resolved import (
    DtypeLike,
    Given,
    NormOutput,
    ResolvedCall,
    Rounding,
    backward_result,
    checked,
    computed,
    forward_result,
    shape_of,
)
from webnorm.system import library

if TYPE_CHECKING:
    import dask.array as da
else:
    da = library("dask.array", "webnorm.dask", "webnorm[cluster]", "Array", "blockwise", "reduction")

# Sizes along each dimension; nan where dask does not know them.
_Chunks = tuple[tuple[Any, ...], ...]


def layer_norm(
    x: da.Array,
    normalized_shape: int | Sequence[int],
    weight: Array | da.Array | None = None,
    bias: Array | da.Array | None = None,
    eps: float = 1e-5,
    *,
    residual: da.Array | None = None,
    residual_bias: Array | da.Array | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    rounding: Rounding = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    scale_block: int = 0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: None = None,
) -> da.Array | NormOutput[Any]:
    """Normalize a dask array as `webnorm.layer_norm` does.

    Parameters
    ----------
    x : dask.array.Array
        Array of shape `leading + normalized_shape`; float32, float16 or bfloat16. Leading dimensions may be
        unknown (nan). `normalized_shape` must lie in one chunk.
    residual : dask.array.Array, optional
        Array of x's shape. It is rechunked to x's chunks.
    kernel : str or pathlib.Path, optional
        As for `webnorm.layer_norm`. Every process that computes blocks reads the path.
    device : None
        Each process opens its own device, which WEBNORM_ADAPTER selects.
    normalized_shape, weight, bias, eps, residual_bias, zero_centered_weight, weight_offset
        As for `webnorm.layer_norm`.
    rounding, return_stats, out_dtype, scale, scale_block, max_workgroups
        As for `webnorm.layer_norm`.

    Returns
    -------
    dask.array.Array or NormOutput
        y with x's chunks, or a NormOutput of dask arrays, as for `webnorm.layer_norm`. The `amax` of a float8
        y is the maximum over all blocks. Results of one `dask.compute` share the calls of the blocks.

    Raises
    ------
    WebnormError
        For the same reasons as `webnorm.layer_norm`; errors in shapes, dtypes and options are raised at once.
        Also if chunks split `normalized_shape`, if chunks of unknown size differ from x's, or for a device.

    Examples
    --------
    >>> import dask.array as da
    >>> import webnorm.dask
    >>> x = da.ones((6, 4), dtype="float32", chunks=(2, 4))
    >>> y = webnorm.dask.layer_norm(x, 4)
    >>> y.chunks
    ((2, 2, 2), (4,))
    >>> y.compute().sum().item()
    0.0
    """
    return forward_result(_lazy("layer_norm", locals()))


def rms_norm(
    x: da.Array,
    normalized_shape: int | Sequence[int],
    weight: Array | da.Array | None = None,
    eps: float | None = None,
    *,
    bias: Array | da.Array | None = None,
    residual: da.Array | None = None,
    residual_bias: Array | da.Array | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    rounding: Rounding = None,
    return_stats: bool = False,
    out_dtype: DtypeLike = None,
    scale: float = 1.0,
    scale_block: int = 0,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: None = None,
) -> da.Array | NormOutput[Any]:
    """Normalize a dask array as `webnorm.rms_norm` does.

    Parameters
    ----------
    x, residual, kernel, device
        As for `webnorm.dask.layer_norm`.
    normalized_shape, weight, eps, bias, residual_bias, zero_centered_weight, weight_offset
        As for `webnorm.rms_norm`.
    rounding, return_stats, out_dtype, scale, scale_block, max_workgroups
        As for `webnorm.rms_norm`.

    Returns
    -------
    dask.array.Array or NormOutput
        As for `webnorm.dask.layer_norm`.

    Raises
    ------
    WebnormError
        For the same reasons as `webnorm.dask.layer_norm`.
    """
    return forward_result(_lazy("rms_norm", locals()))


def layer_norm_backward(
    dy: da.Array,
    x: da.Array,
    normalized_shape: int | Sequence[int],
    weight: Array | da.Array | None = None,
    *,
    eps: float = 1e-5,
    stats: da.Array | None = None,
    dh: da.Array | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    bias_grad: bool = True,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: None = None,
) -> tuple[Any, ...]:
    """Return the gradients of `layer_norm` as dask arrays.

    Each block sums its rows in float32. The sums of the blocks are added in float64, as a tree, and rounded
    once.

    Parameters
    ----------
    dy, x, stats, dh : dask.array.Array
        As for `webnorm.layer_norm_backward`. dy, stats and dh are rechunked to x's chunks.
    kernel, device
        As for `webnorm.dask.layer_norm`.
    normalized_shape, weight, eps, zero_centered_weight, weight_offset, bias_grad, residual_bias_grad
        As for `webnorm.layer_norm_backward`.
    max_workgroups
        As for `webnorm.layer_norm_backward`.

    Returns
    -------
    tuple
        As for `webnorm.layer_norm_backward`. dx has x's chunks; the sums over rows have one chunk.

    Raises
    ------
    WebnormError
        For the same reasons as `webnorm.dask.layer_norm`.
    """
    return backward_result(OPS["layer_norm_backward"], _lazy("layer_norm_backward", locals()))


def rms_norm_backward(
    dy: da.Array,
    x: da.Array,
    normalized_shape: int | Sequence[int],
    weight: Array | da.Array | None = None,
    *,
    eps: float | None = None,
    stats: da.Array | None = None,
    dh: da.Array | None = None,
    zero_centered_weight: bool = False,
    weight_offset: float = 0.0,
    bias_grad: bool = False,
    residual_bias_grad: bool = False,
    max_workgroups: int = 0,
    kernel: str | Path | None = None,
    device: None = None,
) -> tuple[Any, ...]:
    """Return the gradients of `rms_norm` as dask arrays.

    Parameters, results and errors are as for `webnorm.dask.layer_norm_backward`, with the defaults of
    `webnorm.rms_norm_backward`.
    """
    return backward_result(OPS["rms_norm_backward"], _lazy("rms_norm_backward", locals()))


class _Unknown(int):
    """A number of rows that dask does not know: 0 for the checks, nan in messages."""

    def __repr__(self) -> str:
        return "nan"


class _Outline(GpuArray):
    """A stand-in for a dask array that the checks of arguments accept: a shape and a dtype."""

    def __init__(self, array: da.Array) -> None:
        self.shape = tuple(_Unknown() if math.isnan(size) else int(size) for size in array.shape)
        self.dtype = array.dtype


def _lazy(name: str, given: Given) -> dict[str, da.Array]:
    """Return every output of an op by name, like `ops.norms.resolved.computed`, as dask arrays."""
    op, x, device = OPS[name], given["x"], given["device"]
    if device is not None:
        raise WebnormError(
            f"device is {shown(device)}; expected None: each process that computes blocks opens its own, "
            "which WEBNORM_ADAPTER selects"
        )
    resolved = checked(op, {**given, **_outlines(op, given)})
    session.check_kernel(op, given["kernel"])
    shape, problem = shape_of(given["normalized_shape"]), resolved.task.problem
    _check_whole(x, shape)
    rows = x.chunks[: x.ndim - len(shape)]
    # The graph contains the checked values, since an argument may be an int of thousands of digits.
    read = {"normalized_shape": shape, "max_workgroups": problem.options.max_workgroups}
    if "scale_block" in given:
        read["scale_block"] = problem.options.scale_block
    records = _records(op, _arrays(resolved, given, rows), {**given, **read}, len(rows))
    found = {}
    for tensor in op.outputs(problem):
        dtype, dimensions = DTYPES[tensor.dtype(problem)], resolved.shapes[tensor.name]
        if tensor.batched:
            found[tensor.name] = _picked(records, tensor, rows, dimensions[len(rows) :], dtype)
        else:
            # There is one element for each block.
            ones = tuple((1,) * len(sizes) for sizes in rows)
            parts = _picked(records, tensor, ones, dimensions, DTYPES["float32"])
            found[tensor.name] = _over_blocks(parts, tensor, len(rows), dtype)
    return found


def _outlines(op: Op, given: Given) -> dict[str, _Outline]:
    """Return outlines of the dask arrays among the arguments; raise WebnormError for other types."""
    found = {}
    for name, tensor in op.named.items():
        array = given.get(name)
        if tensor.access != "read" or (array is None and tensor.option is not None):
            continue
        if isinstance(array, da.Array):
            if type(array._meta) is not np.ndarray:
                kind = type(array._meta).__name__
                raise WebnormError(f"{name} is a dask array of {kind} blocks; expected NumPy arrays")
            found[name] = _Outline(array)
        elif tensor.batched or not isinstance(array, np.ndarray):
            wanted = "a dask array" if tensor.batched else "a NumPy array or a dask array"
            raise WebnormError(f"{name} is {described(array)}; expected {wanted}")
    return found


def _check_whole(x: da.Array, shape: tuple[int, ...]) -> None:
    """Raise WebnormError if a normalized dimension has more than one chunk."""
    parted = {at: sizes for at, sizes in enumerate(x.chunks[-len(shape) :], -len(shape)) if len(sizes) > 1}
    if parted:
        wanted = ", ".join(f"{at}: -1" for at in parted)
        raise WebnormError(
            f"x has chunks {shown(tuple(parted.values()))} along normalized_shape {shown(shape)}; "
            f"expected one each: x.rechunk({{{wanted}}})"
        )


def _like_x(name: str, array: da.Array, rows: _Chunks) -> da.Array:
    """Return an array with the chunks of x's rows; its other dimensions become one chunk."""
    others = tuple((sum(sizes),) for sizes in array.chunks[len(rows) :])
    # dask has a single nan object, so unknown sizes compare equal too.
    if array.chunks == (*rows, *others):
        return array
    if math.isnan(sum(map(sum, (*rows, *array.chunks)))):
        raise WebnormError(
            f"{name} has chunks {shown(array.chunks[: len(rows)])} along its rows; expected x's "
            f"{shown(rows)}, or known sizes of both: call their compute_chunk_sizes()"
        )
    return array.rechunk((*rows, *others))


def _whole(array: Array | da.Array) -> da.Array:
    """Return a parameter as one chunk, which is one key of the graph for all blocks."""
    return array.rechunk(-1) if isinstance(array, da.Array) else da.from_array(array, chunks=-1)


def _arrays(resolved: ResolvedCall, given: Given, rows: _Chunks) -> dict[str, da.Array]:
    """Return the arrays of a call by name, with matching chunks."""
    op, problem = resolved.task.op, resolved.task.problem
    found = {
        name: _like_x(name, given[name], rows) if op.named[name].batched else _whole(given[name])
        for name in resolved.arrays
    }
    if op.gradient and problem.dtype != "float32":
        # A block's sums have the dtype of weight, or x's. A narrow dtype would round them, or overflow,
        # before they are added.
        shape = shape_of(given["normalized_shape"])
        weight = found.get("weight", _whole(np.ones(shape, np.float32)))
        found["weight"] = weight.astype(np.float32)
    return found


def _records(op: Op, arrays: Mapping[str, da.Array], given: Given, leading: int) -> da.Array:
    """Return an array of objects with one element per block of x: the outputs of the block by name."""
    pairs: list[Any] = []
    ndim = arrays["x"].ndim
    for name, array in arrays.items():
        tensor = op.named[name]
        own = range(leading, ndim) if tensor.wide else (ndim,)
        pairs += [array, (*range(leading), *own) if tensor.batched else tuple(own)]
    others = {name: value for name, value in given.items() if name not in arrays}
    return da.blockwise(
        partial(_computed, op=op.name, names=tuple(arrays), given=others),
        tuple(range(ndim)),
        *pairs,
        adjust_chunks=dict.fromkeys(range(ndim), 1),
        # The chunks match x's already, and unknown sizes cannot be aligned.
        align_arrays=False,
        concatenate=True,
        token=op.name,
        dtype=object,
        meta=np.empty((0,) * ndim, object),
    )


def _computed(*blocks: Array, op: str, names: Sequence[str], given: Given) -> Array:
    """Compute one block, and return it as an element of `_records`. It is a task of the graph."""
    arrays = dict(zip(names, blocks, strict=True))
    record = np.empty((1,) * arrays["x"].ndim, object)
    record.fill(computed(OPS[op], {**given, **arrays}))
    return record


def _picked(
    records: da.Array, tensor: Tensor, rows: _Chunks, own: tuple[int, ...], dtype: np.dtype[Any]
) -> da.Array:
    """Return one output of every block, with the chunks `rows` along the leading dimensions."""
    leading, ndim = len(rows), records.ndim
    new = {ndim + at: size for at, size in enumerate(own)}
    return da.blockwise(
        partial(_output, name=tensor.name, ones=0 if tensor.batched else leading),
        (*range(leading), *new),
        records,
        tuple(range(ndim)),
        new_axes=new,
        adjust_chunks=dict(enumerate(rows)),
        align_arrays=False,
        concatenate=True,
        token=tensor.name,
        dtype=dtype,
        meta=np.empty((0,) * (leading + len(own)), dtype),
    )


def _output(record: Array, name: str, ones: int) -> Array:
    """Return an output of a block, after `ones` dimensions of size 1. It is a task of the graph."""
    found: Array = record.item()[name]
    return found.reshape((1,) * ones + found.shape)


def _over_blocks(parts: da.Array, tensor: Tensor, leading: int, dtype: np.dtype[Any]) -> da.Array:
    """Reduce the blocks' parts of an output without rows: as a tree in float64, rounded once."""
    reduced = partial(_reduced, reduce=np.max if tensor.name == "amax" else np.sum)
    wide = partial(reduced, stored=np.dtype(np.float64))
    return da.reduction(
        parts,
        chunk=wide,
        combine=wide,
        aggregate=partial(reduced, stored=dtype),
        axis=tuple(range(leading)),
        dtype=dtype,
        meta=np.empty((0,) * (parts.ndim - leading), dtype),
    )


def _reduced(
    parts: Array,
    axis: tuple[int, ...],
    keepdims: bool,
    reduce: Callable[..., Array],
    stored: np.dtype[Any],
) -> Array:
    """Reduce the parts of some blocks. It is a task of the graph."""
    # Infinities, NaN and overflows of a narrow type are valid results, as in the kernels.
    with np.errstate(over="ignore", invalid="ignore"):
        return reduce(parts.astype(np.float64), axis=axis, keepdims=keepdims).astype(stored)
