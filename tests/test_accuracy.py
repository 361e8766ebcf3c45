from __future__ import annotations

import numpy as np
import pytest

from lab import GPU, kernel_named
from webnorm.accuracy import Tolerance, assess, tolerance
from webnorm.kernel import Variant, default_variant
from webnorm.problem import Problem
from webnorm.render import render_shader

EXPECTED = np.array([[1.0, -2.0, 0.5], [0.0, 100.0, -1.0]])
X = {"x": EXPECTED.astype(np.float32)}
ALLOWED = Tolerance(1e-6, 0.0, "test")


def got_with(row: int, col: int, value: float) -> np.ndarray:
    got = EXPECTED.astype(np.float32)
    got[row, col] = value
    return got


def test_exact_is_right() -> None:
    accuracy = assess(EXPECTED.astype(np.float32), EXPECTED, X, 1e-5, ALLOWED)
    assert accuracy.ok and accuracy.max_abs_error == 0.0 and accuracy.reason is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_passes(value: float) -> None:
    accuracy = assess(got_with(1, 2, value), EXPECTED, X, 1e-5, Tolerance(np.inf, 0.0, "test"))
    assert not accuracy.ok
    assert accuracy.non_finite == 1
    assert "[1, 2]" in (accuracy.reason or "")


def test_the_worst_element_is_named() -> None:
    accuracy = assess(got_with(0, 1, -2.01), EXPECTED, X, 1e-5, ALLOWED)
    assert not accuracy.ok and accuracy.worst is not None
    assert (accuracy.worst.row, accuracy.worst.col) == (0, 1)
    assert "[0, 1] is -2.00999999, expected -2: off by 0.01, allowed 2e-06" in (accuracy.reason or "")


def test_errors_are_relative_where_y_is_large() -> None:
    assert assess(got_with(1, 1, 100.00005), EXPECTED, X, 1e-5, ALLOWED).ok
    assert not assess(got_with(1, 0, 0.00005), EXPECTED, X, 1e-5, ALLOWED).ok


def test_rows_without_an_answer_are_left_out_and_their_neighbours_are_not() -> None:
    expected = EXPECTED.copy()
    expected[0] = np.nan
    assert assess(got_with(0, 0, 7.0), expected, X, 1e-5, ALLOWED).ok
    assert not assess(got_with(1, 0, 7.0), expected, X, 1e-5, ALLOWED).ok
    assert not assess(got_with(1, 0, np.nan), expected, X, 1e-5, ALLOWED).ok


def test_a_copy_has_to_be_exact() -> None:
    exact = Tolerance(0.0, 0.0, "a copy is exact")
    assert assess(EXPECTED.astype(np.float32), EXPECTED, X, 1e-5, exact).ok
    assert not assess(
        got_with(1, 1, np.nextafter(np.float32(100), np.float32(101))), EXPECTED, X, 1e-5, exact
    ).ok


def test_a_touched_guard_is_a_failure() -> None:
    accuracy = assess(EXPECTED.astype(np.float32), EXPECTED, X, 1e-5, ALLOWED, guard_intact=False)
    assert not accuracy.ok and "past the end" in (accuracy.reason or "")


def test_weight_scales_what_is_allowed() -> None:
    arrays = {**X, "weight": np.full(3, 1000.0, np.float32)}
    expected = EXPECTED * 1000
    off = (expected + 5e-4).astype(np.float32)
    assert assess(off, expected, arrays, 1e-5, ALLOWED).ok
    assert not assess(off, expected, X, 1e-5, Tolerance(1e-9, 0.0, "test")).ok


def test_nothing_is_right() -> None:
    empty = np.empty((0, 3), np.float32)
    assert assess(empty, empty.astype(np.float64), {"x": empty}, 1e-5, ALLOWED).ok


def tolerance_of(name: str, cols: int, **constants: int) -> Tolerance:
    problem = Problem(rows=1, cols=cols)
    kernel = kernel_named(name)
    variant = Variant(kernel, {**default_variant(kernel, problem, GPU).constants, **constants})
    return tolerance(render_shader(variant, problem, "native", GPU))


def test_the_tolerance_follows_from_the_header() -> None:
    flagship = tolerance_of("registers", 16384)
    assert (flagship.base, flagship.slope) == (2e-6, 0.0)
    assert tolerance_of("registers", 768, hi_lo_mean=0).slope > 0
    assert tolerance_of("naive", 6400).base == pytest.approx(2e-4)
    assert tolerance_of("welford", 4096).slope == pytest.approx(4 * 2.0**-24 * 4)
    assert "mean rounded" in tolerance_of("welford", 4096).reason
