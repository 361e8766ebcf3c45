from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed import GPU, kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.verify.accuracy import VAGUE, WITHOUT_NUMBERS, Accuracy, assess, tolerance
from webnorm.lab.verify.deviations import rounded_to
from webnorm.lab.verify.trial import blank_result, with_accuracy
from webnorm.op.dtypes import DTYPES, Array, finfo
from webnorm.op.op import Expected, ToleranceFactors
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

EXPECTED = np.array([[1.0, -2.0, 0.5], [0.0, 100.0, -1.0]])
ALLOWED = ToleranceFactors(1e-6, 0.0, 0.0, 0.0, "test")


def shader_of(name: str, problem: NormProblem, **constants: int) -> Shader:
    kernel = kernel_named(name)
    variant = Variant(kernel, {**default_variant(kernel, problem, GPU).constants, **constants})
    return render_shader(variant, problem, "native", GPU)


def accuracy_of(
    got: Array,
    allowed: ToleranceFactors = ALLOWED,
    expected: Array = EXPECTED,
    *,
    unit: Array | None = None,
    shaky: Array | None = None,
    intact: bool = True,
    dtype: str = "float32",
) -> Accuracy:
    """Return the accuracy of a y with the answers `expected`, in units of max(1, |expected|)."""
    unit = np.maximum(1.0, np.abs(expected)) if unit is None else unit
    options = NormOptions(weight=False, bias=False, out_dtype=dtype)
    shader = shader_of("naive", NormProblem(rows=len(expected), cols=3, options=options))
    outputs = {"y": (got, intact)}
    shaky = np.zeros(1) if shaky is None else shaky
    answers = {"y": Expected(expected.astype(np.float64), unit, shaky)}
    for tensor in OPS["layer_norm"].outputs(shader.problem)[1:]:
        zeros = np.zeros(tensor.shape_in(shader.problem), np.float32)
        outputs[tensor.name] = zeros, True
        answers[tensor.name] = Expected(zeros.astype(np.float64), np.ones(1), np.zeros(1))
    return assess(outputs, answers, shader, allowed)


def got_with(row: int, col: int, value: float) -> Array:
    got = EXPECTED.astype(np.float32)
    got[row, col] = value
    return got


def test_exact_is_right() -> None:
    accuracy = accuracy_of(EXPECTED.astype(np.float32))
    assert accuracy.ok and accuracy.max_abs_error == 0.0 and accuracy.reason is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_non_finite_outputs_never_pass(value: float, dtype: str) -> None:
    accuracy = accuracy_of(
        got_with(1, 2, value).astype(DTYPES[dtype]),
        ToleranceFactors(1e30, 0.0, 0.0, 0.0, "test"),
        dtype=dtype,
    )
    assert not accuracy.ok or dtype != "float32"
    strict = accuracy_of(got_with(1, 2, value).astype(DTYPES[dtype]), dtype=dtype)
    assert strict.non_finite == 1
    assert "[1, 2]" in (strict.reason or "")


def test_the_worst_element_is_named() -> None:
    accuracy = accuracy_of(got_with(0, 1, -2.01))
    assert not accuracy.ok and accuracy.worst is not None
    assert (accuracy.worst.output, accuracy.worst.index) == ("y", (0, 1))
    assert "y[0, 1] is -2.00999999, expected -2: off by 0.01, allowed 2e-06" in (accuracy.reason or "")


def test_errors_are_relative_where_y_is_large() -> None:
    assert accuracy_of(got_with(1, 1, 100.00005)).ok
    assert not accuracy_of(got_with(1, 0, 0.00005)).ok


def test_non_finite_answers_require_non_finite_outputs() -> None:
    expected = EXPECTED.copy()
    expected[0] = np.nan
    expected[1, 0] = -np.inf
    unit = np.ones(1)
    right = expected.astype(np.float32)
    assert accuracy_of(right, expected=expected, unit=unit).ok
    for row, col, value in ((0, 0, 42.0), (0, 1, np.inf), (1, 0, np.inf), (1, 0, np.nan), (1, 0, -3e38)):
        wrong = right.copy()
        wrong[row, col] = value
        accuracy = accuracy_of(wrong, expected=expected, unit=unit)
        assert not accuracy.ok and f"y[{row}, {col}]" in (accuracy.reason or "")
        assert "differ from an answer that is NaN or Inf" in (accuracy.reason or "")
    wrong = right.copy()
    wrong[1, 2] = np.nan
    assert not accuracy_of(wrong, expected=expected, unit=unit).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values_beyond_the_range_of_a_type_become_infinite(dtype: str) -> None:
    largest = float(finfo(dtype).max)
    expected = np.array([[4.0 * largest, -4.0 * largest, 1.0]])
    with np.errstate(over="ignore"):
        assert accuracy_of(expected.astype(DTYPES[dtype]), expected=expected, dtype=dtype).ok
    for value in (42.0, np.nan, -np.inf):
        wrong = np.array([[value, -np.inf, 1.0]]).astype(DTYPES[dtype])
        assert not accuracy_of(wrong, expected=expected, dtype=dtype).ok


def test_int8_of_non_finite_values_is_not_compared() -> None:
    expected = np.array([[np.nan, np.nan, np.nan], [1.0, 2.0, 3.0]])
    got = np.array([[7, 0, 0], [1, 2, 3]], np.int8)
    assert accuracy_of(got, expected=expected, unit=np.ones(1), dtype="int8").ok


def test_a_header_cannot_allow_more_terms_than_the_problem_has() -> None:
    """`serial_terms` of a billion let zeros pass."""
    shader = shader_of("naive", NormProblem(rows=4, cols=768))
    kernel = shader.variant.kernel
    for claimed, terms in ((2 * 10**9, 768), (-5, 1), (100, 100)):
        rules = replace(kernel.accuracy, serial_terms=claimed, column_terms=claimed)
        variant = replace(shader.variant, kernel=replace(kernel, accuracy=rules))
        allowed = tolerance(replace(shader, variant=variant))
        assert allowed.base == pytest.approx(2e-6 * max(1, terms / 64))


def test_a_copy_has_to_be_exact() -> None:
    exact = ToleranceFactors(0.0, 0.0, 0.0, 1.0, "a copy is exact")
    assert accuracy_of(EXPECTED.astype(np.float32), exact).ok
    assert not accuracy_of(got_with(1, 1, np.nextafter(np.float32(100), np.float32(101))), exact).ok


def test_a_touched_guard_is_a_failure() -> None:
    accuracy = accuracy_of(EXPECTED.astype(np.float32), intact=False)
    assert not accuracy.ok and "past the end" in (accuracy.reason or "")


def test_the_unit_scales_what_is_allowed() -> None:
    off = (EXPECTED + 5e-4).astype(np.float32)
    assert accuracy_of(off, unit=np.full(1, 1000.0)).ok
    assert not accuracy_of(off).ok


def test_an_infinite_condition_allows_nothing_where_the_mean_is_exact() -> None:
    # This happens in a constant row of 1e38.
    shaky = np.where(np.arange(len(EXPECTED))[:, None] == 0, np.inf, 0.0).astype(np.float32)
    assert accuracy_of(EXPECTED.astype(np.float32), shaky=shaky).ok
    wrong = got_with(0, 1, -7.0)
    wrong[1, 0] = 1e-7
    assert not accuracy_of(wrong, shaky=shaky).ok


def test_an_empty_output_is_right() -> None:
    assert accuracy_of(np.empty((0, 3), np.float32), expected=np.empty((0, 3))).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_a_rounded_answer_or_its_neighbour_at_a_boundary(dtype: str) -> None:
    answers = np.array([[1.0, 3.0, -5.0], [7.0, 0.0, 2.0]])
    rounded = answers.astype(DTYPES[dtype])
    assert accuracy_of(rounded, expected=answers, dtype=dtype).ok
    up = rounded.copy()
    up.view(np.uint16 if up.itemsize == 2 else np.uint8)[0, 1] += 1
    assert not accuracy_of(up, expected=answers, dtype=dtype).ok
    # Both numbers are right, because the answer is halfway between 3 and its neighbour within the tolerance.
    between = answers.copy()
    between[0, 1] = (float(rounded[0, 1]) + float(up[0, 1])) / 2 + 2e-7
    for either in (rounded, up):
        assert accuracy_of(either, expected=between, dtype=dtype).ok
    assert not accuracy_of(rounded, ToleranceFactors(1e-9, 0.0, 0.0, 0.0, "test"), between, dtype=dtype).ok


def test_many_neighbours_are_a_failure() -> None:
    answers = np.ones((1000, 3))
    answers[:20] = 1.0 + 2.0**-11 + 1e-7
    down = np.ones((1000, 3), np.float16)
    assert accuracy_of(down, expected=answers, dtype="float16").ok
    strict = ToleranceFactors(1e-6, 0.0, 0.0, 0.999, "test")
    accuracy = accuracy_of(down, strict, answers, dtype="float16")
    assert not accuracy.ok and "60 of 3000 elements of y are one step off" in (accuracy.reason or "")
    # Both neighbours are right on the boundary.
    answers[:20] = 1.0 + 2.0**-11
    assert accuracy_of(down, strict, answers, dtype="float16").ok
    # Nearly all answers are at a boundary, so that the row says nothing about rounding.
    answers[:] = 1.0 + 2.0**-11 + 1e-7
    assert accuracy_of(down, strict, answers, dtype="float16").ok


def test_an_answer_beyond_the_types_range_is_left_out() -> None:
    answers = np.ones((4, 3))
    answers[1] = 1e6
    with np.errstate(over="ignore"):
        got = answers.astype(np.float16)
    assert np.isinf(got[1]).all()
    assert accuracy_of(got, expected=answers, dtype="float16").ok
    got[2, 0] = np.inf
    assert not accuracy_of(got, expected=answers, dtype="float16").ok


def test_rounding_saturates() -> None:
    large = np.array([1e9, -1e9])
    assert rounded_to(large, "float8_e4m3fn").tolist() == [448.0, -448.0]
    assert rounded_to(large, "float8_e5m2").tolist() == [57344.0, -57344.0]
    assert rounded_to(large, "int8").tolist() == [127.0, -127.0]
    # This rounds to the nearest even number.
    assert rounded_to(np.array([0.5, 1.5, 2.5]), "int8").tolist() == [0.0, 2.0, 2.0]


def tolerance_of(name: str, cols: int, **constants: int) -> ToleranceFactors:
    return tolerance(shader_of(name, NormProblem(rows=1, cols=cols), **constants))


def test_the_tolerance_follows_from_the_header() -> None:
    flagship = tolerance_of("registers", 16384)
    assert (flagship.base, flagship.slope, flagship.equal_share) == (2e-6, 0.0, 0.999)
    assert tolerance_of("two_pass", 768, hi_lo_mean=0).slope > 0
    assert tolerance_of("naive", 6400).base == pytest.approx(2e-4)
    # A plain sum of equal values is off by as many units as it has terms.
    assert tolerance_of("naive", 6400).slope == pytest.approx(6400 * 2.0**-24)
    # 16 values are added one after another, and joins count as twelve.
    assert tolerance_of("welford", 4096).slope == pytest.approx(4 * 2.0**-24 * np.sqrt(28))
    assert "mean rounded" in tolerance_of("welford", 4096).reason


def test_a_tolerance_as_large_as_the_answers_shows_nothing() -> None:
    coarse = ToleranceFactors(1e-6, 1.0, 0.0, 0.0, "test")
    zeros = np.zeros_like(EXPECTED, dtype=np.float32)
    # Any value is within such a tolerance.
    found = accuracy_of(zeros, coarse, shaky=np.full(EXPECTED.shape, 1e3))
    assert found.ok and found.not_compared == VAGUE
    assert accuracy_of(zeros, coarse, shaky=np.full(EXPECTED.shape, np.inf)).not_compared == VAGUE
    assert (
        accuracy_of(EXPECTED.astype(np.float32), coarse, shaky=np.full(EXPECTED.shape, 0.3)).not_compared
        is None
    )
    assert accuracy_of(EXPECTED.astype(np.float32)).not_compared is None
    # A few elements of many may be as uncertain as that.
    few = np.array([[1e3, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert accuracy_of(EXPECTED.astype(np.float32), coarse, shaky=few).not_compared is None


def test_int8_of_only_nan_shows_nothing() -> None:
    nothing = np.full(EXPECTED.shape, np.nan)
    got = np.zeros(EXPECTED.shape, np.int8)
    assert accuracy_of(got, expected=nothing, dtype="int8").not_compared == WITHOUT_NUMBERS
    assert accuracy_of(nothing.astype(np.float32), expected=nothing).not_compared is None


def test_outputs_that_were_not_compared_are_skipped_with_a_reason() -> None:
    problem = NormProblem(rows=2, cols=3)
    blank = blank_result(Variant(kernel_named("naive"), {}), problem)
    accuracy = Accuracy(0.5, 0.5, 1.0, 0, None, None, VAGUE)
    assert (with_accuracy(blank, accuracy).status, with_accuracy(blank, accuracy).reason) == ("skip", VAGUE)
    wrong = with_accuracy(blank, replace(accuracy, reason="off"))
    assert (wrong.status, wrong.reason) == ("fail", "off")
