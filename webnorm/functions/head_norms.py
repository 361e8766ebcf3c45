"""Norms of the heads of queries and keys, which may lie in a packed array of queries, keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, overload

import numpy as np

from webnorm.calls.arrays import check_array_type
from webnorm.calls.call import AnyArray
from webnorm.calls.loaded_op import op_function
from webnorm.errors import WebnormError
from webnorm.functions.dimensions import empty_like
from webnorm.functions.head_rows import rows_of_heads
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPE_NAMES, STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.resolved import A

_WANTED = "(batch, tokens, heads, dim)"


@overload
def qk_norm(
    q: A,
    k: None = None,
    weight_q: AnyArray | None = None,
    weight_k: None = None,
    bias_q: AnyArray | None = None,
    bias_k: None = None,
    eps: float = 1e-6,
    *,
    norm: str = "rms_norm",
    weight_offset: float = 0.0,
    layout: str = "tokens_first",
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> A: ...
@overload
def qk_norm(
    q: A,
    k: AnyArray,
    weight_q: AnyArray | None = None,
    weight_k: AnyArray | None = None,
    bias_q: AnyArray | None = None,
    bias_k: AnyArray | None = None,
    eps: float = 1e-6,
    *,
    norm: str = "rms_norm",
    weight_offset: float = 0.0,
    layout: str = "tokens_first",
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> tuple[A, A]: ...
def qk_norm(
    q: AnyArray,
    k: AnyArray | None = None,
    weight_q: AnyArray | None = None,
    weight_k: AnyArray | None = None,
    bias_q: AnyArray | None = None,
    bias_k: AnyArray | None = None,
    eps: float = 1e-6,
    *,
    norm: str = "rms_norm",
    weight_offset: float = 0.0,
    layout: str = "tokens_first",
    kernel: str | Path | None = None,
    device: Device | None = None,
) -> AnyArray | tuple[AnyArray, AnyArray]:
    """Normalize each head of the queries, and of the keys, over its last dimension.

    With the norm "rms_norm" the result is y = x / sqrt(mean(x²) + eps) * (weight + weight_offset) + bias.
    "layer_norm" subtracts the mean first, and divides by sqrt(var + eps). "l2_norm" divides by
    sqrt(sum(x²) + eps). One dispatch computes queries and keys. All arithmetic is float32.

    Parameters
    ----------
    q : numpy.ndarray or GpuArray
        Queries of shape (batch, tokens, heads, dim); float32, float16 or bfloat16. A NumPy array may be a
        view, such as the queries inside of packed queries, keys and values.
    k : numpy.ndarray or GpuArray, optional
        Keys with q's dtype, batch, tokens and dim; the number of heads may differ. Default: no keys.
    weight_q, weight_k : numpy.ndarray or GpuArray, optional
        Factors of shape (dim,), or (heads, dim) for factors of each head; of any of these dtypes. Keys need
        a factor if queries have one. Default: no factors.
    bias_q, bias_k : numpy.ndarray or GpuArray, optional
        Offsets like the factors, with their dtype. Default: no offsets.
    eps : float, default 1e-6
        Number added under the root, 0 or more.
    norm : str, default "rms_norm"
        "rms_norm", "layer_norm" or "l2_norm".
    weight_offset : float, default 0.0
        Number added to the factors, such as 1 for Gemma 3.
    layout : str, default "tokens_first"
        "heads_first" returns (batch, heads, tokens, dim), as attention reads it.
    kernel : str or pathlib.Path, optional
        Name or path of a kernel of the op qk_norm. Default, also "auto": the choice of the rules.
    device : Device, optional
        A device from `webnorm.open_device`. Default: the device of the GpuArrays, or the shared device.

    Returns
    -------
    numpy.ndarray, GpuArray or tuple
        yq, a new array of q's dtype; with k the tuple (yq, yk). They are GpuArrays if an argument is one.

    Raises
    ------
    WebnormError
        A shape, dtype or option is invalid, or elements of q or k overlap in memory.

    Notes
    -----
    A view is read in place if the heads of each token are contiguous and all tokens lie at the same
    distance. Its array also has to reach that far behind the begin of the last token. NumPy copies other
    views first. If k begins directly behind q in the same rows, the rows are uploaded once. Elements between
    tokens are uploaded too, but not read.

    GpuArrays have no views. For a packed GpuArray call `op_function("qk_norm")` with the option `qkv`.

    References
    ----------
    Henry et al., "Query-Key Normalization for Transformers", 2020, arXiv:2010.04245.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> packed = np.array([[[3, 4, 6, 8, 9, 9]]], np.float32)  # a token's query, key and value
    >>> q, k = (packed[..., i : i + 2].reshape(1, 1, 1, 2) for i in (0, 2))
    >>> yq, yk = webnorm.qk_norm(q, k, norm="l2_norm")
    >>> yq.round(3).tolist() == yk.round(3).tolist()
    True
    >>> yq.shape
    (1, 1, 1, 2)
    """
    _check_heads("q", q)
    counts = {"q": q.shape[2]}
    if k is not None:
        _check_keys(k, q)
        counts["k"] = k.shape[2]
    parameters = {"weight_q": weight_q, "weight_k": weight_k, "bias_q": bias_q, "bias_k": bias_k}
    given = _parameters(parameters, counts, q)
    arrays = [q] if k is None else [q, k]
    shapes = [_order(one.shape, layout) for one in arrays]
    if not q.size:
        empty = [empty_like(one).reshape(shape) for one, shape in zip(arrays, shapes, strict=True)]
        return empty[0] if k is None else (empty[0], empty[1])
    found = op_function("qk_norm")(
        **rows_of_heads(*arrays),
        **given,
        eps=EPS.number(eps),
        norm=norm,
        weight_offset=weight_offset,
        layout=layout,
        key=k is not None,
        tokens=q.shape[1],
        q_heads=counts["q"],
        k_heads=counts.get("k", 1),
        dim=q.shape[3],
        kernel=kernel,
        device=device,
    )
    if k is None:
        return cast("AnyArray", found.reshape(shapes[0]))
    yq, yk = (one.reshape(shape) for one, shape in zip(found, shapes, strict=True))
    return yq, yk


def _order(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the shape of the outputs for heads of a shape."""
    batch, tokens, heads, dim = shape
    return (batch, heads, tokens, dim) if layout == "heads_first" else shape


def _check_heads(name: str, x: AnyArray) -> None:
    """Raise WebnormError if x does not have the shape, or the memory, of heads."""
    check_array_type(name, x, known=STORAGE)
    shape = tuple(x.shape)
    if len(shape) != 4:
        raise WebnormError(f"{name} has shape {shape}; expected {_WANTED}")
    if 0 in shape[2:]:
        raise WebnormError(f"{name} has shape {shape}; expected elements to normalize in {_WANTED}")
    if isinstance(x, np.ndarray) and x.size and _overlaps(x):
        raise WebnormError(
            f"{name} has shape {shape} and strides {x.strides}, whose elements overlap; pass {name}.copy()"
        )


def _overlaps(x: Array) -> bool:
    """Return whether a dimension steps over less memory than the dimensions inside of it take."""
    extent = x.itemsize
    for stride, size in sorted((abs(stride), n) for stride, n in zip(x.strides, x.shape, strict=True)):
        if size > 1:
            if stride < extent:
                return True
            extent += stride * (size - 1)
    return False


def _check_keys(k: AnyArray, q: AnyArray) -> None:
    """Raise WebnormError if the keys do not belong to the queries."""
    _check_heads("k", k)
    batch, tokens, _, dim = q.shape
    if (k.shape[0], k.shape[1], k.shape[3]) != (batch, tokens, dim):
        raise WebnormError(
            f"k has shape {tuple(k.shape)}; expected ({batch}, {tokens}, heads, {dim}), as q has it"
        )
    if k.dtype != q.dtype:
        raise WebnormError(f"k has dtype {k.dtype}; expected q's {q.dtype}")


def _parameters(given: dict[str, AnyArray | None], counts: dict[str, int], q: AnyArray) -> dict[str, Any]:
    """Return the op's arguments for weights and biases.

    Raises
    ------
    WebnormError
        Only the queries or only the keys have a parameter, or a shape or dtype is wrong.
    """
    for kind in ("weight", "bias"):
        of_queries, of_keys = f"{kind}_q", f"{kind}_k"
        if given[of_keys] is not None and "k" not in counts:
            raise WebnormError(f"{of_keys} is given, but k is not; expected both or neither")
        if "k" in counts and (given[of_queries] is None) != (given[of_keys] is None):
            present, missing = of_queries, of_keys
            if given[of_queries] is None:
                present, missing = missing, present
            raise WebnormError(f"{present} is given, but {missing} is not; expected both or neither")
    found: dict[str, Any] = {kind: given[f"{kind}_q"] is not None for kind in ("weight", "bias")}
    for name, array in given.items():
        if array is None:
            continue
        check_array_type(name, array, known=STORAGE)
        per_head = found.setdefault("weight_per_head", array.ndim == 2)
        wanted, dim = (counts[name[-1]], q.shape[3]), q.shape[3]
        if tuple(array.shape) != (wanted if per_head else (dim,)):
            both = f"{(dim,)} or {wanted}, and all parameters alike"
            raise WebnormError(f"{name} has shape {tuple(array.shape)}; expected {both}")
        found[name] = array.reshape(-1, dim)
        if array.dtype != q.dtype:
            found.setdefault("weight_dtype", DTYPE_NAMES[array.dtype])
    return found
