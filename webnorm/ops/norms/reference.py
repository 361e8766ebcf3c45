"""The norms in float64, the reference for every kernel, and the allowed errors of float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from webnorm.op.blocks import map_row_blocks
from webnorm.op.dtypes import DTYPES, FP8, Array
from webnorm.op.op import Expected, ExpectedOutputs, Float64Array, HeaderTerms, ToleranceFactors
from webnorm.ops.norms.problem import NormProblem
from webnorm.ops.norms.rounding import (
    NEARLY_LARGEST,
    TIES,
    Computed,
    block_maxima,
    largest_error,
    of_columns,
    scaled_and_shifted,
)
from webnorm.ops.rows import (
    HI_LO_TOLERANCE,
    SUM_TOLERANCE,
    UNIT_ROUNDOFF,
    NormalizedRows,
    normalize,
    row_gradient,
)

# The smallest row maximum for an int8 scale. 127 divided by it is finite in float32, and a row of zeros gets
# a valid scale.
SMALLEST_ROW_MAXIMUM = 2.0**-100
INT8_MAXIMUM = 127.0
# The relative size of the mean's last bits.
MEAN_DIGITS = 2.0**-22


def _with_saved(x: Array, stats: Array, has_mean: bool) -> NormalizedRows:
    """Return the rows normalized with the statistics that a forward pass saved, for any eps: see stats_of."""
    saved = stats.astype(np.float64)
    rstd = saved[:, -1:]
    mean = saved[:, :1] + saved[:, 1:2] if has_mean else np.zeros_like(rstd)
    return NormalizedRows((x.astype(np.float64) - mean) * rstd, mean, rstd, np.abs(mean) * rstd)


# The terms of h.
ADDED = ("x", "residual", "residual_bias")


def add_residual(arrays: Mapping[str, Array]) -> Float64Array:
    """Return the sum of x, residual and residual_bias in float64; missing arrays count as 0."""
    return reduce(np.add, (arrays[name].astype(np.float64) for name in ADDED if name in arrays))


def forward(arrays: Mapping[str, Array], problem: NormProblem, has_mean: bool) -> ExpectedOutputs:
    """Return y, and by the problem's options h, stats, y_scale or amax.

    `arrays` contains x (rows, cols), and by the options residual (rows, cols), residual_bias, weight and bias
    (cols,). With "h" among the arrays, y is the norm of that h, which an implementation wrote and rounded.
    stats is (rows, 2), the mean and rstd, or (rows, 1) without a mean. amax is [amax, scale_inv].
    """
    weight, bias = _factor_and_shift(arrays, problem)
    answers = _by_rows(lambda part: _forward_rows(part, problem, has_mean, weight, bias), arrays, problem)
    if problem.out_dtype in FP8:
        # amax belongs to the unscaled y, so y is scaled afterwards.
        y = answers["y"]
        amax = np.max(np.abs(y.value), initial=0.0)
        # Only nearly as large an element can exceed the largest one because a rounding differs.
        near = ~(np.abs(y.value) < NEARLY_LARGEST * amax) if problem.rounds_before_weight else True
        unit = np.max(y.error_scale, initial=0.0, where=near)
        shaky = np.max(y.mean_error_scale, initial=0.0, where=near)
        answers["amax"] = Expected(
            np.array([amax, 1.0 / problem.scale]),
            np.array([unit, 1.0 / problem.scale]),
            np.array([shaky, 0.0]),
        )
        s = problem.scale
        answers["y"] = Expected(y.value * s, y.error_scale * s, y.mean_error_scale * s)
    return answers


def applied_parameters(
    arrays: Mapping[str, Array], problem: NormProblem
) -> tuple[Float64Array | None, Float64Array | None]:
    """Return the factor of x̂ and the offset, in float64; None for each that the problem does not have."""
    weight, bias = (
        arrays[name].astype(np.float64) if name in arrays else None for name in ("weight", "bias")
    )
    if weight is not None:
        # Kernels add the nearest float32.
        weight = weight + np.float64(np.float32(problem.options.offset))
    return weight, bias


def _factor_and_shift(
    arrays: Mapping[str, Array], problem: NormProblem
) -> tuple[Float64Array | float, Float64Array | float]:
    """Return `applied_parameters`, with 1 and 0 in place of None."""
    weight, bias = applied_parameters(arrays, problem)
    return 1.0 if weight is None else weight, 0.0 if bias is None else bias


def _forward_rows(
    arrays: Mapping[str, Array],
    problem: NormProblem,
    has_mean: bool,
    weight: Float64Array | float,
    bias: Float64Array | float,
) -> ExpectedOutputs:
    answers: ExpectedOutputs = {}
    x = arrays["x"]
    if problem.options.residual:
        h = add_residual(arrays)
        size = sum(np.abs(arrays[name].astype(np.float64)) for name in ADDED if name in arrays)
        answers["h"] = Expected(h, np.asarray(size), np.zeros(1))
        x = arrays.get("h", h.astype(DTYPES[problem.input_dtype]))
    rows = normalize(x, problem.eps, has_mean)
    plain = _scaled(rows, weight, bias)
    found = _rounded_early(rows, weight, bias, problem) if problem.rounds_before_weight else plain
    y, unit, shaky = found.value, found.error_scale, found.mean_error_scale
    if problem.out_dtype == "int8":
        size, block = np.abs(y), problem.options.scale_block or problem.cols
        largest = np.maximum(block_maxima(size, block), SMALLEST_ROW_MAXIMUM)
        unit_largest = largest_error(size, unit, plain.error_scale, block)
        shaky_largest = largest_error(size, shaky, plain.mean_error_scale, block)
        answers["y_scale"] = Expected(
            largest / INT8_MAXIMUM,
            (unit_largest / INT8_MAXIMUM).astype(np.float32),
            (shaky_largest / INT8_MAXIMUM).astype(np.float32),
        )
        largest, unit_largest, shaky_largest = (
            of_columns(one, problem.cols, block) for one in (largest, unit_largest, shaky_largest)
        )
        q = INT8_MAXIMUM / largest
        y, unit, shaky = y * q, (unit + unit_largest) * q, (shaky + shaky_largest) * q
    answers["y"] = Expected(y, unit.astype(np.float32), shaky.astype(np.float32))
    if problem.options.return_stats:
        answers["stats"] = _stats_answer(rows, has_mean)
    return answers


def _scaled(rows: NormalizedRows, weight: Float64Array | float, bias: Float64Array | float) -> Computed:
    """Return y, which is rounded once, when it is stored."""
    y = rows.xhat * weight
    unit = np.maximum(np.abs(weight), np.abs(y)) + np.abs(bias)
    return Computed(y + bias, unit, rows.condition * unit)


def _rounded_early(
    rows: NormalizedRows, weight: Float64Array | float, bias: Float64Array | float, problem: NormProblem
) -> Computed:
    """Return y if every operation after the normalization rounds its result."""
    size = np.maximum(1.0, np.abs(rows.xhat))
    xhat = Computed(rows.xhat, size, rows.condition * size)
    return scaled_and_shifted(xhat, weight, bias, problem, HI_LO_TOLERANCE)


def _stats_answer(rows: NormalizedRows, has_mean: bool) -> Expected:
    """Return the mean, with an error scale of the standard deviation and the mean's last bits, and rstd."""
    columns = [(rows.rstd, rows.rstd, rows.condition * rows.rstd)]
    if has_mean:
        deviation = 1.0 / rows.rstd
        columns.insert(0, (rows.mean, deviation + np.abs(rows.mean) * MEAN_DIGITS, np.abs(rows.mean)))
    return Expected(*(np.concatenate(parts, axis=1) for parts in zip(*columns, strict=True)))


def stats_of(x: Array, eps: float, has_mean: bool) -> Array:
    """Return the statistics that a forward pass saves for the backward pass, in float32.

    The shape is (rows, 3): the mean in two words, whose sum has twice float32's digits, and rstd. Without a
    mean it is (rows, 1).
    """
    parts = map_row_blocks(lambda part: _stats_of_rows(x[part], eps, has_mean), *x.shape)
    return np.concatenate(parts or [_stats_of_rows(x, eps, has_mean)])


def _stats_of_rows(x: Array, eps: float, has_mean: bool) -> Array:
    rows = normalize(x, eps, has_mean)
    rstd = rows.rstd.astype(np.float32)
    if not has_mean:
        return rstd
    with np.errstate(invalid="ignore", over="ignore"):
        mean = rows.mean.astype(np.float32)
        low = (rows.mean - mean).astype(np.float32)
    return np.concatenate([mean, low, rstd], axis=1)


def backward(arrays: Mapping[str, Array], problem: NormProblem, has_mean: bool) -> ExpectedOutputs:
    """Return dx, and by the problem's options dweight, dbias and dresidual_bias.

    With x̂ the normalized x and g = dy * weight:

    - dx = (g - mean(g) - x̂ * mean(g * x̂)) * rstd + dh, without mean(g) if the norm has no mean
    - dweight, the sum of dy * x̂ over rows
    - dbias, the sum of dy over rows
    - dresidual_bias, the sum of dx over rows

    x̂ uses the saved statistics if there are some. The formulas follow by the chain rule, as in Triton's
    LayerNorm tutorial.
    """
    weight, _ = _factor_and_shift(arrays, problem)
    return _by_rows(lambda part: _backward_rows(part, problem, has_mean, weight), arrays, problem)


def _backward_rows(
    arrays: Mapping[str, Array], problem: NormProblem, has_mean: bool, weight: Float64Array | float
) -> ExpectedOutputs:
    if problem.options.saved_stats:
        rows = _with_saved(arrays["x"], arrays["stats"], has_mean)
    else:
        rows = normalize(arrays["x"], problem.eps, has_mean)
    dy = arrays["dy"].astype(np.float64)
    size = np.maximum(1.0, np.abs(rows.xhat))
    dx, unit = row_gradient(dy * weight, rows, has_mean)
    shaky = rows.condition * unit
    if "dh" in arrays:
        dh = arrays["dh"].astype(np.float64)
        dx += dh
        unit += np.abs(dh)
    answers = {"dx": Expected(dx, unit.astype(np.float32), shaky.astype(np.float32))}
    options = problem.options
    if options.weight:
        answers["dweight"] = _summed(dy * rows.xhat, dy * size, dy * rows.condition)
    if options.bias:
        answers["dbias"] = _summed(dy, dy, np.zeros_like(dy))
    if options.residual_bias:
        answers["dresidual_bias"] = _summed(dx, unit, shaky)
    return answers


def _summed(terms: Float64Array, unit: Float64Array, shaky: Float64Array) -> Expected:
    """Return a sum over rows. Its terms' errors count as independent, so their squares are added here."""
    return Expected(
        terms.sum(axis=0), (unit * unit).sum(axis=0), (shaky * shaky).sum(axis=0), np.abs(terms).sum(axis=0)
    )


def _by_rows(
    answers_of: Callable[[Mapping[str, Array]], ExpectedOutputs],
    arrays: Mapping[str, Array],
    problem: NormProblem,
) -> ExpectedOutputs:
    """Compute the answers in parts of the rows, and combine them; sums over rows are added."""

    def part(rows: slice) -> ExpectedOutputs:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            return answers_of({name: a[rows] if a.ndim == 2 else a for name, a in arrays.items()})

    # The answers for no rows provide the names, shapes and types.
    whole = part(slice(0, 0))
    sums = {name for name, answer in whole.items() if answer.abs_sum is not None}
    fields = ("value", "error_scale", "mean_error_scale")
    for name in whole.keys() - sums:
        shape = (problem.rows, *whole[name].value.shape[1:])
        whole[name] = Expected(*(np.empty(shape, getattr(whole[name], field).dtype) for field in fields))

    def compute(rows: slice) -> ExpectedOutputs:
        found = part(rows)
        for name in whole.keys() - sums:
            for field in fields:
                getattr(whole[name], field)[rows] = getattr(found[name], field)
        return {name: found[name] for name in sums}

    found = map_row_blocks(compute, problem.rows, problem.cols)
    for name in sums:
        value, unit, shaky, summed = (
            sum((getattr(answers[name], field) for answers in found), start=getattr(whole[name], field))
            for field in (*fields, "abs_sum")
        )
        whole[name] = Expected(value, np.sqrt(unit), np.sqrt(shaky), summed)
    return whole


# --- the allowed errors of float32, from the sums that a kernel's header declares

SERIAL_TERMS = 64
# A mean that is rounded to float32 is off by up to half an ulp, or by about sqrt(terms) such roundings if
# terms are added one after another. The factor 4 covers the spread over the corpus. If all roundings may have
# the same direction, as in a plain sum of equal values, the header declares how many there are.
ROUNDED_MEAN_FACTOR = 4.0
# A gradient's element depends on several normalized values: rstd, x̂ and the row's two means each have the
# error of one. Sums over rows are assumed to be at most four standard deviations from their mean.
GRADIENT_FACTOR = 4.0
# The share of a rounded output's elements that must equal the rounded float64 answer. Others may be its
# neighbours if the answer lies within the float32 tolerance of a rounding boundary.
EQUAL_SHARE = 0.999
# The largest share of the first word, and of the standard deviation, that the second word of a mean may have:
# many times 2^-24, the rounding error of a sum's terms.
LOW_WORD = 2.0**-10
# The tolerance of the kernels that `auto` picks, with short sums and a mean in two words.
BEST_OF = "a mean in two words and short sums"
BEST, BEST_GRADIENT = HI_LO_TOLERANCE, HI_LO_TOLERANCE * GRADIENT_FACTOR


def tolerance(terms: HeaderTerms, problem: NormProblem) -> ToleranceFactors:
    """Return the tolerance of a forward kernel."""
    serial = max(1, min(terms.serial, problem.cols))
    base = HI_LO_TOLERANCE * max(1.0, serial / SERIAL_TERMS)
    slope = ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * _roundings(terms, serial)
    exact = not terms.rounded_mean and serial <= SERIAL_TERMS
    return ToleranceFactors(
        base, slope, 0.0, EQUAL_SHARE if exact else 0.0, _reason(terms, serial, slope), BEST, BEST_OF
    )


def gradient_tolerance(terms: HeaderTerms, problem: NormProblem) -> ToleranceFactors:
    """Return the tolerance of a gradient kernel."""
    # No accumulator adds more terms than there are, even if a header declares more.
    serial, columns = max(1, min(terms.serial, problem.cols)), max(1, min(terms.column, problem.rows))
    base = GRADIENT_FACTOR * HI_LO_TOLERANCE * max(1.0, serial / SERIAL_TERMS)
    slope = GRADIENT_FACTOR * ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * _roundings(terms, serial)
    adding = UNIT_ROUNDOFF * math.sqrt(columns)
    reason = f"{_reason(terms, serial, slope)}, {columns} rows per accumulator: + {adding:.1e}*sum of sizes"
    return ToleranceFactors(base, slope, adding, 0.0, reason, BEST_GRADIENT, BEST_OF)


def _roundings(terms: HeaderTerms, serial: int) -> float:
    return max(terms.rounded_mean, math.sqrt(serial)) if terms.rounded_mean else 0.0


def _reason(terms: HeaderTerms, serial: int, slope: float) -> str:
    rounded = f", mean rounded to float32: + {slope:.1e}*|mean|/sd" if terms.rounded_mean else ""
    return f"{serial} terms per accumulator{rounded}"


# Numbers that the JavaScript of pages shares.
NUMBERS = {
    "SMALLEST_ROW_MAXIMUM": SMALLEST_ROW_MAXIMUM,
    "INT8_MAXIMUM": INT8_MAXIMUM,
    "MEAN_DIGITS": MEAN_DIGITS,
    "UNIT_ROUNDOFF": UNIT_ROUNDOFF,
    "HI_LO_TOLERANCE": HI_LO_TOLERANCE,
    "SERIAL_TERMS": SERIAL_TERMS,
    "ROUNDED_MEAN_FACTOR": ROUNDED_MEAN_FACTOR,
    "GRADIENT_FACTOR": GRADIENT_FACTOR,
    "EQUAL_SHARE": EQUAL_SHARE,
    "SUM_TOLERANCE": SUM_TOLERANCE,
    "LOW_WORD": LOW_WORD,
    "NEARLY_LARGEST": NEARLY_LARGEST,
    "TIES": TIES,
}
