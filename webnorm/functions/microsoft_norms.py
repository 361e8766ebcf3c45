"""The normalization operators of onnxruntime's domain com.microsoft as functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array, check_array_type
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, shown
from webnorm.functions.dimensions import channels_of, check_parameter
from webnorm.functions.group_norms import group_norm
from webnorm.op.dtypes import STORAGE, Array
from webnorm.ops.copy.problem import EPS
from webnorm.ops.norms.functional import layer_norm, rms_norm
from webnorm.ops.norms.onnx_ops import rms_normalization
from webnorm.ops.norms.resolved import A, as_flag, check_like_x

# Values of the attribute `activation`.
_ACTIVATIONS = (None, "silu")


def simplified_layer_normalization(
    X: A, scale: AnyArray, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> A:
    """Compute onnxruntime's SimplifiedLayerNormalization: RMSNorm over the dimensions from `axis` on.

    Y = X / sqrt(mean(X²) + epsilon) * scale. ONNX adopted the operator as RMSNormalization, and this function
    is `rms_normalization`. The optional output inv_std_var is left out.

    Parameters
    ----------
    X, scale, axis, epsilon, stash_type
        As for `rms_normalization`.

    Returns
    -------
    numpy.ndarray or GpuArray
        Y of X's shape and scale's dtype; a GpuArray if X is one.

    Raises
    ------
    WebnormError
        For the same reasons as `rms_normalization`.

    References
    ----------
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X = np.array([[3, 4]], np.float32)
    >>> webnorm.simplified_layer_normalization(X, np.ones(2, np.float32)).round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    return rms_normalization(X, scale, axis, epsilon, stash_type)


def skip_layer_normalization(
    input: A,
    skip: AnyArray,
    gamma: AnyArray,
    beta: AnyArray | None = None,
    bias: AnyArray | None = None,
    epsilon: float = 1e-12,
) -> tuple[A, A]:
    """Compute com.microsoft's SkipLayerNormalization: a residual sum, and LayerNorm over the last dimension.

    With h = input + skip + bias, rounded to input's dtype, the output is
    (h - mean) / sqrt(variance + epsilon) * gamma + beta. The outputs mean and inv_std_var are left out.

    Parameters
    ----------
    input : numpy.ndarray or GpuArray
        Array of shape (batch, sequence, hidden), or another that ends in hidden; float32, float16 or
        bfloat16.
    skip : numpy.ndarray or GpuArray
        Array of input's dtype and shape, or one that broadcasts to it, such as (sequence, hidden). A GpuArray
        must have input's shape.
    gamma : numpy.ndarray or GpuArray
        Factor of shape (hidden,).
    beta, bias : numpy.ndarray or GpuArray, optional
        Offsets of shape (hidden,): of the output, and of h.
    epsilon : float, default 1e-12
        Number added to the variance, 0 or more.

    Returns
    -------
    output : numpy.ndarray or GpuArray
        Array of input's shape and dtype; a GpuArray if input is one.
    input_skip_bias_sum : numpy.ndarray or GpuArray
        h, like output.

    Raises
    ------
    WebnormError
        A shape, dtype or epsilon is invalid. float64 is not supported.

    References
    ----------
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> output, h = webnorm.skip_layer_normalization(x, x, np.ones(4, np.float32))
    >>> h
    array([[2., 4., 6., 8.]], dtype=float32)
    """
    hidden, residual = _hidden(input, skip)
    check_parameter("gamma", gamma, hidden)
    eps = EPS.number(epsilon, "epsilon")
    found: Any = layer_norm(input, hidden, gamma, beta, eps, residual=residual, residual_bias=bias)
    return found.y, found.h


def skip_simplified_layer_normalization(
    input: A, skip: AnyArray, gamma: AnyArray, bias: AnyArray | None = None, epsilon: float = 1e-12
) -> tuple[A, A]:
    """Compute com.microsoft's SkipSimplifiedLayerNormalization: a residual sum, and RMSNorm.

    With h = input + skip + bias, rounded to input's dtype, the output is
    h / sqrt(mean(h²) + epsilon) * gamma.

    Parameters
    ----------
    input, skip, gamma, bias, epsilon
        As for `skip_layer_normalization`.

    Returns
    -------
    output, input_skip_bias_sum : numpy.ndarray or GpuArray
        As for `skip_layer_normalization`.

    Raises
    ------
    WebnormError
        For the same reasons as `skip_layer_normalization`.

    References
    ----------
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[1, 1]], np.float32)
    >>> output, h = webnorm.skip_simplified_layer_normalization(x, 2 * x, np.ones(2, np.float32))
    >>> output
    array([[1., 1.]], dtype=float32)
    """
    hidden, residual = _hidden(input, skip)
    check_parameter("gamma", gamma, hidden)
    eps = EPS.number(epsilon, "epsilon")
    found: Any = rms_norm(input, hidden, gamma, eps, residual=residual, residual_bias=bias)
    return found.y, found.h


def _hidden(input: AnyArray, skip: AnyArray) -> tuple[int, AnyArray]:
    """Return the size of input's last dimension, and skip in input's shape."""
    check_array_type("input", input, known=STORAGE)
    if not input.ndim or not input.shape[-1]:
        raise WebnormError(f"input has shape {tuple(input.shape)}; expected one that ends in hidden")
    return input.shape[-1], _broadcast("skip", skip, input, "input")


def _broadcast(name: str, array: AnyArray, x: AnyArray, x_name: str) -> AnyArray:
    """Return an array in x's shape; raise WebnormError if it cannot be broadcast, or is a small GpuArray."""
    check_array(name, array)
    if isinstance(array, np.ndarray) and array.shape != x.shape:
        try:
            array = np.broadcast_to(array, x.shape)
        except ValueError as error:
            raise WebnormError(
                f"{name} has shape {array.shape}; expected one that broadcasts to {x_name}'s {tuple(x.shape)}"
            ) from error
    check_like_x(name, array, x)
    return array


def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: AnyArray,
    beta: AnyArray,
    mask: Array | None = None,
    position_ids: Array | None = None,
    epsilon: float = 1e-12,
) -> tuple[Array, Array, Array]:
    """Compute com.microsoft's EmbedLayerNormalization: LayerNorm of a sum of embeddings.

    NumPy gathers the rows of the tables and adds them in float32; a kernel normalizes the sums.

    Parameters
    ----------
    input_ids : numpy.ndarray
        Ints of shape (batch, sequence): rows of word_embedding.
    segment_ids : numpy.ndarray or None
        Ints of input_ids's shape: rows of segment_embedding. None if there are no segments.
    word_embedding, position_embedding, segment_embedding : numpy.ndarray
        Tables with rows of hidden elements, of one dtype; segment_embedding may be None.
    gamma, beta : numpy.ndarray or GpuArray
        Factor and offset of shape (hidden,).
    mask : numpy.ndarray, optional
        Ints of input_ids's shape, 1 for tokens and 0 for padding.
    position_ids : numpy.ndarray, optional
        Ints of shape (batch, sequence) or (1, sequence): rows of position_embedding. Default: 0, 1, 2, ...
    epsilon : float, default 1e-12
        Number added to the variance, 0 or more.

    Returns
    -------
    output : numpy.ndarray
        Array of shape (batch, sequence, hidden), of the tables' dtype.
    mask_index : numpy.ndarray
        int32 of shape (batch,): the sums of the mask's rows. 0 without a mask.
    embedding_sum : numpy.ndarray
        The array that was normalized, like output.

    Raises
    ------
    WebnormError
        A shape, dtype or epsilon is invalid, or an id is not a row of its table.

    References
    ----------
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> table = np.eye(4, dtype=np.float32)
    >>> ids, ones = np.array([[1, 2]]), np.ones(4, np.float32)
    >>> found = webnorm.embed_layer_normalization(ids, None, table, table, None, ones, 0 * ones)
    >>> found[2]
    array([[[1., 1., 0., 0.],
            [0., 1., 1., 0.]]], dtype=float32)
    """
    word = _gathered("input_ids", input_ids, "word_embedding", word_embedding)
    if word.ndim != 3:
        raise WebnormError(f"input_ids has shape {input_ids.shape}; expected (batch, sequence)")
    if position_ids is None:
        position_ids = np.arange(word.shape[1])[None]
    terms = [word, _gathered("position_ids", position_ids, "position_embedding", position_embedding)]
    if segment_ids is not None and segment_embedding is not None:
        terms.append(_gathered("segment_ids", segment_ids, "segment_embedding", segment_embedding))
    total = terms[0].astype(np.float32)
    for term in terms[1:]:
        if term.dtype != word.dtype or np.broadcast_shapes(term.shape[1:], word.shape[1:]) != word.shape[1:]:
            raise WebnormError(
                f"an embedding is {term.dtype} of shape {term.shape}; expected {word.dtype} of {word.shape}"
            )
        total = total + term.astype(np.float32)
    summed = total.astype(word.dtype)
    check_parameter("gamma", gamma, word.shape[-1])
    check_parameter("beta", beta, word.shape[-1])
    y = layer_norm(summed, summed.shape[-1], gamma, beta, EPS.number(epsilon, "epsilon"))
    return y, _mask_index(mask, word.shape[:2]), summed


def _gathered(name: str, ids: Array, table_name: str, table: Array) -> Array:
    """Return rows of a table."""
    for one, array in ((name, ids), (table_name, table)):
        check_array(one, array, device_arrays=False)
    check_array_type(table_name, table, device_arrays=False, known=STORAGE)
    if table.ndim != 2 or not table.shape[1]:
        raise WebnormError(f"{table_name} has shape {table.shape}; expected (rows, hidden)")
    if ids.dtype.kind not in "iu":
        raise WebnormError(f"{name} has dtype {ids.dtype}; expected ints")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
        wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise WebnormError(f"{name} has the id {wrong}; expected 0 to {len(table) - 1}")
    return table[ids]


def _mask_index(mask: Array | None, shape: tuple[int, ...]) -> Array:
    if mask is None:
        return np.zeros(shape[0], np.int32)
    check_array("mask", mask, device_arrays=False)
    if mask.shape != shape:
        raise WebnormError(f"mask has shape {mask.shape}; expected {shape}")
    sums: Array = mask.sum(axis=1).astype(np.int32)
    return sums


def group_norm_ms(
    X: A,
    gamma: AnyArray,
    beta: AnyArray,
    groups: int,
    activation: int,
    epsilon: float = 1e-5,
    channels_last: int = 1,
) -> A:
    """Compute com.microsoft's GroupNorm, with channels last and SiLU if you ask for it.

    Y = act((X - mean) / sqrt(variance + epsilon) * gamma + beta). The name ends in _ms because torch has a
    function group_norm.

    Parameters
    ----------
    X : numpy.ndarray or GpuArray
        Array of shape (N, H, W, C), or (N, C, H, W) with `channels_last=0`; float32, float16 or bfloat16.
    gamma, beta : numpy.ndarray or GpuArray
        Factor and offset of shape (C,); float32, float16 or bfloat16.
    groups : int
        Number of groups. It must divide C.
    activation : int
        0 for none, 1 for SiLU.
    epsilon : float, default 1e-5
        Number added to the variance, 0 or more.
    channels_last : int, default 1
        1 if the channels are the last dimension, 0 if they are the second.

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
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X, ones = np.array([[[[1, 3]]]], np.float32), np.ones(2, np.float32)
    >>> webnorm.group_norm_ms(X, ones, 0 * ones, groups=1, activation=1).round(3)
    array([[[[-0.269,  0.731]]]], dtype=float32)
    """
    channels, _ = channels_of(X, as_flag("channels_last", channels_last), name="X")
    check_parameter("gamma", gamma, channels)
    check_parameter("beta", beta, channels)
    return group_norm(
        X,
        groups,
        gamma,
        beta,
        EPS.number(epsilon, "epsilon"),
        activation=_activation(activation),
        channels_last=bool(channels_last),
    )


def _activation(activation: object) -> str | None:
    if (
        isinstance(activation, bool)
        or not isinstance(activation, int | np.integer)
        or activation not in (0, 1)
    ):
        raise WebnormError(f"activation is {shown(activation)}; expected 0 (none) or 1 (SiLU)")
    return _ACTIVATIONS[int(activation)]


def skip_group_norm(
    X: A,
    gamma: AnyArray,
    beta: AnyArray,
    skip: AnyArray,
    bias: AnyArray | None = None,
    *,
    groups: int,
    activation: int,
    epsilon: float = 1e-5,
    channels_last: int = 1,
) -> tuple[A, A]:
    """Compute com.microsoft's SkipGroupNorm: a residual sum, and GroupNorm with channels last.

    With S = X + skip + bias, rounded to X's dtype, Y = act((S - mean) / sqrt(variance + epsilon) * gamma +
    beta).

    Parameters
    ----------
    X, gamma, beta, groups, activation, epsilon, channels_last
        As for `group_norm_ms`. The channels must be last.
    skip : numpy.ndarray or GpuArray
        Array of X's dtype and shape. A NumPy array may also have the shape (N, C) or (N, 1, 1, C).
    bias : numpy.ndarray, optional
        Offset of S, of shape (C,) and X's dtype. NumPy adds it to skip in float32.

    Returns
    -------
    Y : numpy.ndarray or GpuArray
        Array of X's shape and dtype; a GpuArray if X is one.
    S : numpy.ndarray or GpuArray
        The sum, like Y.

    Raises
    ------
    WebnormError
        A shape, dtype or attribute is invalid. NumPy would have to add the bias, but skip is a GpuArray.

    References
    ----------
    onnxruntime, docs/ContribOperators.md.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> X, ones = np.array([[[[1, 3]]]], np.float32), np.ones(2, np.float32)
    >>> Y, S = webnorm.skip_group_norm(X, ones, 0 * ones, X, groups=1, activation=0)
    >>> S
    array([[[[2., 6.]]]], dtype=float32)
    """
    if not as_flag("channels_last", channels_last):
        raise WebnormError("channels_last is 0; expected 1, the layout of SkipGroupNorm")
    channels, _ = channels_of(X, channels_last=True, name="X")
    check_parameter("gamma", gamma, channels)
    check_parameter("beta", beta, channels)
    check_array("skip", skip)
    if isinstance(skip, np.ndarray) and skip.shape == (X.shape[0], channels):
        skip = skip.reshape(X.shape[0], *[1] * (X.ndim - 2), channels)
    if bias is not None:
        skip = _with_bias(skip, bias, X, channels)
    found: Any = group_norm(
        X,
        groups,
        gamma,
        beta,
        EPS.number(epsilon, "epsilon"),
        activation=_activation(activation),
        residual=_broadcast("skip", skip, X, "X"),
        channels_last=True,
    )
    return found.y, found.h


def _with_bias(skip: AnyArray, bias: AnyArray, X: AnyArray, channels: int) -> Array:
    """Return skip + bias in X's dtype."""
    check_array("bias", bias)
    if isinstance(skip, GpuArray) or isinstance(bias, GpuArray):
        raise WebnormError("bias is given, and NumPy adds it to skip; expected NumPy arrays as skip and bias")
    for name, array, shape in (("skip", skip, skip.shape), ("bias", bias, (channels,))):
        if array.dtype != X.dtype or array.shape != shape:
            raise WebnormError(
                f"{name} is {array.dtype} of shape {array.shape}; expected X's {X.dtype} of shape {shape}"
            )
    return (skip.astype(np.float32) + bias.astype(np.float32)).astype(X.dtype)
