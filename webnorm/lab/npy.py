"""An array in an .npy file, which may hold any bytes."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from webnorm.errors import WebnormError
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
            if not shape or shape[-1] < 1:
                raise WebnormError(
                    f"{path}: expected an array of one or more dimensions and one column or more"
                )
            name = next((name for name in STORAGE if DTYPES[name] == dtype), None)
            if name is None:
                raise WebnormError(f"{path}: dtype is {dtype}; expected {', '.join(STORAGE)}")
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
