"""The user's own array: from an .npy file, which may contain any bytes, or from memory."""

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
from webnorm.op.dtypes import DTYPES, STORAGE, Array, expected_dtype, read_back_from

# No adapter supports larger buffers.
_MOST_BYTES = 1 << 32
# The most characters of NumPy's error about a header, which quotes the header.
_MOST_CHARACTERS = 200
# The formats that NumPy writes for types without named fields.
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_rows(path: Path, dtypes: Sequence[str] = ()) -> tuple[Array, str]:
    """Read an array (..., cols) from an .npy file.

    Parameters
    ----------
    path
        The file.
    dtypes
        The allowed storage types; empty for all. NumPy files store bfloat16 as bytes, which are read as
        bfloat16 only if `dtypes` contains it.

    Returns
    -------
    The array of shape (rows, cols), and the name of its storage type.

    Raises
    ------
    WebnormError
        If the file cannot be read, its dtype is not allowed, it has no dimension, or it has fewer bytes than
        its header says.
    """
    try:
        with opened(path, _MOST_BYTES) as file:
            shape, fortran, stored = _header(file, path)
            name = _storage(shape, stored, f"{path}", dtypes)
            dtype = DTYPES[name]
            count = math.prod(shape)
            present = os.fstat(file.fileno()).st_size - file.tell()
            if present < count * dtype.itemsize:
                raise WebnormError(
                    f"{path} contains {present} bytes for an array of shape {shape}, which needs "
                    f"{count * dtype.itemsize}"
                )
            array = np.fromfile(file, dtype, count)
    except OSError as error:
        raise WebnormError(f"{path}: cannot read the array: {error.strerror or error}") from error
    whole = array.reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(whole.reshape(-1, shape[-1])), name


def as_rows(array: Array, name: str, dtypes: Sequence[str] = ()) -> tuple[Array, str]:
    """Return a copy of a caller's array, and its storage type, in the same form as `read_rows`.

    `name` names the array in messages. Raises WebnormError if it is not an array, or not of a storage type.
    """
    if not isinstance(array, np.ndarray):
        raise WebnormError(f"{name} is {shown(array)}; it must be a NumPy array or the path of an .npy file")
    dtype = _storage(array.shape, array.dtype, name, dtypes)
    return array.reshape(-1, array.shape[-1]).copy().view(DTYPES[dtype]), dtype


def _storage(shape: tuple[int, ...], dtype: np.dtype[Any], where: str, dtypes: Sequence[str]) -> str:
    """Return the name of an array's storage type."""
    if not shape or shape[-1] < 1:
        raise WebnormError(
            f"{where}: shape is {shape}; the array must have at least one dimension and one column"
        )
    stored_as = read_back_from(dtype, STORAGE)
    name = next((name for name in STORAGE if DTYPES[name] == dtype or name in stored_as), None)
    if name is None:
        raise WebnormError(f"{where}: dtype is {dtype}; {expected_dtype('x', dtype, STORAGE)}")
    if stored_as and not dtypes:
        raise WebnormError(
            f"{where}: dtype is {dtype}, the form in which NumPy files store {name}; use --dtype {name} "
            f"(dtype={name!r}) to read it as {name}"
        )
    if dtypes and name not in dtypes:
        stored = f", the form in which NumPy files store {name}" if stored_as else ""
        raise WebnormError(
            f"{where}: dtype is {dtype}{stored}; --dtype (dtype=) requires {' or '.join(dtypes)}"
        )
    return name


def _header(file: BinaryIO, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype from the header; raise WebnormError if it is invalid."""
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
        # NumPy evaluates the header as Python text, which can raise exceptions that NumPy does not document.
        reason = sentence(str(error), _MOST_CHARACTERS) or type(error).__name__
        raise WebnormError(f"{path}: cannot read the array: NumPy rejects its header: {reason}") from None
    return tuple(map(int, shape)), fortran, dtype


def _kind_of(file: BinaryIO) -> str:
    """Return the kind of a file that is not an .npy file, from its first bytes, and advice to convert it."""
    begin = file.read(9) or b""  # read gives None for a device that would block
    if begin.startswith(b"PK"):
        return "an .npz archive; extract one array: numpy.save('x.npy', numpy.load(FILE)['NAME'])"
    if begin[8:] == b"{":
        return "a safetensors file; extract one array and write it with numpy.save"
    return "no .npy file; write the array with numpy.save"
