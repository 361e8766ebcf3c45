"""Arrays that stay on the device between calls."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from webnorm.calls import session
from webnorm.errors import WebnormError, described, shown
from webnorm.gpu.buffers import write
from webnorm.gpu.device import Device
from webnorm.gpu.pool import BufferPool, read_buffers
from webnorm.op.dtypes import DTYPE_NAMES, DTYPES, Array, expected_dtype
from webnorm.op.registry import default_op

# A tuple comes first: isinstance with the abstract class takes several times as long.
_LISTS = (tuple, Sequence, np.ndarray)
# NumPy's limit, and a number that is below the limit of every version.
_MOST_DIMENSIONS, _FEW_DIMENSIONS = 64, 16


class DeviceBuffer:
    """A buffer of a pool. It returns to the pool when no array uses it any more."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, pool: BufferPool, device: Device, buffer: Any) -> None:
        self.buffer = buffer
        pool.lend(self, device.gate, buffer)


class GpuArray:
    """An array on a device.

    Functions return GpuArrays for GpuArrays, so a chain of calls copies nothing. Create one with
    `GpuArray.from_numpy`, and copy it back with `numpy`. Its elements are in C order and never change.

    Attributes
    ----------
    device : Device
        The device of the array.
    shape : tuple of int
        The size of each dimension.
    dtype : numpy.dtype
        float32, float16 or bfloat16; results may also be float8_e4m3fn, float8_e5m2 or int8.

    Examples
    --------
    >>> import numpy as np
    >>> import webnorm
    >>> x = webnorm.GpuArray.from_numpy(np.array([[1, 2, 3, 4]], np.float32))
    >>> x.shape, x.nbytes
    ((1, 4), 16)
    >>> y = webnorm.layer_norm(x, 4)
    >>> type(y).__name__
    'GpuArray'
    >>> y.numpy().round(3)
    array([[-1.342, -0.447,  0.447,  1.342]], dtype=float32)
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], storage: DeviceBuffer
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self._storage = storage

    @classmethod
    def from_numpy(cls, array: Array, device: Device | None = None) -> GpuArray:
        """Copy a NumPy array to a device.

        Parameters
        ----------
        array : numpy.ndarray
            Array of any shape; float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8, int32 or
            uint32.
        device : Device, optional
            A device from `webnorm.open_device`. Default: the shared device.

        Returns
        -------
        GpuArray
            The copy.

        Raises
        ------
        WebnormError
            array is not a NumPy array of such a dtype, array is larger than the device's largest buffer, or
            device is not a Device.
        """
        check_array_type("array", array, device_arrays=False)
        check_device(device)
        device = device or session.default_device()
        with device.gate:
            found = cls._empty(array.shape, array.dtype, device)
            if array.size:
                write(device, found.buffer, array)
            return found

    @classmethod
    def _empty(cls, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> GpuArray:
        """Return an array with uninitialized elements."""
        with device.gate:
            pool = session.session_of(device).pool
            buffer = pool.take(device, math.prod(shape) * dtype.itemsize)
            return cls(device, shape, dtype, DeviceBuffer(pool, device, buffer))

    @property
    def buffer(self) -> Any:
        """The wgpu buffer. It begins with the elements, and has room for guard words after them."""
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
        """The size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    def numpy(self) -> Array:
        """Wait for the device, and return a copy as a NumPy array."""
        staging = session.session_of(self.device).staging
        (array,) = read_buffers(self.device, staging, [(self.buffer, self.shape, self.dtype)])
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a GpuArray cannot be seen from NumPy without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __copy__(self) -> GpuArray:
        """Return the array itself, since its elements do not change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuArray:
        """Return the array itself, since its elements do not change."""
        return self

    def __reduce__(self) -> Any:
        raise WebnormError("a GpuArray belongs to this process; pickle its numpy() instead")

    def reshape(self, *shape: SupportsIndex | Sequence[int]) -> GpuArray:
        """Return the same elements in another shape, in C order, without a copy.

        Parameters
        ----------
        shape : int or sequence of int
            The new sizes. One of them may be -1: it follows from the others.

        Returns
        -------
        GpuArray
            An array that shares the buffer.

        Raises
        ------
        WebnormError
            The shape has another number of elements, or NumPy's arrays cannot have it.
        """
        given = shape[0] if len(shape) == 1 else shape
        found = ints(given)
        if found is None:
            raise WebnormError(f"cannot reshape to {shown(given)}; expected ints")
        if found == self.shape:
            return self
        wanted = list(found)
        if wanted.count(-1) == 1:
            known = -math.prod(wanted)
            if known > 0:
                wanted[wanted.index(-1)] = self.size // known
        if math.prod(wanted) != self.size or min(wanted, default=0) < 0:
            raise WebnormError(f"cannot reshape {self.shape} to {shown(found)}: the sizes differ")
        if not self.size or len(wanted) > _FEW_DIMENSIONS:
            try:
                # With elements, only the number of dimensions can still be invalid.
                np.empty([0] * len(wanted) if self.size else wanted, self.dtype)
            except ValueError as error:
                raise WebnormError(f"cannot reshape {self.shape} to {shown(found)}: {error}") from error
        return GpuArray(self.device, tuple(wanted), self.dtype, self._storage)

    def split(self, sizes: Sequence[int]) -> list[GpuArray]:
        """Copy consecutive runs of elements into one-dimensional arrays.

        Parameters
        ----------
        sizes : sequence of int
            The number of elements of each array. The first begins at element 0.

        Returns
        -------
        list of GpuArray
            One array per size.

        Raises
        ------
        WebnormError
            The sizes add up to more than the array has, or one of them is not a multiple of 4 bytes.
        """
        itemsize = self.dtype.itemsize
        whole = ints(sizes)
        if whole is None or min(whole, default=0) < 0 or sum(whole) > self.size:
            raise WebnormError(
                f"sizes is {shown(sizes)}; expected ints of 0 or more that add up to {self.size} at most"
            )
        if any(size * itemsize % 4 for size in whole):
            raise WebnormError(f"sizes is {shown(sizes)}; expected multiples of 4 bytes in {self.dtype}")
        found = []
        with self.device.gate:
            handle = self.device.handle
            encoder = handle.create_command_encoder()
            begin = 0
            for size in whole:
                found.append(GpuArray._empty((size,), self.dtype, self.device))
                nbytes = size * itemsize
                if nbytes:
                    encoder.copy_buffer_to_buffer(self.buffer, begin, found[-1].buffer, 0, nbytes)
                begin += nbytes
            handle.queue.submit([encoder.finish()])
            del encoder
            return found

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a GpuArray without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"GpuArray(shape={self.shape}, dtype={self.dtype}, device={self.device.adapter.name!r})"


_ANY_KIND = (np.ndarray, GpuArray)


def check_array(name: str, array: object, device_arrays: bool = True) -> None:
    """Raise WebnormError if `array` is not an array."""
    if not isinstance(array, _ANY_KIND if device_arrays else np.ndarray):
        wanted = "a NumPy array or a GpuArray" if device_arrays else "a NumPy array"
        kind = described(array)
        if type(array).__module__.partition(".")[0] == "dask":
            kind, wanted = (
                "a dask array",
                f"{wanted}: for dask arrays, call webnorm.dask.{default_op().name} and the like",
            )
        raise WebnormError(f"{name} is {kind}; expected {wanted}")
    # NumPy imports np.ma on first use, which would take 10 ms of a first call.
    if type(array) not in _ANY_KIND and isinstance(array, np.ma.MaskedArray):
        raise WebnormError(f"{name} is a masked array; expected one without a mask: {name}.filled(value)")


def check_array_type(
    name: str, array: object, device_arrays: bool = True, known: Sequence[str] = tuple(DTYPES)
) -> None:
    """Raise WebnormError if `array` is not an array, or its dtype is not among the `known`."""
    check_array(name, array, device_arrays)
    dtype = array.dtype  # type: ignore[attr-defined]
    if DTYPE_NAMES.get(dtype) not in known:
        raise WebnormError(f"{name} has dtype {dtype_text(dtype)}; {expected_dtype(name, dtype, known)}")


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as text for a message."""
    return str(dtype) if dtype.names is None else "of a record"


def check_device(device: object) -> None:
    """Raise WebnormError if `device` is neither None nor a Device."""
    if device is not None and not isinstance(device, Device):
        raise WebnormError(f"device is {described(device)}; expected one from webnorm.open_device")


def ints(given: object) -> tuple[int, ...] | None:
    """Return an int, or a sequence of ints, as a tuple; None for other values, such as a bool or bytes."""
    # The most frequent types come first.
    if type(given) is int:
        return (given,)
    if type(given) is tuple and set(map(type, given)) == {int}:
        return given
    listed: Any = (given,) if isinstance(given, int | np.integer) else given
    if not isinstance(listed, _LISTS) or isinstance(listed, str | bytes | bytearray):
        return None
    if np.ndim(listed) != 1 if isinstance(listed, np.ndarray) else len(listed) > _MOST_DIMENSIONS:
        return None
    try:
        found = tuple(map(operator.index, listed))
    except TypeError:
        return None
    return None if any(isinstance(one, bool) for one in listed) else found
