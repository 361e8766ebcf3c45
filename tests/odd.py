"""Values that a caller could pass on purpose or by mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import webnorm
from webnorm.op.dtypes import DTYPES, Array

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


class Hostile:
    """An object whose every operation fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no\nwords")

    def __bool__(self) -> bool:
        raise RuntimeError("no\nanswer")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no\nanswer")

    __hash__ = object.__hash__


ODD: dict[str, Any] = {
    "none": None,
    "true": True,
    "int": 7,
    "negative": -3,
    "large": 2**70,
    "digits": 10**5000,
    "float": 2.5,
    "nan": float("nan"),
    "complex": 1j,
    "text": "llvmpipe",
    "long text": "x\x1b[31m\n" * 100_000,
    "bytes": b"\x28",
    "list": [40],
    "nested": [[40.0], "x"],
    "dict": {40: 40},
    "set": {40},
    "range": range(10**12),
    "endless": itertools.repeat(40),
    "class": np.ndarray,
    "function": normal,
    "hostile": Hostile(),
    "path": Path("/nowhere"),
    "zero-dimensional": np.array(40),
    "objects": np.array([[object()] * 40], dtype=object),
    "words": np.array(["a"] * 40),
    "dates": np.zeros((2, 40), "M8[s]"),
    "records": np.zeros((2, 40), [("a\n", "f4"), ("b", "i8")]),
    "complex array": np.zeros((2, 40), np.complex64),
    "doubles": np.zeros((2, 40)),
    "swapped": np.zeros((2, 40), ">f4"),
    "masked": np.ma.masked_less(normal(2, 40), 0),
    "truths": np.zeros(40, bool),
    "numpy truth": np.True_,
}


def refusal_of(call: Callable[[], Any]) -> str | None:
    """Return the one-line message of a refused call; None if the call succeeds."""
    try:
        call()
    except webnorm.WebnormError as error:
        text = str(error)
        assert text.isprintable() and 0 < len(text) < 700, text
        return text
    return None
