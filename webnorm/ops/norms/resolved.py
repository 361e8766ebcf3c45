"""Resolution of a public function's arguments: the arrays, the problem, and the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from operator import itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import numpy as np

from webnorm import signals
from webnorm.calls.arrays import GpuArray, check_array, check_array_type, check_device, dtype_text, ints
from webnorm.calls.call import AnyArray, compute
from webnorm.errors import WebnormError, shown, unknown
from webnorm.gpu.device import Device
from webnorm.op.dtypes import (
    DTYPE_NAMES,
    DTYPES,
    DTYPES_ELSEWHERE,
    NARROWING,
    OF_OUTPUTS,
    STORAGE,
    Array,
    expected_dtype,
)
from webnorm.op.op import Op, Task, Tensor
from webnorm.ops.copy.problem import EPS, SCALE
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import BEFORE_WEIGHT, WEIGHT_OFFSET, NormOptions, NormProblem

# The arguments of a public function by name. Arguments with the names of an op's inputs are its arrays. An
# option without an array has an argument of its name, or NAME_grad if it requests a gradient.
Given = Mapping[str, Any]


class ResolvedCall(NamedTuple):
    """The resolved arguments: the task, the names of the arrays, and the shapes of the outputs by name."""

    task: Task
    arrays: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]


# Resolved calls by everything that the checks read. A full cache is cleared, which is safe with several
# threads.
_known: dict[tuple[Hashable, ...], ResolvedCall] = {}
MOST_KNOWN = 1024
# The types that a key may contain. An array, which NumPy may accept as a dtype, would stay in memory.
_PLAIN = (str, int, float, NoneType, tuple, type, np.dtype, np.generic)


@signals.deferring
def computed(op: Op, given: Given) -> dict[str, Any]:
    """Compute every output of an op, in the shapes that x's dimensions imply.

    Raises
    ------
    WebnormError
        Arguments are incompatible or unsupported by the op, or `compute` fails.
    """
    try:
        key = _key(op, given)
        resolved = _known.get(key)
    except Exception as error:  # an argument is not an array, or not hashable: `checked` raises below
        signals.let_through(error)
        key, resolved = (), None
    if resolved is None:
        resolved = checked(op, given)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        if key and all(isinstance(part, _PLAIN) for part in key):
            _known[key] = resolved
    device = given["device"]
    check_device(device)
    arrays = {name: given[name] for name in resolved.arrays}
    keep = isinstance(given["x"], GpuArray)
    return compute(
        resolved.task, arrays, device=device, kernel=given["kernel"], keep=keep, shapes=resolved.shapes
    )


_Getter = Callable[[Given], tuple[Any, ...]]
# By op: the getter of the arrays among the arguments, and the getter of other arguments that are checked.
_getters: dict[str, tuple[_Getter, _Getter]] = {}


def _key(op: Op, given: Given) -> tuple[Hashable, ...]:
    """Return a key of everything that the checks of arguments read, without the arrays."""
    arrays, others = _getters.get(op.name) or _getters.setdefault(op.name, _getters_of(op, given))
    of_arrays = [None if one is None else (type(one), one.shape, one.dtype) for one in arrays(given)]
    rest = others(given)
    # 1, 1.0 and True are equal, so the key contains types.
    return op.name, ints(given["normalized_shape"]), *of_arrays, *rest, *map(type, rest)


def _getters_of(op: Op, given: Given) -> tuple[_Getter, _Getter]:
    arrays = [name for name in given if name in op.named]
    others = [name for name in given if name not in (*arrays, "normalized_shape", "kernel", "device")]
    return itemgetter(*arrays), itemgetter(*others)


def checked(op: Op, given: Given) -> ResolvedCall:
    """Check and resolve every argument. Only the type, shape and dtype of arrays are used.

    Raises
    ------
    WebnormError
        Arguments are incompatible, or unsupported by the op.
    """
    shape, x = shape_of(given["normalized_shape"]), given["x"]
    leading = leading_of(x, shape)
    arrays = {"x": x, **_rows(op, given, leading)}
    without_rows = {one.name for one in op.tensors if one.access == "read" and not one.batched}
    given_parameters, weight_dtype = parameters(
        {name: value for name, value in given.items() if name in without_rows}, shape, x
    )
    arrays |= given_parameters
    eps = None if given["eps"] is None and not has_mean(op) else EPS.number(given["eps"])
    scale = SCALE.number(given.get("scale", 1.0))
    options = NormOptions(weight_dtype=weight_dtype, **_options(op, given, arrays))
    if "residual" in arrays and arrays["residual"].dtype != x.dtype:
        options = replace(options, residual_dtype=DTYPE_NAMES[arrays["residual"].dtype])
    problem = op.problem(
        math.prod(leading),
        math.prod(shape),
        dtype=DTYPE_NAMES[x.dtype],
        options=options,
        distribution="given",
        eps=eps,
        scale=scale,
    )
    shapes = {tensor.name: _shape(tensor, problem, leading, shape) for tensor in op.outputs(problem)}
    return ResolvedCall(Task(op, problem), tuple(arrays), shapes)


def _rows(op: Op, given: Given, leading: tuple[int, ...]) -> dict[str, AnyArray]:
    """Return the arrays with rows other than x."""
    found = {}
    for tensor in op.tensors:
        if tensor.access == "read" and tensor.batched and tensor.name != "x":
            array = given[tensor.name]
            if array is None and tensor.option is not None:
                continue
            if tensor.wide:
                check_like_x(tensor.name, array, given["x"], own_dtype=tensor.storage != "dtype")
            else:
                check_stats(array, leading, *map(int, tensor.inner_shape))
            found[tensor.name] = array
    return found


def _options(op: Op, given: Given, arrays: Mapping[str, AnyArray]) -> dict[str, Any]:
    """Return the requested options, from arrays or from arguments, without the arrays' dtypes."""
    inputs = [tensor for tensor in op.tensors if tensor.access == "read"]
    brought = {tensor.option: tensor.name for tensor in inputs}
    storages = {tensor.storage for tensor in inputs}
    found: dict[str, Any] = {}
    for name in op.options:
        if name in brought:
            found[name] = brought[name] in arrays
        elif name not in storages:
            argument = name if name in given else f"{name}_grad"
            found[name] = _option(name, argument, given[argument])
    if found.get("out_dtype") == DTYPE_NAMES[arrays["x"].dtype]:
        found["out_dtype"] = None
    return found


def _option(name: str, argument: str, value: Any) -> Any:
    if name == "out_dtype":
        return None if value is None else dtype_name(value, argument)
    if name in ("max_workgroups", "scale_block"):
        return as_count(argument, value)
    if name == "rounding":
        return as_rounding(argument, value)
    if name == "weight_offset":
        return WEIGHT_OFFSET.number(value, argument)
    return as_flag(argument, value)


def _shape(
    tensor: Tensor, problem: NormProblem, leading: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...]:
    own = shape if tensor.wide else tensor.shape_in(problem)[int(tensor.batched) :]
    if tensor.name == "y_scale" and not problem.options.scale_block:
        own = ()
    return (*leading, *own) if tensor.batched else own


# --- checks that name the value and what was expected

# The largest integer of WGSL.
_MOST = (1 << 31) - 1
# Python's own type comes first: isinstance with the abstract class takes several times as long.
_INTEGRAL = (int, Integral)


def shape_of(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the trailing dimensions as a tuple; an int stands for one."""
    shape = ints(normalized_shape)
    if not shape or min(shape) < 0:
        raise WebnormError(
            f"normalized_shape is {shown(normalized_shape)}; expected an int or a non-empty sequence of ints"
        )
    if 0 in shape:
        raise WebnormError(
            f"normalized_shape is {shown(normalized_shape)}; expected one element or more to normalize over"
        )
    return shape


def leading_of(x: AnyArray, shape: tuple[int, ...], name: str = "x") -> tuple[int, ...]:
    """Return the dimensions before the normalized ones; raise WebnormError if x does not end in those."""
    check_array_type(name, x, known=STORAGE)
    leading = len(x.shape) - len(shape)
    if leading < 0 or x.shape[leading:] != shape:
        raise WebnormError(
            f"{name} has shape {x.shape}; expected it to end in normalized_shape {shown(shape)}"
        )
    return x.shape[:leading]


def check_like_x(name: str, array: AnyArray, x: AnyArray, own_dtype: bool = False) -> None:
    """Raise WebnormError if an array does not have x's shape, and x's dtype or a storage type of its own."""
    if own_dtype:
        check_array_type(name, array, known=STORAGE)
    else:
        check_array(name, array)
    if array.shape != x.shape:
        raise WebnormError(f"{name} has shape {array.shape}; expected x's {x.shape}")
    if array.dtype != x.dtype and not own_dtype:
        expected = expected_dtype(name, array.dtype, [DTYPE_NAMES[x.dtype]], f"x's {x.dtype}")
        raise WebnormError(f"{name} has dtype {dtype_text(array.dtype)}; {expected}")


def parameters(
    given: Mapping[str, AnyArray | None], shape: tuple[int, ...], x: AnyArray
) -> tuple[dict[str, AnyArray], str | None]:
    """Return the parameters that are not None, and the name of their dtype if it is not x's."""
    found: dict[str, AnyArray] = {}
    dtype = x.dtype
    for name, array in given.items():
        if array is None:
            continue
        check_array(name, array)
        if array.shape != shape:
            raise WebnormError(f"{name} has shape {array.shape}; expected normalized_shape {shape}")
        if array.dtype not in (x.dtype, DTYPES["float32"]):
            wanted = "float32" if x.dtype == DTYPES["float32"] else f"x's {x.dtype} or float32"
            expected = expected_dtype(name, array.dtype, [DTYPE_NAMES[x.dtype]], wanted)
            raise WebnormError(f"{name} has dtype {dtype_text(array.dtype)}; {expected}")
        for other, before in found.items():
            if before.dtype != array.dtype:
                raise WebnormError(
                    f"{name} has dtype {array.dtype}, but {other} {before.dtype}; expected one dtype for both"
                )
        found[name] = array
        dtype = array.dtype
    return found, None if dtype == x.dtype else DTYPE_NAMES[dtype]


def check_stats(stats: AnyArray, leading: tuple[int, ...], width: int) -> None:
    """Raise WebnormError if stats cannot come from the forward pass of such an x."""
    check_array("stats", stats)
    wanted = (*leading, width)
    if stats.shape != wanted or stats.dtype != DTYPES["float32"]:
        raise WebnormError(
            f"stats is {dtype_text(stats.dtype)} of shape {stats.shape}; expected the forward pass's, "
            f"float32 of shape {wanted}"
        )


def as_count(name: str, value: int) -> int:
    """Return the value as an int; raise WebnormError if it is not an integer of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, _INTEGRAL):
        raise WebnormError(f"{name} is {shown(value)}; expected an int of 0 or more")
    if value < 0:
        raise WebnormError(f"{name} is {shown(value)}; expected 0 or more")
    # A larger number than any device's number of workgroups has no effect.
    return min(int(value), _MOST)


def as_rounding(name: str, value: object) -> Rounding:
    """Return the value; raise WebnormError if it is neither None nor "before_weight"."""
    if value is None:
        return None
    if isinstance(value, str) and value == BEFORE_WEIGHT:
        return BEFORE_WEIGHT
    raise WebnormError(f"{name} is {shown(value)}; expected {BEFORE_WEIGHT!r}, or None to round once")


def as_flag(name: str, value: object) -> bool:
    """Return the value as a bool; raise WebnormError if it is neither a bool nor 0 or 1."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise WebnormError(f"{name} is {shown(value)}; expected True or False")


def dtype_name(dtype: Any, name: str = "dtype", known: Sequence[str] = NARROWING) -> str:
    """Return the name of a type that is given by name, as a NumPy dtype or as a scalar type."""
    found: object = dtype
    if not isinstance(dtype, str):
        try:
            found = np.dtype(dtype).name
        except Exception as error:  # NumPy raises many types
            signals.let_through(error)
            found = None
    if found in known:
        return str(found)
    if isinstance(dtype, str | np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        elsewhere = OF_OUTPUTS if tuple(known) == STORAGE else None
        raise unknown(name, found, known, DTYPES_ELSEWHERE.get(str(found)), elsewhere)
    # np.dtype also accepts None, numbers and lists, so the error shows the argument.
    raise WebnormError(f"{name} is {shown(dtype)}; expected one of {', '.join(known)}")


# --- the results of calls, and the arguments that do not affect their types

# The type of x, and of the results.
A = TypeVar("A", Array, GpuArray)
# The storage types of a y without a scale, and with one.
Plain = Literal["float32", "float16", "bfloat16"]
Scaled = Literal["float8_e4m3fn", "float8_e5m2", "int8"]
# The places of roundings; None for one at the end.
Rounding = Literal["before_weight"] | None
# One of these names, or a value that np.dtype accepts; None for x's.
DtypeLike = str | np.dtype[Any] | type[Any] | None


class ForwardArguments(TypedDict, total=False):
    """Arguments of the forward functions that do not affect the type of the result."""

    residual_bias: AnyArray | None
    zero_centered_weight: bool
    weight_offset: float
    rounding: Rounding
    scale: float
    scale_block: int
    max_workgroups: int
    kernel: str | Path | None
    device: Device | None


class BackwardArguments(TypedDict, total=False):
    """Arguments of the gradients that do not affect the type of the result."""

    stats: AnyArray | None
    dh: AnyArray | None
    zero_centered_weight: bool
    weight_offset: float
    max_workgroups: int
    kernel: str | Path | None
    device: Device | None


@dataclass(frozen=True)
class NormOutput(Generic[A]):
    """The results of a forward pass.

    Results that you did not ask for are None. `leading` stands for x's dimensions before the normalized ones.
    All results are NumPy arrays, or GpuArrays if x is one.

    Attributes
    ----------
    y : numpy.ndarray or GpuArray
        The normalized array, of x's shape.
    h : numpy.ndarray, GpuArray or None
        x + residual + residual_bias, of x's shape and residual's dtype. Pass it to the next residual
        connection.
    stats : numpy.ndarray, GpuArray or None
        Statistics of every row, float32. LayerNorm: mean, mean_low and rstd, of shape `leading + (3,)`.
        RMSNorm: rstd, of shape `leading + (1,)`. The backward pass accepts them unchanged.
    y_scale : numpy.ndarray, GpuArray or None
        float32 of shape `leading`, with an int8 y: y * y_scale[..., None] approximates the norm. With
        `scale_block` it is of shape `leading + (blocks,)`.
    amax : numpy.ndarray, GpuArray or None
        float32 of shape (1,), with a float8 y: the largest absolute value of y before `scale` was applied.
    scale_inv : numpy.ndarray, GpuArray or None
        float32 of shape (1,), with a float8 y: 1 / scale, so that y * scale_inv approximates the norm.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> out = webnorm.layer_norm(x, 4, out_dtype="int8")
    >>> out.y.dtype, out.y_scale.shape
    (dtype('int8'), (1,))
    >>> out.h is None
    True
    """

    y: A
    h: A | None = None
    stats: A | None = None
    y_scale: A | None = None
    amax: A | None = None
    scale_inv: A | None = None

    @property
    def mean(self) -> Array | None:
        """The means of the rows in float32, of shape `leading`. None without stats, and for RMSNorm."""
        return self._statistic(-3)

    @property
    def mean_low(self) -> Array | None:
        """The rounding errors of the means. mean + mean_low has twice the digits of float32."""
        return self._statistic(-2)

    @property
    def rstd(self) -> Array | None:
        """1 / sqrt(var + eps) of the rows, of shape `leading`. None without stats."""
        return self._statistic(-1)

    def _statistic(self, place: int) -> Array | None:
        if self.stats is None or self.stats.shape[-1] < -place:
            return None
        if isinstance(self.stats, GpuArray):
            raise WebnormError("the statistics are on the device; call stats.numpy() to copy them")
        return self.stats[..., place]


def forward_result(found: dict[str, Any]) -> AnyArray | NormOutput[Any]:
    """Return the result of a forward function, from the outputs of its op by name: y, or a NormOutput."""
    y: AnyArray = found["y"]
    if len(found) == 1:
        return y
    if "amax" in found:
        both = found["amax"]
        parts = both.split((1, 1)) if isinstance(both, GpuArray) else (both[:1], both[1:])
        found["amax"], found["scale_inv"] = parts
    return NormOutput(**found)


def backward_result(op: Op, found: dict[str, Any]) -> tuple[Any, ...]:
    """Return the result of a gradient, from the outputs of its op by name.

    The gradients that torch returns have a fixed place, and are None if absent. The others follow.
    """
    always = ("dx", "dweight", "dbias") if has_mean(op) else ("dx", "dweight")
    return (*map(found.get, always), *(array for name, array in found.items() if name not in always))
