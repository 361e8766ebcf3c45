"""Arrays that stay on the device between calls."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from webnorm import session
from webnorm.device import Device
from webnorm.errors import WebnormError
from webnorm.plan import write
from webnorm.problem import DTYPES, Array


class _Storage:
    """A pooled buffer that goes back when no array needs it any more."""

    def __init__(self, device: Device, data_bytes: int) -> None:
        pool = session.session_of(device).pool
        self.buffer = pool.take(device, data_bytes)
        weakref.finalize(self, pool.give_back, self.buffer).atexit = False


class GpuArray:
    """An array on a device: what functions give for GpuArrays, so that a chain of calls copies nothing.

    Made by `GpuArray.from_numpy`, brought back by `numpy`. Its elements are in C order and do not change.
    It is one of float32, float16, bfloat16, and as results float8_e4m3fn, float8_e5m2 and int8.
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], storage: _Storage
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self._storage = storage

    @classmethod
    def from_numpy(cls, array: Array, device: Device | None = None) -> GpuArray:
        """Copy a NumPy array to a device; None is the one that calls share.

        Raises WebnormError for anything else than a NumPy array of one of the types above, and for one
        that is larger than the device's buffers.
        """
        check_type("array", array, device_arrays=False)
        with session.lock:
            found = cls.empty(array.shape, array.dtype, device or session.default_device())
            if array.size:
                write(found.device, found.buffer, array)
        return found

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> GpuArray:
        """An array with room for its elements, which are what was there before."""
        with session.lock:
            return cls(device, shape, dtype, _Storage(device, math.prod(shape) * dtype.itemsize))

    @property
    def buffer(self) -> Any:
        """Wgpu's buffer; the elements are at its beginning and room for a guard behind them."""
        return self._storage.buffer

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    def numpy(self) -> Array:
        """A copy as a NumPy array, once the device is done with it."""
        return read(self.device, self.buffer, self.shape, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a GpuArray cannot be seen from NumPy without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def reshape(self, *shape: int | Sequence[int]) -> GpuArray:
        """The same elements in another shape, in C order; one dimension may be -1. Nothing is copied.

        Raises WebnormError for a shape of another size.
        """
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        try:
            wanted = [operator.index(n) for n in given]  # type: ignore[arg-type]
        except TypeError:
            raise WebnormError(f"cannot reshape to {given!r}; expected ints") from None
        known = math.prod(n for n in wanted if n != -1)
        if wanted.count(-1) == 1 and known > 0:
            wanted[wanted.index(-1)] = self.size // known
        if math.prod(wanted) != self.size or any(n < 0 for n in wanted):
            raise WebnormError(f"cannot reshape {self.shape} to {tuple(given)}: the sizes differ")
        return GpuArray(self.device, tuple(wanted), self.dtype, self._storage)

    def piece(self, first: int, count: int) -> GpuArray:
        """A copy of `count` elements from `first` on, one-dimensional; both ends on whole words."""
        found = GpuArray.empty((count,), self.dtype, self.device)
        handle = self.device.handle
        with session.lock:
            encoder = handle.create_command_encoder()
            size = self.dtype.itemsize
            encoder.copy_buffer_to_buffer(self.buffer, first * size, found.buffer, 0, count * size)
            handle.queue.submit([encoder.finish()])
        return found

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a GpuArray without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"GpuArray(shape={self.shape}, dtype={self.dtype}, device={self.device.adapter.name!r})"


def read(device: Device, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The array at the beginning of a buffer, as a new NumPy array."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    with session.lock:
        raw = device.handle.queue.read_buffer(buffer, 0, -(-size // 4) * 4)
    return np.frombuffer(raw, np.uint8)[:size].view(dtype).reshape(shape)


def check_type(
    name: str, array: object, device_arrays: bool = True, known: Sequence[str] = tuple(DTYPES)
) -> None:
    """Raise WebnormError for what is no array, or one of another type than those known."""
    kinds = (np.ndarray, GpuArray) if device_arrays else (np.ndarray,)
    if not isinstance(array, kinds):
        wanted = "a NumPy array or a GpuArray" if device_arrays else "a NumPy array"
        raise WebnormError(f"{name} is a {type(array).__name__}; expected {wanted}")
    if isinstance(array, np.ma.MaskedArray):
        raise WebnormError(f"{name} is a masked array; expected one without a mask: {name}.filled(value)")
    if array.dtype not in [DTYPES[dtype] for dtype in known]:
        raise WebnormError(
            f"{name} has dtype {array.dtype}; expected {', '.join(known)}: "
            f"cast it, as with {name}.astype(np.float32)"
        )
