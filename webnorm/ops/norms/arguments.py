"""What a caller may hand to the functions: checks that name the value and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from webnorm import signals
from webnorm.calls.arrays import check_array, check_array_type, dtype_text, ints
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, shown, unknown
from webnorm.op.dtypes import DTYPE_NAMES, DTYPES, DTYPES_ELSEWHERE, OF_OUTPUTS, STORAGE, expected_dtype

# What WGSL's integers hold.
_MOST = (1 << 31) - 1
# Python's own types come first: to ask an abstract class takes several times as long.
_INTEGRAL = (int, Integral)


def shape_of(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The trailing dimensions as a tuple; an int stands for one."""
    shape = ints(normalized_shape)
    if not shape or min(shape) < 0:
        raise WebnormError(
            f"normalized_shape is {shown(normalized_shape)}; expected an int or a non-empty sequence of ints"
        )
    if 0 in shape:
        raise WebnormError(
            f"normalized_shape is {shown(normalized_shape)}; expected one element or more to normalise over"
        )
    return shape


def leading_of(x: AnyArray, shape: tuple[int, ...], name: str = "x") -> tuple[int, ...]:
    """The dimensions before the normalised ones; raises WebnormError where x does not end in those."""
    check_array_type(name, x, known=STORAGE)
    leading = len(x.shape) - len(shape)
    if leading < 0 or x.shape[leading:] != shape:
        raise WebnormError(
            f"{name} has shape {x.shape}; expected it to end in normalized_shape {shown(shape)}"
        )
    return x.shape[:leading]


def check_like_x(name: str, array: AnyArray, x: AnyArray) -> None:
    """Raise WebnormError unless an array has x's shape and dtype."""
    check_array(name, array)
    if array.shape != x.shape:
        raise WebnormError(f"{name} has shape {array.shape}; expected x's {x.shape}")
    if array.dtype != x.dtype:
        expected = expected_dtype(name, array.dtype, [DTYPE_NAMES[x.dtype]], f"x's {x.dtype}")
        raise WebnormError(f"{name} has dtype {dtype_text(array.dtype)}; {expected}")


def parameters(
    given: Mapping[str, AnyArray | None], shape: tuple[int, ...], x: AnyArray
) -> tuple[dict[str, AnyArray], str | None]:
    """Those that are given, and their dtype's name where that is not x's."""
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
                    f"{name} has dtype {array.dtype}, but {other} {before.dtype}; parameters share one"
                )
        found[name] = array
        dtype = array.dtype
    return found, None if dtype == x.dtype else DTYPE_NAMES[dtype]


def check_stats(stats: AnyArray, leading: tuple[int, ...], width: int) -> None:
    """Raise WebnormError unless stats is what the forward pass of such an x gives."""
    check_array("stats", stats)
    wanted = (*leading, width)
    if stats.shape != wanted or stats.dtype != DTYPES["float32"]:
        raise WebnormError(
            f"stats is {dtype_text(stats.dtype)} of shape {stats.shape}; expected the forward pass's, "
            f"float32 of shape {wanted}"
        )


def as_count(name: str, value: int) -> int:
    """The value as an int; raises WebnormError for what is none."""
    if isinstance(value, bool) or not isinstance(value, _INTEGRAL):
        raise WebnormError(f"{name} is {shown(value)}; expected an int of 0 or more")
    if value < 0:
        raise WebnormError(f"{name} is {shown(value)}; expected 0 or more")
    # One that is larger than any device's number of workgroups caps nothing.
    return min(int(value), _MOST)


def as_flag(name: str, value: object) -> bool:
    """The value as a bool; raises WebnormError for what is none. 0 and 1 are taken for one."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise WebnormError(f"{name} is {shown(value)}; expected True or False")


def dtype_name(dtype: Any, name: str = "dtype", known: Sequence[str] = tuple(DTYPES)) -> str:
    """The name of a type that is given by name, as a NumPy dtype or as a scalar type."""
    found: object = dtype
    if not isinstance(dtype, str):
        try:
            found = np.dtype(dtype).name
        except Exception as error:  # what NumPy raises depends on what it is asked for
            signals.let_through(error)
            found = None
    if found in known:
        return str(found)
    if isinstance(dtype, str | np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        elsewhere = OF_OUTPUTS if tuple(known) == STORAGE else None
        raise unknown(name, found, known, DTYPES_ELSEWHERE.get(str(found)), elsewhere)
    # NumPy has a type for None, too, and for numbers and lists: the error names what was given.
    raise WebnormError(f"{name} is {shown(dtype)}; expected one of {', '.join(known)}")
