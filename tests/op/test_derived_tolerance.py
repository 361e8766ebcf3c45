"""The tolerance that is derived from a reference allows the errors of correct float32 kernels."""

from __future__ import annotations

import numpy as np

from webnorm.op.derived_tolerance import UNIT, derive_scales
from webnorm.op.dtypes import Array


def test_a_serial_sum_is_squared() -> None:
    """In a constant row, the mean's error grows with the number of terms. The variance has its square."""
    terms = 672

    def variance(arrays: dict[str, Array]) -> list[Array]:
        x = arrays["x"]
        return [((x - x.mean(-1, keepdims=True)) ** 2).mean(-1)]

    x = np.full((3, terms), 2.0)
    exact = variance({"x": x})
    (scales,) = derive_scales(variance, {"x": x}, exact, [True])  # type: ignore[arg-type]
    # Each term may add a rounding of the mean, all in one direction.
    off = (terms * UNIT * 2.0 / 2) ** 2
    assert exact[0][0] == 0 and terms * scales.serial[0] > off
    # Several accumulators have a smaller error, and their tolerance stays smaller.
    assert scales.spread[0] < off


def test_ties_of_integers_are_seen_whatever_the_signs_are() -> None:
    """x / scale is a half in every element, so a rounding decides. No set of runs may miss an element."""

    def quantised(arrays: dict[str, Array]) -> list[Array]:
        x = arrays["x"]
        scale = np.abs(x).max(-1, keepdims=True) / 127
        return [np.rint(x / scale).astype(np.int32), scale[:, 0]]

    x = np.full((8, 512), 0.5)
    x[:, 0] = 1.0
    whole, _ = derive_scales(quantised, {"x": x}, quantised({"x": x}), [True, True])  # type: ignore[arg-type]
    assert (whole.spread[:, 1:] == 1).all()
    assert (whole.spread[:, 0] == 0).all()
