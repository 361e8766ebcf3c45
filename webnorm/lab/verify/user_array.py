"""An array of the user's own: in an .npy file, which may hold any bytes, or in memory."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from webnorm import signals
from webnorm.errors import WebnormError, sentence, shown
from webnorm.files.atomic import opened
from webnorm.op.dtypes import DTYPES, STORAGE, Array, read_back_from

# More than any adapter takes in one buffer.
_MOST_BYTES = 1 << 32
# Rows and columns: an array is taken as a matrix, as the messages that users know say.
# Characters of what NumPy says of a header, which quotes it.
_MOST_WORDS = 200
# What NumPy writes for types without named fields.
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_rows(path: Path, dtypes: Sequence[str] = ()) -> tuple[Array, str]:
    """An array (..., cols) as rows and columns, and the name of its storage type: one of `dtypes`, any where
    there are none. Bytes, as which NumPy's files keep bfloat16, are of that type where `dtypes` say so.

    Raises WebnormError for a file that cannot be read, a dtype that is no storage type, or none of those, no
    dimension, or fewer bytes than its header promises.
    """
    try:
        with opened(path, _MOST_BYTES) as file:
            shape, fortran, stored = _header(file, path)
            name = _storage(shape, stored, f"{path}", dtypes)
            dtype = DTYPES[name]
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


def as_rows(array: Array, name: str, dtypes: Sequence[str] = ()) -> tuple[Array, str]:
    """The same of an array of a caller's, which is called so: a copy, as they may go on with it.

    Raises WebnormError for what is no array, or none that a file might hold.
    """
    if not isinstance(array, np.ndarray):
        raise WebnormError(f"{name} is {shown(array)}; expected a NumPy array, or the path of an .npy file")
    dtype = _storage(array.shape, array.dtype, name, dtypes)
    return array.reshape(-1, array.shape[-1]).copy().view(DTYPES[dtype]), dtype


def _storage(shape: tuple[int, ...], dtype: np.dtype[Any], where: str, dtypes: Sequence[str]) -> str:
    """The storage type of an array that has rows and columns of one."""
    if not shape or shape[-1] < 1:
        raise WebnormError(
            f"{where}: shape is {shape}; expected an array of one or more dimensions and one column or more"
        )
    kept_as = read_back_from(dtype, STORAGE)
    name = next((name for name in STORAGE if DTYPES[name] == dtype or name in kept_as), None)
    if name is None:
        raise WebnormError(f"{where}: dtype is {dtype}; expected {', '.join(STORAGE)}")
    if kept_as and not dtypes:
        raise WebnormError(
            f"{where}: dtype is {dtype}, as which NumPy's files keep {name}; with --dtype {name} "
            f"(dtype={name!r}) it is read so"
        )
    if dtypes and name not in dtypes:
        kept = f", as which NumPy's files keep {name}" if kept_as else ""
        raise WebnormError(
            f"{where}: dtype is {dtype}{kept}; expected {', '.join(dtypes)}, as --dtype (dtype=) says"
        )
    return name


def _header(file: BinaryIO, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype; WebnormError where that is not understood."""
    try:
        version = npy.read_magic(file)
    except (ValueError, TypeError):  # TypeError: a device that would block gives NumPy None
        file.seek(0)
        raise WebnormError(f"{path}: cannot read the array: it is {_kind_of(file)}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, dtype = _HEADERS[version](file)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is {shape}")
    except OSError:
        raise
    except Exception as error:
        signals.let_through(error)
        # The header is Python text that NumPy evaluates, and what that raises for any bytes is nowhere told.
        why = sentence(str(error), _MOST_WORDS) or type(error).__name__
        raise WebnormError(f"{path}: cannot read the array: NumPy refuses its header: {why}") from None
    return tuple(map(int, shape)), fortran, dtype


def _kind_of(file: BinaryIO) -> str:
    """What a file is that is no .npy file, by how it begins, and what makes one of it."""
    begin = file.read(9) or b""  # None of a device that would block
    if begin.startswith(b"PK"):
        return "an .npz archive; expected one array: numpy.save('x.npy', numpy.load(FILE)['NAME'])"
    if begin[8:] == b"{":
        return "a safetensors file; expected one array of it, as numpy.save writes it"
    return "no .npy file; expected what numpy.save writes"
