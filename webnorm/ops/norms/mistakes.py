"""Typical mistakes of kernels, in float64: formulas with which a wrong output is compared.

Most come from reports on other implementations. The others are typing mistakes that compile: a forgotten
constant, two swapped parameters, an index that is off by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from webnorm.op.dtypes import DTYPES, FP8, Array, finfo
from webnorm.op.op import Float64Array, Task
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormProblem
from webnorm.ops.norms.reference import (
    ADDED,
    INT8_MAXIMUM,
    SMALLEST_ROW_MAXIMUM,
    add_residual,
    applied_parameters,
)
from webnorm.ops.norms.rounding import block_maxima, of_columns

# The outputs that a mistake changes, before they are rounded to their storage types. NaN stands for undefined
# values, such as reads past the last row.
Wrong = dict[str, Float64Array]
_Named = Iterator[tuple[str, Float64Array]]

# Columns that kernels process at a time: a vec4, subgroups, and usual workgroups with one or four columns
# each.
_STEPS = (4, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class NormalizationInputs:
    """The values from which y is computed.

    Attributes
    ----------
    x
        The rows to normalize (rows, cols).
    mean
        The mean of each row (rows, 1); 0 for a norm without a mean.
    d
        x - mean.
    variance
        The mean of d² of each row (rows, 1).
    rstd
        1 / sqrt(variance + eps) of each row (rows, 1).
    weight
        The factor, which includes weight's offset.
    """

    problem: NormProblem
    has_mean: bool
    x: Float64Array
    mean: Float64Array
    d: Float64Array
    variance: Float64Array
    rstd: Float64Array
    weight: Float64Array | None
    bias: Float64Array | None

    @property
    def cols(self) -> int:
        """The number of elements of a row."""
        return int(self.x.shape[1])

    @property
    def xhat(self) -> Float64Array:
        """The normalized rows."""
        return self.d * self.rstd

    def y(self, xhat: Float64Array) -> Float64Array:
        """Return y for some x̂."""
        return self.scaled(xhat, self.weight, self.bias)

    def scaled(
        self, xhat: Float64Array, weight: Float64Array | None, bias: Float64Array | None
    ) -> Float64Array:
        """Return y for some x̂ with other parameters; None leaves one out."""
        y = xhat if weight is None else np.multiply(xhat, weight)
        return y if bias is None else np.add(y, bias)

    def about(self, mean: Float64Array) -> Float64Array:
        """Return x̂ with another mean, which the variance uses too."""
        d = self.x - mean
        return np.asarray(d / np.sqrt((d * d).mean(axis=1, keepdims=True) + self.problem.eps))


def wrong_formulas(task: Task, arrays: Mapping[str, Array]) -> dict[str, Wrong]:
    """Return the outputs of forward kernels with a mistake, by the description of the mistake.

    A description continues "a kernel that". `arrays` are the inputs of `reference.forward`; an h among them
    is the h that the kernel wrote. The result is empty for gradients and copies.
    """
    if task.op.is_copy or task.op.gradient:
        return {}
    found: dict[str, Wrong] = {}
    with np.errstate(all="ignore"):
        rows = rows_of(task, arrays)
        every = (
            _statistics(rows),
            _centres(rows),
            _counts(rows),
            _parameters(rows),
            _places(rows),
            _inputs(task, arrays),
        )
        for name, y in chain(*every):
            found[name] = _stored(y, task.problem)
        found |= _storing(rows.y(rows.xhat), task.problem)
        found |= _sums(task, arrays) | _saved(rows)
    return found


def rows_of(task: Task, arrays: Mapping[str, Array], x: Float64Array | None = None) -> NormalizationInputs:
    """Return the values of a forward op's rows; `x` replaces the array that it normalizes."""
    problem = task.problem
    if x is None:
        x = arrays["x"].astype(np.float64)
        if problem.options.residual:
            h = arrays["h"] if "h" in arrays else add_residual(arrays).astype(DTYPES[problem.input_dtype])
            x = h.astype(np.float64)
    mean = x.mean(axis=1, keepdims=True) if has_mean(task.op) else np.zeros((len(x), 1))
    d = x - mean
    variance = (d * d).mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt(variance + problem.eps)
    weight, bias = applied_parameters(arrays, problem)
    return NormalizationInputs(problem, has_mean(task.op), x, mean, d, variance, rstd, weight, bias)


def _statistics(rows: NormalizationInputs) -> _Named:
    """Yield mistakes in the numbers behind rstd."""
    d, v, n, eps = rows.d, rows.variance, rows.cols, rows.problem.eps
    spread = "variance" if rows.has_mean else "mean of squares"
    if n > 1:
        yield f"divides the {spread} by N - 1", rows.y(d / np.sqrt(v * n / (n - 1) + eps))
    yield f"divides the {spread} by N + 1", rows.y(d / np.sqrt(v * n / (n + 1) + eps))
    yield "does not divide the sum of squares by N", rows.y(d / np.sqrt(v * n + eps))
    yield "adds eps outside of the root", rows.y(d / (np.sqrt(v) + eps))
    yield "leaves eps out", rows.y(d / np.sqrt(v))
    yield "adds eps twice", rows.y(d / np.sqrt(v + 2.0 * eps))
    yield "subtracts eps", rows.y(d / np.sqrt(v - eps))
    yield "adds eps before it divides by N", rows.y(d / np.sqrt(v + eps / n))
    yield "leaves the root out of rstd", rows.y(d / (v + eps))
    yield "multiplies by the root instead of dividing by it", rows.y(d * np.sqrt(v + eps))
    yield "does not multiply by rstd", rows.y(d)


def _centres(rows: NormalizationInputs) -> _Named:
    """Yield mistakes in the mean, and a mean in a norm without one."""
    x, n = rows.x, rows.cols
    squares = np.sqrt((x * x).mean(axis=1, keepdims=True) + rows.problem.eps)
    mean = x.mean(axis=1, keepdims=True)
    if not rows.has_mean:
        yield (
            "takes the mean off, as LayerNorm does (`ops` in its header names the norm)",
            rows.y(rows.about(mean)),
        )
        yield "takes the mean off x, and not in the mean of squares", rows.y((x - mean) / squares)
        yield (
            "takes the mean off in the mean of squares, and not off x",
            rows.y(x / np.sqrt(x.var(axis=1, keepdims=True) + rows.problem.eps)),
        )
        return
    yield (
        "takes no mean off, as RMSNorm does (`ops` in its header names the norm)",
        rows.y(x / squares),
    )
    yield "does not take the mean off x, but in the variance", rows.y(x * rows.rstd)
    yield "takes the mean off x, but not in the variance", rows.y(rows.d / squares)
    yield "adds the mean instead of taking it off", rows.y((x + mean) * rows.rstd)
    for words, divisor in (("N - 1", n - 1), ("N + 1", n + 1)):
        if divisor:
            yield f"divides the mean by {words}", rows.y(rows.about(mean * n / divisor))
    yield "does not divide the sum of x by N", rows.y(rows.about(mean * n))


def _counts(rows: NormalizationInputs) -> _Named:
    """Yield mistakes in N: the count is rounded up to whole steps."""
    n, d, eps = rows.cols, rows.d, rows.problem.eps
    # If several steps give the same count, the smallest one is named.
    counts = {-(-n // step) * step: step for step in reversed(_STEPS) if n % step}
    for count, step in counts.items():
        words, share = f"by N rounded up to a multiple of {step} ({count})", n / count
        if not rows.has_mean:
            yield f"divides the mean of squares {words}", rows.y(d / np.sqrt(rows.variance * share + eps))
            continue
        off = rows.x - rows.mean * share
        spread = (off * off).mean(axis=1, keepdims=True) * share
        padded = spread + (1.0 - share) * (rows.mean * share) ** 2
        yield f"divides the variance {words}", rows.y(d / np.sqrt(rows.variance * share + eps))
        yield f"divides the mean {words}", rows.y(rows.about(rows.mean * share))
        yield f"divides mean and variance {words}", rows.y(off / np.sqrt(spread + eps))
        zeros = f"takes rows for {count} elements long, the last {count - n} of them zeros"
        yield zeros, rows.y(off / np.sqrt(padded + eps))


def _parameters(rows: NormalizationInputs) -> _Named:
    """Yield mistakes in the weight or the bias."""
    xhat, w, b = rows.xhat, rows.weight, rows.bias
    offset = rows.problem.options.offset
    if w is not None:
        yield "leaves weight out", rows.scaled(xhat, None, b)
        if offset:
            yield f"does not add {offset:g} to weight", rows.scaled(xhat, w - offset, b)
        else:
            yield "adds 1 to weight", rows.scaled(xhat, w + 1.0, b)
        yield "divides by weight", rows.scaled(xhat, 1.0 / w, b)
        yield "takes weight twice", rows.scaled(xhat, w * w, b)
        yield from _shifted(rows, "weight", w, None)
    if rows.problem.rounds_before_weight:
        yield "does not round the normalized x before it multiplies by weight", rows.y(xhat)
    elif w is not None and rows.problem.dtype != "float32":
        early = xhat.astype(DTYPES[rows.problem.dtype]).astype(np.float64)
        yield "rounds the normalized x before it multiplies by weight", rows.y(early)
    if b is not None:
        yield "leaves bias out", rows.scaled(xhat, w, None)
        yield "subtracts bias", rows.scaled(xhat, w, -b)
        yield "adds bias twice", rows.scaled(xhat, w, 2.0 * b)
        yield from _shifted(rows, "bias", None, b)
    if w is not None and b is not None:
        yield "leaves weight and bias out", xhat
        yield "takes weight for bias", rows.scaled(xhat, w, w - offset)
        yield "takes bias for weight", rows.scaled(xhat, b + offset, b)
        yield "swaps weight and bias", rows.scaled(xhat, b + offset, w - offset)
        yield "adds bias before it multiplies by weight", (xhat + b) * w
        yield from _shifted(rows, "weight and bias", w, b)


def _shifted(
    rows: NormalizationInputs, name: str, weight: Float64Array | None, bias: Float64Array | None
) -> _Named:
    """Yield mistakes in the place from which the given parameters are read."""

    def scaled(at: Array, unknown: Array | None = None) -> Float64Array:
        """Return y with the parameters at these indices: one per column, or one per row."""
        chosen = (
            given if other is None else np.broadcast_to(other[at], rows.x.shape)
            for given, other in ((rows.weight, weight), (rows.bias, bias))
        )
        y = rows.scaled(rows.xhat, *chosen)
        if unknown is not None:
            y[:, unknown] = np.nan
        return y

    columns = np.arange(rows.cols)
    if rows.cols > 1:
        last = columns[-1]
        yield f"takes {name} of the next column", scaled(np.minimum(columns + 1, last), columns == last)
        yield f"takes {name} of the column before", scaled(np.maximum(columns - 1, 0), columns == 0)
        pair = columns ^ 1
        yield f"swaps {name} of columns 2k and 2k + 1", scaled(np.minimum(pair, last), pair > last)
        yield f"takes {name} of the first column for all", scaled(np.zeros_like(columns))
        yield f"takes {name} from last to first", scaled(columns[::-1])
        row = np.minimum(np.arange(len(rows.x)), last)
        yield f"takes {name} by the row's number", scaled(row[:, None])


def _places(rows: NormalizationInputs) -> _Named:
    """Yield mistakes in which a value of another row is used, or a whole step is missing."""
    x, count = rows.x, len(rows.x)
    if count > 1:
        for words, by in (("next row", 1), ("row before", -1)):
            at = np.clip(np.arange(count) + by, 0, count - 1)
            inside = (at != np.arange(count))[:, None]
            other = (x - rows.mean[at]) * rows.rstd[at]
            yield f"takes the statistics of the {words}", np.where(inside, rows.y(other), np.nan)
            yield f"gives each row the y of the {words}", np.where(inside, rows.y(rows.xhat[at]), np.nan)
        yield "takes the first row's statistics for all rows", rows.y((x - rows.mean[:1]) * rows.rstd[:1])
        yield "gives all rows the y of the first", rows.y(np.broadcast_to(rows.xhat[:1], x.shape))
    if rows.has_mean or rows.weight is not None or rows.bias is not None:
        # Otherwise it equals "does not multiply by rstd".
        yield f"gives {'h' if rows.problem.options.residual else 'x'} back as it is", x
    yield "gives zeros", np.zeros_like(x)
    if rows.bias is not None:
        yield "gives bias alone", rows.y(np.zeros_like(x))


def _inputs(task: Task, arrays: Mapping[str, Array]) -> _Named:
    """Yield mistakes in which another array than h is normalized."""
    if not task.problem.options.residual:
        return
    added = {name: arrays[name].astype(np.float64) for name in ADDED if name in arrays}
    exact = sum(added.values(), start=np.zeros(arrays["x"].shape))
    others = {"normalizes x without the residual": exact - added["residual"]}
    others["normalizes the residual without x"] = exact - added["x"]
    if "residual_bias" in added:
        others["leaves residual_bias out of what it normalizes"] = exact - added["residual_bias"]
        others["normalizes x alone"] = added["x"]
    if task.problem.input_dtype != "float32":
        others["normalizes h before it is rounded"] = exact
    for name, x in others.items():
        rows = rows_of(task, arrays, x)
        yield name, rows.y(rows.xhat)


def _sums(task: Task, arrays: Mapping[str, Array]) -> dict[str, Wrong]:
    """Return mistakes in the output h."""
    if not task.problem.options.residual:
        return {}
    x, residual = arrays["x"].astype(np.float64), arrays["residual"].astype(np.float64)
    bias = arrays["residual_bias"].astype(np.float64) if "residual_bias" in arrays else 0.0
    found = {
        "leaves the residual out of h": x + bias,
        "leaves x out of h": residual + bias,
        "adds x twice in h, and no residual": x + x + bias,
        "adds the residual twice in h, and no x": residual + residual + bias,
        "takes the residual off in h": x - residual + bias,
        "takes x off in h": residual - x + bias,
    }
    if "residual_bias" in arrays:
        found["leaves residual_bias out of h"] = x + residual
        found["adds residual_bias twice in h"] = x + residual + 2.0 * bias
        found["gives x back for h"] = x
        found["gives the residual back for h"] = residual
    return {name: {"h": h} for name, h in found.items()}


def _saved(rows: NormalizationInputs) -> dict[str, Wrong]:
    """Return mistakes in the output statistics."""
    if not rows.problem.options.return_stats:
        return {}
    v = rows.variance
    found = {
        "saves the variance for rstd": v,
        "saves the standard deviation for rstd": np.sqrt(v + rows.problem.eps),
        "saves rstd without eps": 1.0 / np.sqrt(v),
    }
    columns = {name: [rows.mean, rstd] if rows.has_mean else [rstd] for name, rstd in found.items()}
    if rows.has_mean:
        columns["saves 0 for the mean"] = [np.zeros_like(v), rows.rstd]
    return {name: {"stats": np.concatenate(parts, axis=1)} for name, parts in columns.items()}


def _stored(y: Float64Array, problem: NormProblem) -> Wrong:
    """Return y in the scale of its storage type, with the outputs that follow from it."""
    if problem.out_dtype in FP8:
        amax = np.array([np.max(np.abs(y), initial=0.0), 1.0 / problem.scale])
        return {"y": y * problem.scale, "amax": amax}
    if problem.out_dtype == "int8":
        block = problem.options.scale_block or problem.cols
        largest = np.maximum(block_maxima(np.abs(y), block), SMALLEST_ROW_MAXIMUM)
        factor = of_columns(INT8_MAXIMUM / largest, problem.cols, block)
        return {"y": y * factor, "y_scale": largest / INT8_MAXIMUM}
    return {"y": y}


def _storing(y: Float64Array, problem: NormProblem) -> dict[str, Wrong]:
    """Return mistakes in storing a right y."""
    scale = problem.scale
    if problem.out_dtype in FP8:
        top = float(finfo(problem.out_dtype).max)
        return {
            "does not scale y": {"y": y},
            "divides y by scale": {"y": y / scale},
            "takes amax after scaling": {"amax": np.array([np.abs(y).max() * scale, 1.0 / scale])},
            "takes amax after y has saturated": {"amax": np.array([min(np.abs(y).max(), top), 1.0 / scale])},
            "takes amax of y instead of |y|": {"amax": np.array([max(y.max(), 0.0), 1.0 / scale])},
            "gives scale for its inverse": {"amax": np.array([np.abs(y).max(), scale])},
        }
    if problem.out_dtype != "int8":
        return {}
    stored = _stored(y, problem)
    largest = stored["y_scale"] * INT8_MAXIMUM
    block = problem.options.scale_block or problem.cols
    by_column = of_columns(largest, problem.cols, block)
    signed = block_maxima(y, block)
    return {
        "scales rows to 128": {"y": y * 128.0 / by_column},
        "takes the first row's scale for all rows": {"y": y * INT8_MAXIMUM / by_column[:1]},
        "takes the largest y instead of |y|": {
            "y": y * INT8_MAXIMUM / of_columns(signed, problem.cols, block),
            "y_scale": signed / INT8_MAXIMUM,
        },
        "gives the inverse of y_scale": {"y_scale": 1.0 / stored["y_scale"]},
        "gives the row's largest |y| for y_scale": {"y_scale": largest},
    }
