"""An array of the user's own: in an .npy file, which may hold any bytes, or in memory."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from webnorm.errors import WebnormError, shown
from webnorm.files import opened
from webnorm.norms.problem import DTYPES, STORAGE, Array

# More than any adapter takes in one buffer.
_MOST_BYTES = 1 << 32
# What NumPy writes for types without named fields.
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_rows(path: Path) -> tuple[Array, str]:
    """An array (..., cols) as rows and columns, and the name of its storage type.

    Raises WebnormError for a file that cannot be read, a dtype that is no storage type, no dimension, or
    fewer bytes than its header promises.
    """
    try:
        with opened(path, _MOST_BYTES) as file:
            header = _header(file)
            if header is None:
                raise WebnormError(f"{path}: cannot read the array: it is no .npy file")
            shape, fortran, dtype = header
            name = _storage(shape, dtype, f"{path}")
            count = math.prod(shape)
            held = os.fstat(file.fileno()).st_size - file.tell()
            if held < count * dtype.itemsize:
                raise WebnormError(
                    f"{path}: has {held} bytes for an array of shape {shape}; "
                    f"expected {count * dtype.itemsize}"
                )
            array = np.fromfile(file, dtype, count)
    except OSError as error:
        raise WebnormError(f"{path}: cannot read the array: {error.strerror or error}") from error
    whole = array.reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(whole.reshape(-1, shape[-1])), name


def rows_of(array: Array, name: str) -> tuple[Array, str]:
    """The same of an array of a caller's, which is called so: a copy, as they may go on with it.

    Raises WebnormError for what is no array, or none that a file might hold.
    """
    if not isinstance(array, np.ndarray):
        raise WebnormError(f"{name} is {shown(array)}; expected a NumPy array, or the path of an .npy file")
    dtype = _storage(array.shape, array.dtype, name)
    return array.reshape(-1, array.shape[-1]).copy(), dtype


def _storage(shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> str:
    """The storage type of an array that has rows and columns of one."""
    if not shape or shape[-1] < 1:
        raise WebnormError(f"{where}: expected an array of one or more dimensions and one column or more")
    name = next((name for name in STORAGE if DTYPES[name] == dtype), None)
    if name is None:
        raise WebnormError(f"{where}: dtype is {dtype}; expected {', '.join(STORAGE)}")
    return name


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]] | None:
    """Shape, order and dtype; None where that is not understood."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, dtype = _HEADERS[npy.read_magic(file)](file)
    except OSError:
        raise
    except Exception:
        # The header is Python text that NumPy evaluates, and what that raises for any bytes is nowhere told.
        return None
    return (tuple(map(int, shape)), fortran, dtype) if min(shape, default=0) >= 0 else None
