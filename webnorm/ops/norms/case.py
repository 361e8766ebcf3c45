"""An input of the corpus: its draw, its problems, and the problems with every option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webnorm.op.corpus import Case, ForceSplit, Overrides
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.registry import options_of
from webnorm.ops.copy.problem import RowProblem
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import BEFORE_WEIGHT, NormOptions, NormProblem
from webnorm.ops.norms.reference import stats_of

# --- values that rows are drawn from: normal, constant, and those that break formulas

# A function that draws (rows, cols) in float64, or an array that broadcasts to it.
# The quotes keep NumPy from importing its generators, which calls do not need.
Draw = Callable[["np.random.Generator"], Array]


def normal(rows: int, cols: int, scale: float = 1.0, mean: float = 0.0) -> Draw:
    """Draw independent normal numbers."""
    return lambda rng: rng.standard_normal((rows, cols)) * scale + mean


def constant(value: float) -> Draw:
    """Draw a constant."""
    return lambda rng: np.array(value)


def consecutive(first: int, count: int) -> Draw:
    """Draw one row of consecutive integers."""
    return lambda rng: np.arange(first, first + count, dtype=np.float64)[None, :]


# The values are so different that none is a useful pivot for another's row.
LARGE = np.array([1e15, 3.7e14, 1.7e15, 1.1e10, 1e6, 123456.7], np.float32)[:, None]


def adjacent_floats(cols: int) -> Draw:
    """Draw rows of two adjacent float32 numbers.

    The share of columns with the larger one grows from row to row.
    """

    def x(rng: np.random.Generator) -> Array:
        share = np.array([1, 2, 10, cols // 3, cols // 2, cols - 1])[:, None]
        columns = rng.permuted(np.broadcast_to(np.arange(cols), (6, cols)), axis=1)
        return np.where(columns < share, np.nextafter(LARGE, np.float32(np.inf)), LARGE).astype(np.float64)

    return x


def outlier_first(rows: int, cols: int) -> Draw:
    """Draw normal rows whose first number is a million."""
    return lambda rng: np.concatenate(
        [np.full((rows, 1), 1e6), rng.standard_normal((rows, cols - 1))], axis=1
    )


def outlier(rng: np.random.Generator) -> Array:
    """Draw three normal rows that contain one large number each."""
    x = rng.standard_normal((3, 1024))
    x[:, 700] = 1e4
    return x


def row_scales(rng: np.random.Generator) -> Array:
    """Draw rows of all scales at which float32 represents their squares, and beyond."""
    return rng.standard_normal((24, 257)) * np.logspace(-18, 17, 24)[:, None]


def with_bad_values(*values: float, col: int = 77) -> Draw:
    """Draw normal rows. One of them has these values from a column on."""

    def x(rng: np.random.Generator) -> Array:
        drawn = rng.standard_normal((9, 130))
        drawn[4, col : col + len(values)] = values
        return drawn

    return x


# --- a case

_PLAIN = NormOptions(weight=False, bias=False)
# Cases with several row lengths, and with few workgroups that process all rows.
_WATCHED = (
    "normal",
    "cols-4095",
    "capped-61",
    "everything-float8-61",
    "everything-int8-61",
    "everything-backward-61",
)


@dataclass(frozen=True)
class NormCase(Case):
    """One input of norms.

    Attributes
    ----------
    name
        The name of the case.
    source
        The origin of the case.
    x
        A function that draws (rows, cols) in float64.
    shape
        The numbers of rows and columns.
    options
        Options that are added to the options of the problem.
    eps
        The eps; None for the op's default.
    scale
        The factor of a float8 y.
    given
        The storage type of a user's own x; None if any type is valid.
    breaks_one_pass
        True if E[x²] - E[x]² in float32 must fail, since the square of the mean times the unit roundoff is as
        large as the variance, or larger.
    others_sd
        The standard deviation of the other inputs, which include zeros; None leaves them to the op.
    narrow
        What to split although the device does not require it; see `webnorm.op.corpus.Case`.
    saved_eps
        The eps of the forward pass that saved statistics, if it differs from the case's own.
    stray
        A value that replaces one number in each input but x and stats.
    for_gpus
        True for a case that is too large for a software adapter.
    seed
        A seed that changes every draw.
    """

    name: str
    source: str
    x: Draw
    shape: tuple[int, int]
    options: NormOptions = _PLAIN
    eps: float | None = None
    scale: float = 1.0
    given: str | None = None
    breaks_one_pass: bool = False
    others_sd: float | None = None
    narrow: ForceSplit | None = None
    saved_eps: float | None = None
    stray: float | None = None
    for_gpus: bool = False
    seed: int = 0

    @property
    def watched(self) -> bool:
        """True if checks of a whole corpus look for races on the case."""
        return self.name in _WATCHED

    @property
    def shape_text(self) -> str:
        """The sizes and options as text."""
        rows, cols = self.shape
        return f"{rows}x{cols}" + (f", {self.options}" if str(self.options) else "")

    @property
    def must_fail(self) -> str | None:
        """The kernel that cannot be right on the case in float32, if there is one."""
        return "one_pass" if self.breaks_one_pass else None

    def problem(
        self, op: Op, dtype: str = "float32", overrides: Overrides | None = None
    ) -> NormProblem | None:
        """Return the case as a problem of an op; None if the op or the type does not allow it.

        A type that cannot represent the case's x does not allow it.

        `overrides` replace the case's own values. An op that lacks an option of the case does not have the
        case.
        """
        overrides = overrides or Overrides()
        if not issubclass(op.problem_type, RowProblem):
            return None
        try:
            problem: NormProblem = op.problem(
                *self.shape,
                dtype=dtype,
                options=self.options if overrides.options is None else options_of(op, overrides.options),
                distribution="given",
                seed=self.seed,
                **{"eps": self.eps, "scale": self.scale} | overrides.given,
            )
        except UnsupportedProblem:
            return None
        if self.given not in (None, dtype):
            return None
        if dtype == "float32":
            return problem
        with np.errstate(over="ignore"):
            drawn = self.x(self._rng())
            held = np.isfinite(drawn.astype(DTYPES[dtype])) | ~np.isfinite(drawn)
        return problem if held.all() else None

    def draw(self, task: Task) -> dict[str, Array]:
        """Return the input arrays of a task whose problem came from `problem`."""
        op, problem, rng = task.op, task.problem, self._rng()
        with np.errstate(over="ignore"):
            arrays = {"x": np.broadcast_to(self.x(rng), self.shape).astype(DTYPES[problem.dtype])}
        if self.others_sd is not None:
            arrays |= _drawn_others(task, self.others_sd, rng)
        if self.saved_eps is not None and "stats" in {tensor.name for tensor in op.inputs(problem)}:
            arrays["stats"] = stats_of(arrays["x"], self.saved_eps, has_mean(op))
        arrays = op.draw(task, arrays, rng)
        if self.stray is not None:
            for name in arrays.keys() - {"x", "stats"}:
                arrays[name].reshape(-1)[arrays[name].size // 3] = self.stray
        return arrays

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, *self.name.encode()])


def of_normal(
    name: str, source: str, shape: tuple[int, int], spread: float = 1.0, mean: float = 0.0, **given: Any
) -> NormCase:
    """Return a case of normal numbers; `given` are NormCase's other fields."""
    return NormCase(name, source, normal(*shape, spread, mean), shape, **given)


# The share of zeros in the other inputs.
_ZEROS = 0.05


def _drawn_others(task: Task, sd: float, rng: np.random.Generator) -> dict[str, Array]:
    """Draw the inputs other than x and its statistics: normal numbers, and some zeros."""
    arrays = {}
    for tensor in task.op.present(task.problem):
        if tensor.access == "read" and tensor.name not in ("x", "stats"):
            drawn = rng.standard_normal(tensor.shape_in(task.problem)) * sd
            drawn[rng.random(drawn.shape) < _ZEROS] = 0.0
            with np.errstate(over="ignore"):
                arrays[tensor.name] = drawn.astype(DTYPES[tensor.dtype(task.problem)])
    return arrays


# --- every option, one by one and all together

BOTH = NormOptions()
_EVERYTHING = NormOptions(
    zero_centered_weight=True, residual=True, residual_bias=True, return_stats=True, max_workgroups=2
)


# Options one by one and all together. Rows share words, or begin at words, or begin at a vec4.
_OPTIONS: tuple[tuple[str, str, NormOptions, float], ...] = (
    ("zero-centered", "TransformerEngine: scale by 1 + weight", NormOptions(zero_centered_weight=True), 1.0),
    (
        "weight-offset",
        "an offset of weight that is neither 0 nor 1",
        NormOptions(weight_offset=-0.375),
        1.0,
    ),
    (
        "rounded-early",
        "transformers #29402: Llama rounds before it multiplies by weight, Gemma after it",
        NormOptions(bias=False, rounding=BEFORE_WEIGHT),
        1.0,
    ),
    (
        "rounded-early-bias",
        "ONNX: the second stage of LayerNormalization rounds the product and the sum",
        NormOptions(rounding=BEFORE_WEIGHT),
        1.0,
    ),
    (
        "rounded-early-int8",
        "the scale of a row of rounded values",
        NormOptions(rounding=BEFORE_WEIGHT, weight_offset=1.0, out_dtype="int8"),
        1.0,
    ),
    (
        "rounded-early-wide",
        "transformers #30236: with a float32 weight, only the normalized x is rounded",
        NormOptions(rounding=BEFORE_WEIGHT, weight_dtype="float32", out_dtype="float32"),
        1.0,
    ),
    ("residual", "SkipLayerNorm: h = x + residual, given back too", NormOptions(residual=True), 1.0),
    (
        "residual-float32",
        "vLLM #52104: a sum that is stored in bfloat16 changes the variance, and a float32 stream does not",
        NormOptions(residual=True, residual_dtype="float32"),
        1.0,
    ),
    (
        "residual-bfloat16",
        "a residual stream of a narrower type than x, or of another narrow type",
        NormOptions(
            residual=True, residual_bias=True, residual_dtype="bfloat16", weight_dtype="float32", bias=False
        ),
        1.0,
    ),
    (
        "residual-bias",
        "SkipLayerNorm with a bias: eight buffers with the statistics",
        NormOptions(residual=True, residual_bias=True, return_stats=True),
        1.0,
    ),
    ("stats", "mean in two words and rstd, for the backward pass", NormOptions(return_stats=True), 1.0),
    (
        "float8-e4m3fn",
        "TransformerEngine: scale in, amax of the unscaled y and scale_inv out; beyond 448 it saturates",
        NormOptions(out_dtype="float8_e4m3fn"),
        400.0,
    ),
    ("float8-e5m2", "the wider of the two float8 types", NormOptions(out_dtype="float8_e5m2"), 8.0),
    ("float8-e5m2-large", "beyond 57344 it saturates", NormOptions(out_dtype="float8_e5m2"), 1e5),
    ("float8-e5m2-small", "among float8_e5m2's denormals", NormOptions(out_dtype="float8_e5m2"), 1e-5),
    ("int8", "a scale for every row", NormOptions(out_dtype="int8"), 1.0),
    (
        "int8-plain",
        "padding columns are as far from 0 as the mean, and no weight hides them",
        NormOptions(weight=False, bias=False, out_dtype="int8"),
        1.0,
    ),
    *(
        (f"{dtype}-y", "y of another type than x", NormOptions(out_dtype=dtype), 1.0)
        for dtype in ("float32", "float16", "bfloat16")
    ),
    ("float32-parameters", "float32 weight and bias with a half x", NormOptions(weight_dtype="float32"), 1.0),
    ("capped", "few workgroups walk over all rows", NormOptions(max_workgroups=3), 1.0),
    (
        "everything-float8",
        "every option at once: the parameters share a buffer",
        replace(_EVERYTHING, out_dtype="float8_e4m3fn", weight_dtype="float32"),
        0.25,
    ),
    (
        "everything-int8",
        "every option at once: the parameters share a buffer",
        replace(_EVERYTHING, out_dtype="int8"),
        1.0,
    ),
    ("saved-stats", "gradient from the forward pass's statistics", NormOptions(saved_stats=True), 1.0),
    (
        "everything-backward",
        "every option of a gradient at once",
        NormOptions(
            zero_centered_weight=True,
            weight_dtype="float32",
            residual_bias=True,
            saved_stats=True,
            dh=True,
            max_workgroups=3,
        ),
        1.0,
    ),
)


# Every option on each of three row lengths. The mean lies outside the range of LayerNorm's y; with a negative
# mean, all of RMSNorm's y is negative.
OPTION_GRID: tuple[NormCase, ...] = tuple(
    of_normal(f"{name}-{cols}", source, (11, cols), mean=mean, options=options, scale=scale)
    for name, source, options, scale in _OPTIONS
    for cols, mean in ((70, 20.0), (61, -20.0), (256, 20.0))
)


OPTION_CASES: tuple[NormCase, ...] = (
    *OPTION_GRID,
    of_normal(
        "small-residual",
        "h among float16's denormals: x and residual almost cancel",
        (5, 200),
        1e-5,
        options=NormOptions(residual=True, residual_bias=True, weight_dtype="float32"),
    ),
    *(
        of_normal(
            f"int8-blocks-{block}-{cols}",
            "a scale for each block of columns, as dot4I8Packed wants it; the last block may be narrower",
            (11, cols),
            mean=20.0,
            options=NormOptions(out_dtype="int8", scale_block=block, residual=block == 64),
        )
        for block, cols in ((32, 256), (32, 100), (64, 516), (128, 260), (128, 12))
    ),
    NormCase(
        "int8-zeros",
        "a row of zeros has a scale too",
        constant(0.0),
        (3, 61),
        options=NormOptions(weight=False, bias=False, out_dtype="int8"),
    ),
    of_normal(
        "int8-small",
        "eps makes y as small as 3e-6: its scale follows",
        (5, 61),
        1e-8,
        options=NormOptions(weight=False, bias=False, out_dtype="int8"),
    ),
    of_normal(
        "stats-1e4",
        "a mean of 1e4 standard deviations, whose second word is as large as x's last digit",
        (5, 300),
        mean=1e4,
        options=NormOptions(return_stats=True),
    ),
    of_normal(
        "saved-stats-1e4",
        "the same, where the gradient is given that mean",
        (64, 300),
        mean=1e4,
        options=NormOptions(saved_stats=True),
    ),
)
