"""Storage types: the names that problems use, and their NumPy types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# The storage types of a norm's results.
NARROWING = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
INTEGERS = ("int8", "uint8", "int32", "uint32")
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name)) for name in dict.fromkeys((*NARROWING, *INTEGERS))
}
DTYPE_NAMES: Mapping[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}
# The storage types of x and the parameters. All arithmetic is float32.
STORAGE = ("float32", "float16", "bfloat16")
# Other names of these types that are too different for a suggestion by similarity.
DTYPES_ELSEWHERE = {
    "half": "float16",
    "float": "float32",
    "single": "float32",
    # float32 is the widest type here.
    "float64": "float32",
    "double": "float32",
}
# The float8 types of y.
FP8 = ("float8_e4m3fn", "float8_e5m2")


def finfo(dtype: str) -> Any:
    """Return NumPy's finfo of a floating-point storage type, also for the types of ml_dtypes."""
    return ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]


# Hints for types that only y supports, in errors about other arrays.
OF_OUTPUTS = {
    name: f"is a type of y alone: option out_dtype={name}" for name in NARROWING if name not in STORAGE
}


def read_back_from(dtype: np.dtype[Any], known: Sequence[str] = tuple(DTYPES)) -> tuple[str, ...]:
    """Return the known storage types whose arrays NumPy reads from an .npy file as `dtype`.

    NumPy's files have no bfloat16 and no float8: they store their bytes as |V2 and |V1.
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.subdtype is not None:
        return ()
    return tuple(
        name for name in known if hasattr(ml_dtypes, name) and DTYPES[name].itemsize == dtype.itemsize
    )


def expected_dtype(name: str, dtype: np.dtype[Any], known: Sequence[str], wanted: str = "") -> str:
    """Return the end of a message about the array `name`, whose dtype is unknown.

    It contains the expected types, or `wanted` in their place, and the conversion if there is one.
    """
    expected = f"expected {wanted or ', '.join(known)}"
    if twins := read_back_from(dtype, known):
        views = " or ".join(f"{name}.view(ml_dtypes.{twin})" for twin in twins)
        return f"{expected}: NumPy's files keep {' and '.join(twins)} as {dtype}; pass {views}"
    if dtype.kind not in "biuf" and dtype not in DTYPE_NAMES:
        # A cast would fail, or lose information.
        return expected
    module = "ml_dtypes" if hasattr(ml_dtypes, known[0]) else "np"
    return f"{expected}: cast it, as with {name}.astype({module}.{known[0]})"
