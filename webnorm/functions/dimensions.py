"""Dimensions of users' arrays: the axes of a function, and an array as rows over which an op computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.calls.arrays import GpuArray, check_array_type, ints
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError, shown
from webnorm.op.dtypes import STORAGE


@dataclass(frozen=True)
class Rows:
    """An array as rows: `array` (rows, cols), and what `restored` needs to undo this."""

    array: AnyArray
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def restored(self, y: AnyArray) -> AnyArray:
        """Return an array like `array` with the dimensions of the user's array."""
        if isinstance(y, GpuArray):
            return y.reshape(self.shape)
        moved = _order(self.axes, len(self.shape))
        return y.reshape([self.shape[axis] for axis in moved]).transpose(np.argsort(moved))


def axis_of(name: str, axis: object, dimensions: int) -> int:
    """Return an axis as an index of 0 or more. An array without dimensions counts as one element.

    Raises
    ------
    WebnormError
        The axis is no int, or the array does not have it.
    """
    count = max(dimensions, 1)
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -count <= axis < count:
        raise WebnormError(f"{name} is {shown(axis)}; expected an int from {-count} to {count - 1}")
    return int(axis) % count


def axes_of(name: str, axes: object, dimensions: int) -> tuple[int, ...]:
    """Return several different axes in ascending order; raise WebnormError if they are invalid."""
    found = ints(axes)
    if not found:
        raise WebnormError(f"{name} is {shown(axes)}; expected one int or more")
    valid = sorted({axis_of(name, axis, dimensions) for axis in found})
    if len(valid) != len(found):
        raise WebnormError(f"{name} is {shown(axes)}; expected each axis once")
    return tuple(valid)


def rows_of(x: AnyArray, axes: tuple[int, ...], name: str) -> Rows:
    """Return an array as rows, with the elements of `axes` in the columns.

    NumPy copies the elements if the axes are not the last ones.

    Raises
    ------
    WebnormError
        A GpuArray has its axes in another place.
    """
    shape = tuple(x.shape)
    if not shape:
        return Rows(x.reshape(1, 1), shape, ())
    cols = math.prod(shape[axis] for axis in axes)
    rows = math.prod(shape[axis] for axis in range(len(shape)) if axis not in axes)
    if isinstance(x, GpuArray):
        # Dimensions of size 1 have no effect on the order of the elements.
        order = [axis for axis in _order(axes, len(shape)) if shape[axis] != 1]
        if order != sorted(order):
            listed = ", ".join(map(str, axes))
            raise WebnormError(
                f"{name} is a GpuArray of shape {shape}, and its last axes are not {listed}; "
                f"pass {name}.numpy()"
            )
        return Rows(x.reshape(rows, cols), shape, axes)
    return Rows(x.transpose(_order(axes, len(shape))).reshape(rows, cols), shape, axes)


def _order(axes: tuple[int, ...], dimensions: int) -> list[int]:
    """Return the dimensions of an array, with some axes moved to the end."""
    return [axis for axis in range(dimensions) if axis not in axes] + [*axes]


def channels_of(x: AnyArray, channels_last: bool, name: str = "x") -> tuple[int, int]:
    """Return the number of channels of (N, C, ...) or (N, ..., C), and of the elements of a channel.

    Raises
    ------
    WebnormError
        x has fewer than two dimensions, a dtype that is not a storage type, or no elements in a channel.
    """
    check_array_type(name, x, known=STORAGE)
    wanted = "(N, ..., C)" if channels_last else "(N, C, ...)"
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise WebnormError(f"{name} has shape {shape}; expected two dimensions or more, {wanted}")
    if 0 in shape[1:]:
        raise WebnormError(f"{name} has shape {shape}; expected elements to normalize in {wanted}")
    channels = shape[-1] if channels_last else shape[1]
    return channels, math.prod(shape[1:]) // channels


def check_parameter(name: str, array: AnyArray, count: int) -> None:
    """Raise WebnormError if an array is not a vector of `count` elements in a storage type."""
    check_array_type(name, array, known=STORAGE)
    if tuple(array.shape) != (count,):
        raise WebnormError(f"{name} has shape {tuple(array.shape)}; expected {(count,)}")


def empty_like(x: AnyArray) -> Any:
    """Return an array of x's shape, dtype and kind, for an x without elements."""
    empty = np.empty(x.shape, x.dtype)
    return GpuArray.from_numpy(empty, x.device) if isinstance(x, GpuArray) else empty
