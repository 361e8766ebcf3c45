"""Storage types: the names that problems use, and the NumPy types that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# What a result of a norm may be stored as.
NARROWING = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
INTEGERS = ("int8", "uint8", "int32", "uint32")
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name)) for name in dict.fromkeys((*NARROWING, *INTEGERS))
}
DTYPE_NAMES: Mapping[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}
# What x and the parameters may be stored as; all arithmetic is float32.
STORAGE = ("float32", "float16", "bfloat16")
# What others call them, where no likeness tells.
DTYPES_ELSEWHERE = {
    "half": "float16",
    "float": "float32",
    "single": "float32",
    # More than float32 nothing here stores, or computes.
    "float64": "float32",
    "double": "float32",
}
# What y may be turned into on its way out.
FP8 = ("float8_e4m3fn", "float8_e5m2")


def finfo(dtype: str) -> Any:
    """NumPy's finfo of a floating-point storage type, those of ml_dtypes included."""
    return ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]


# The types that y alone may have, for who asks for another array's.
OF_OUTPUTS = {
    name: f"is a type of y alone: option out_dtype={name}" for name in NARROWING if name not in STORAGE
}


def read_back_from(dtype: np.dtype[Any], known: Sequence[str] = tuple(DTYPES)) -> tuple[str, ...]:
    """The storage types among those known whose arrays NumPy reads from an .npy file as `dtype`: its files
    have no bfloat16 and no float8, and keep their bytes as |V2 and |V1.
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.subdtype is not None:
        return ()
    return tuple(
        name for name in known if hasattr(ml_dtypes, name) and DTYPES[name].itemsize == dtype.itemsize
    )


def expected_dtype(name: str, dtype: np.dtype[Any], known: Sequence[str], wanted: str = "") -> str:
    """The end of a message on the array called `name`, whose dtype is none of those known: what was expected,
    `wanted` where that has a name of its own, and what turns the array into that, if anything does.
    """
    expected = f"expected {wanted or ', '.join(known)}"
    if twins := read_back_from(dtype, known):
        views = " or ".join(f"{name}.view(ml_dtypes.{twin})" for twin in twins)
        return f"{expected}: NumPy's files keep {' and '.join(twins)} as {dtype}; pass {views}"
    if dtype.kind not in "biuf" and dtype not in DTYPE_NAMES:
        # A cast fails, or drops what the elements hold.
        return expected
    module = "ml_dtypes" if hasattr(ml_dtypes, known[0]) else "np"
    return f"{expected}: cast it, as with {name}.astype({module}.{known[0]})"
