"""The corpus of `check`: inputs that broke other implementations, edges of our own, draws; with sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from webnorm.errors import WebnormError
from webnorm.norms.ops import OPS, Op, complete_inputs
from webnorm.norms.problem import DTYPES, FP8, STORAGE, Array, Options, Problem
from webnorm.norms.reference import stats_of

_PLAIN = Options(weight=False, bias=False)


@dataclass(frozen=True)
class Changes:
    """What takes the place of every case's own; None where nothing does. `options`: see Options.changed."""

    options: tuple[str, ...] | None = None
    eps: float | None = None
    scale: float | None = None


# What of a device is made small, so that rows are cut: a storage binding, or a dispatch's dimensions.
Narrow = Literal["bindings", "dispatches"]


@dataclass(frozen=True)
class Case:
    """One input. `x` draws (rows, cols) in float64; `options` are added to those of the problem.

    `eps` None stands for the op's default. `given` holds the storage type of a user's own x, and is None
    where any will do. `breaks_one_pass`: E[x²] - E[x]² in float32 has to fail here, since the square of the
    mean times the unit roundoff is as large as the variance, or larger. `beside` is the standard deviation of
    what an op reads beside x, of either sign and now and then 0; None leaves that to the op. `narrow` says
    how rows are to be cut where the device would not need it. `saved_eps` is the eps of the forward pass that
    saved statistics, where it is not the case's own. `stray` takes the place of a number in all that is read
    beside x. A case `for_gpus` is too large for a program on the CPU. `seed` changes every draw.
    """

    name: str
    source: str
    shape: tuple[int, int]
    x: Callable[[np.random.Generator], Array]
    options: Options
    eps: float | None = None
    scale: float = 1.0
    given: str | None = None
    breaks_one_pass: bool = False
    beside: float | None = None
    narrow: Narrow | None = None
    saved_eps: float | None = None
    stray: float | None = None
    for_gpus: bool = False
    seed: int = 0

    def problem(self, op: Op, dtype: str = "float32", changes: Changes | None = None) -> Problem | None:
        """The case as a problem of an op; None where it has none, or the type cannot hold the case's x.

        `changes` take the place of the case's own. Options that an op lacks make the case one of other ops.
        """
        changes = changes or Changes()
        eps = next((eps for eps in (changes.eps, self.eps) if eps is not None), op.default_eps)
        rows, cols = self.shape
        problem = Problem(
            rows=rows,
            cols=cols,
            dtype=dtype,
            eps=eps,
            distribution="given",
            seed=self.seed,
            scale=self.scale if changes.scale is None else changes.scale,
            options=self.options if changes.options is None else op.defaults.changed(changes.options),
        )
        try:
            op.check(problem)
        except WebnormError:
            return None
        if self.given not in (None, dtype):
            return None
        if dtype == "float32":
            return problem
        with np.errstate(over="ignore"):
            drawn = self.x(self._rng())
            held = np.isfinite(drawn.astype(DTYPES[dtype])) | ~np.isfinite(drawn)
        return problem if held.all() else None

    def draw(self, op: Op, problem: Problem) -> dict[str, Array]:
        """The input arrays of the problem."""
        rng = self._rng()
        with np.errstate(over="ignore"):
            arrays = {"x": np.broadcast_to(self.x(rng), self.shape).astype(DTYPES[problem.dtype])}
        if self.beside is not None:
            arrays |= _drawn_beside(op, problem, self.beside, rng)
        if self.saved_eps is not None and problem.options.saved_stats:
            arrays["stats"] = stats_of(arrays["x"], self.saved_eps, op.has_mean)
        arrays = complete_inputs(op, problem, arrays, rng)
        if self.stray is not None:
            for name in arrays.keys() - {"x", "stats"}:
                arrays[name].reshape(-1)[arrays[name].size // 3] = self.stray
        return arrays

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, *self.name.encode()])


# The share of zeros among what is read beside x.
_ZEROS = 0.05


def _drawn_beside(op: Op, problem: Problem, size: float, rng: np.random.Generator) -> dict[str, Array]:
    """What an op reads beside x and its statistics, normal and of this size, some of it 0."""
    arrays = {}
    for tensor in op.present(problem):
        if tensor.access == "read" and tensor.name not in ("x", "stats"):
            drawn = rng.standard_normal(tensor.shape(problem)) * size
            drawn[rng.random(drawn.shape) < _ZEROS] = 0.0
            with np.errstate(over="ignore"):
                arrays[tensor.name] = drawn.astype(DTYPES[tensor.dtype(problem)])
    return arrays


def problems(
    cases: Sequence[Case], op: Op, dtypes: Sequence[str], changes: Changes | None = None
) -> Iterator[tuple[Case, Problem]]:
    """Every case in every storage type, where there is such a problem of the op."""
    for case in cases:
        for dtype in dtypes:
            problem = case.problem(op, dtype, changes)
            if problem is not None:
                yield case, problem


def _case(
    name: str,
    source: str,
    x: Callable[[np.random.Generator], Array],
    shape: tuple[int, int],
    *,
    eps: float | None = None,
    scale: float = 1.0,
    options: Options = _PLAIN,
    **more: Any,
) -> Case:
    return Case(name, source, shape, x, options, eps, scale, **more)


def _normal(
    rows: int, cols: int, scale: float = 1.0, mean: float = 0.0
) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.standard_normal((rows, cols)) * scale + mean


def _constant(value: float) -> Callable[[np.random.Generator], Array]:
    return lambda rng: np.array(value)


def _consecutive(first: int, count: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: np.arange(first, first + count, dtype=np.float64)[None, :]


# Far apart, so that none is a pivot for another's row.
_LARGE = np.array([1e15, 3.7e14, 1.7e15, 1.1e10, 1e6, 123456.7], np.float32)[:, None]


def _neighbours(cols: int) -> Callable[[np.random.Generator], Array]:
    """Rows of two neighbouring float32 numbers; from row to row more columns have the larger one."""

    def x(rng: np.random.Generator) -> Array:
        share = np.array([1, 2, 10, cols // 3, cols // 2, cols - 1])[:, None]
        columns = rng.permuted(np.broadcast_to(np.arange(cols), (6, cols)), axis=1)
        return np.where(columns < share, np.nextafter(_LARGE, np.float32(np.inf)), _LARGE).astype(np.float64)

    return x


def _outlier_first(rows: int, cols: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: np.concatenate(
        [np.full((rows, 1), 1e6), rng.standard_normal((rows, cols - 1))], axis=1
    )


def _outlier(rng: np.random.Generator) -> Array:
    x = rng.standard_normal((3, 1024))
    x[:, 700] = 1e4
    return x


def _scales(rng: np.random.Generator) -> Array:
    return rng.standard_normal((24, 257)) * np.logspace(-18, 17, 24)[:, None]


def _poisoned(*values: float, col: int = 77) -> Callable[[np.random.Generator], Array]:
    def x(rng: np.random.Generator) -> Array:
        drawn = rng.standard_normal((9, 130))
        drawn[4, col : col + len(values)] = values
        return drawn

    return x


_BOTH = Options()
_SHIFT = "mean of {} standard deviations: the rounding of the mean (webnorm docs/numerics.md)"

# Options one by one and all together, on rows that share words, that start on words only, and on vec4.
_OPTIONS: tuple[tuple[str, str, Options, float], ...] = (
    ("zero-centered", "TransformerEngine: scale by 1 + weight", Options(zero_centered_weight=True), 1.0),
    ("residual", "SkipLayerNorm: h = x + residual, given back too", Options(residual=True), 1.0),
    (
        "residual-bias",
        "SkipLayerNorm with a bias: eight buffers with the statistics",
        Options(residual=True, residual_bias=True, return_stats=True),
        1.0,
    ),
    ("stats", "mean in two words and rstd, for the backward pass", Options(return_stats=True), 1.0),
    (
        "float8-e4m3fn",
        "TransformerEngine: scale in, amax of the unscaled y and scale_inv out; beyond 448 it saturates",
        Options(out_dtype="float8_e4m3fn"),
        400.0,
    ),
    ("float8-e5m2", "the wider of the two float8 types", Options(out_dtype="float8_e5m2"), 8.0),
    ("float8-e5m2-large", "beyond 57344 it saturates", Options(out_dtype="float8_e5m2"), 1e5),
    ("float8-e5m2-small", "among float8_e5m2's denormals", Options(out_dtype="float8_e5m2"), 1e-5),
    ("int8", "a scale for every row", Options(out_dtype="int8"), 1.0),
    (
        "int8-plain",
        "columns that do not exist are as far from 0 as the mean, without a weight to hide them",
        Options(weight=False, bias=False, out_dtype="int8"),
        1.0,
    ),
    *(
        (f"{dtype}-y", "y of another type than x", Options(out_dtype=dtype), 1.0)
        for dtype in ("float32", "float16", "bfloat16")
    ),
    ("float32-parameters", "float32 weight and bias beside half x", Options(weight_dtype="float32"), 1.0),
    ("capped", "few workgroups walk over all rows", Options(max_workgroups=3), 1.0),
    (
        "everything-float8",
        "every option at once: the parameters share a buffer",
        Options(
            zero_centered_weight=True,
            residual=True,
            residual_bias=True,
            return_stats=True,
            out_dtype="float8_e4m3fn",
            weight_dtype="float32",
            max_workgroups=2,
        ),
        0.25,
    ),
    (
        "everything-int8",
        "every option at once: the parameters share a buffer",
        Options(
            zero_centered_weight=True,
            residual=True,
            residual_bias=True,
            return_stats=True,
            out_dtype="int8",
            max_workgroups=2,
        ),
        1.0,
    ),
    ("saved-stats", "gradient from the forward pass's statistics", Options(saved_stats=True), 1.0),
    (
        "everything-backward",
        "every option of a gradient at once",
        Options(
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

# Every option on each of three row lengths, one option after the other. The mean lies outside the values that
# LayerNorm's y has; where it is below 0, so is all of RMSNorm's y.
OPTION_GRID: tuple[Case, ...] = tuple(
    _case(f"{name}-{cols}", source, _normal(11, cols, mean=mean), (11, cols), options=options, scale=scale)
    for name, source, options, scale in _OPTIONS
    for cols, mean in ((70, 20.0), (61, -20.0), (256, 20.0))
)

OPTION_CASES: tuple[Case, ...] = (
    *OPTION_GRID,
    _case(
        "small-residual",
        "h among float16's denormals: x and residual almost cancel",
        lambda rng: rng.standard_normal((5, 200)) * 1e-5,
        (5, 200),
        options=Options(residual=True, residual_bias=True, weight_dtype="float32"),
    ),
    _case(
        "int8-zeros",
        "a row of zeros has a scale too",
        _constant(0.0),
        (3, 61),
        options=Options(weight=False, bias=False, out_dtype="int8"),
    ),
    _case(
        "int8-small",
        "eps makes y as small as 3e-6: its scale follows",
        _normal(5, 61, 1e-8),
        (5, 61),
        options=Options(weight=False, bias=False, out_dtype="int8"),
    ),
    _case(
        "stats-1e4",
        "a mean of 1e4 standard deviations, whose second word is as large as x's last digit",
        _normal(5, 300, mean=1e4),
        (5, 300),
        options=Options(return_stats=True),
    ),
    _case(
        "saved-stats-1e4",
        "the same, where the gradient is given that mean",
        _normal(64, 300, mean=1e4),
        (64, 300),
        options=Options(saved_stats=True),
    ),
)

CASES: tuple[Case, ...] = (
    _case("normal", "the benign input that hides bad kernels", _normal(7, 768), (7, 768), options=_BOTH),
    *(
        _case(
            f"cols-{cols}",
            "lengths at and around vector, subgroup and workgroup sizes",
            _normal(5, cols, mean=3.0),
            (5, cols),
            options=_BOTH,
        )
        for cols in (1, 2, 3, 5, 64, 199, 1023, 1024, 4095)
    ),
    *(
        _case(f"cols-{cols}", "columns of models", _normal(3, cols, mean=1.0), (3, cols), options=_BOTH)
        for cols in (4096, 5120, 8192, 16384, 32768)
    ),
    _case("rows-0", "no rows", _normal(0, 16), (0, 16), options=_BOTH),
    _case("rows-1", "a single row", _normal(1, 96), (1, 96), options=_BOTH),
    _case(
        "rows-65537",
        "more rows than a dispatch has workgroups in one dimension",
        _normal(65537, 3),
        (65537, 3),
    ),
    _case(
        "cols-65537",
        "Mesa's llvmpipe ends a shader's loops after 65535 iterations",
        _normal(2, 65537, mean=50.0),
        (2, 65537),
    ),
    _case("weight-only", "bias absent", _normal(6, 100), (6, 100), options=Options(bias=False)),
    _case(
        "bias-only",
        "onnxruntime #28424: bias read from the wrong slot",
        _normal(6, 100),
        (6, 100),
        options=Options(weight=False),
    ),
    _case("shift-1e2", _SHIFT.format("1e2"), _normal(4, 4096, mean=1e2), (4, 4096)),
    _case("shift-1e4", _SHIFT.format("1e4"), _normal(4, 4096, mean=1e4), (4, 4096), breaks_one_pass=True),
    _case("shift-1e6", _SHIFT.format("1e6"), _normal(4, 4096, mean=1e6), (4, 4096), breaks_one_pass=True),
    _case(
        "onnxruntime-28463",
        "onnxruntime #28463: rows 40000..40003 gave NaN",
        _consecutive(40000, 4),
        (2, 4),
        breaks_one_pass=True,
    ),
    _case("onnxruntime-21935", "onnxruntime #21935: constant 1234 gave NaN", _constant(1234.0), (3, 512)),
    _case(
        "onnxruntime-31626",
        "onnxruntime #31626: float16 squares that overflow, 300 ± 100",
        _normal(4, 512, 100.0, 300.0),
        (4, 512),
    ),
    _case("tvm-19592", "TVM #19592: rows 80000..80003", _consecutive(80000, 4), (2, 4), breaks_one_pass=True),
    _case(
        "mlx-2238",
        "MLX #2238: about 1449 ± 0.5 gave NaN",
        _normal(4, 1024, 0.5, 1449.0),
        (4, 1024),
        breaks_one_pass=True,
    ),
    _case(
        "burn-5607",
        "burn #5607: mean 100, error 1.03",
        _normal(4, 768, 0.01, 100.0),
        (4, 768),
        breaks_one_pass=True,
    ),
    _case(
        "pytorch-51102",
        "pytorch #51102: randn(5, 4) + 2000",
        _normal(5, 4, mean=2000.0),
        (5, 4),
        breaks_one_pass=True,
    ),
    _case(
        "pytorch-40302",
        "pytorch #40302: randn * 0.01 + 100",
        _normal(4, 256, 0.01, 100.0),
        (4, 256),
        breaks_one_pass=True,
    ),
    _case(
        "pytorch-41527",
        "pytorch #41527: float16 zeros with eps 1e-12",
        _constant(0.0),
        (3, 128),
        eps=1e-12,
    ),
    _case("xpu-1374", "intel torch-xpu-ops #1374: 1e15 + i", _consecutive(10**15, 1024), (2, 1024)),
    _case(
        "constant-3.3333",
        "a constant row: two_pass is off by 0.43 without the hi/lo mean",
        _constant(3.3333),
        (3, 4095),
        eps=1e-12,
    ),
    _case(
        "one-value",
        "rows of one large value: of a variance that rounding left, rstd was next to nothing",
        lambda rng: _LARGE.astype(np.float64),
        (6, 5132),
    ),
    _case(
        "neighbours",
        "two values, one unit in the last place apart: spread - low² lost up to four digits",
        _neighbours(5132),
        (6, 5132),
    ),
    _case(
        "outlier-first",
        "1e6 where a pivot is taken from, among normal values",
        _outlier_first(3, 1024),
        (3, 1024),
    ),
    _case("outlier", "one 1e4 among normal values: y reaches sqrt(N)", _outlier, (3, 1024)),
    _case(
        "huge",
        "±1e18: each square fits float32, their sum does not",
        _normal(3, 4096, 1e18),
        (3, 4096),
        breaks_one_pass=True,
    ),
    _case("tiny", "1e-20: squares are denormal or 0, eps decides", _normal(3, 512, 1e-20), (3, 512)),
    _case("denormal", "denormal inputs, which an adapter may flush to 0", _normal(3, 512, 1e-40), (3, 512)),
    _case(
        "row-scales", "neighbouring rows from 1e-18 to 1e17: none may leak into another", _scales, (24, 257)
    ),
    _case("nan-row", "NaN in one row must not reach another", _poisoned(np.nan), (9, 130), options=_BOTH),
    _case("inf-row", "Inf in one row must not reach another", _poisoned(np.inf), (9, 130), options=_BOTH),
    _case(
        "minus-inf-row", "-Inf in one row must not reach another", _poisoned(-np.inf), (9, 130), options=_BOTH
    ),
    _case("nan-first", "NaN where a pivot is taken from", _poisoned(np.nan, col=0), (9, 130), options=_BOTH),
    _case("inf-last", "Inf in a row's last column", _poisoned(np.inf, col=129), (9, 130), options=_BOTH),
    _case(
        "nan-and-inf-row",
        "several that are no numbers in one row",
        _poisoned(np.inf, np.nan, -np.inf, np.inf),
        (9, 130),
        options=_BOTH,
    ),
    *OPTION_CASES,
)

# What an op promises beside values of x: the caller's eps, parameters of any sign and size, rows that are
# cut, and sizes past those where indices or counts of 16 bits end.
PROMISES: tuple[Case, ...] = (
    *(
        _case(
            f"eps-{eps:g}",
            "the caller's eps, where it weighs as much as the variance",
            _normal(5, 64, math.sqrt(eps) or 1e-3),
            (5, 64),
            eps=eps,
        )
        for eps in (0.0, 1e-12, 1e-8, 1e-6, 1e-3, 0.1, 1.0, 100.0)
    ),
    *(
        _case(
            f"parameters-{size:g}{name}",
            "parameters and gradients of either sign, some of them 0",
            _normal(6, 200),
            (6, 200),
            options=options,
            beside=size,
        )
        for size in (1.0, 1e-4, 1e3)
        for name, options in (("", Options()), ("-zero-centered", Options(zero_centered_weight=True)))
    ),
    *(
        _case(
            f"{narrow}-{cols}{name}",
            f"rows cut where a device's {narrow} are small, which this one's are not",
            _normal(602, cols, mean=5.0),
            (602, cols),
            options=options,
            narrow=narrow,
        )
        for narrow, cols in (("bindings", 61), ("bindings", 256), ("dispatches", 70))
        for name, options in (
            ("", Options()),
            ("-residual", Options(residual=True, residual_bias=True, return_stats=True)),
            ("-saved-stats", Options(saved_stats=True, dh=True, residual_bias=True)),
        )
    ),
    *(
        _case(
            f"bindings-61-{out_dtype}",
            "slices of y in bytes begin elsewhere in a word than those of x",
            _normal(602, 61, mean=5.0),
            (602, 61),
            options=Options(out_dtype=out_dtype),
            narrow="bindings",
        )
        for out_dtype in (*FP8, "int8")
    ),
    *(
        _case(
            f"{name}-beside",
            "what is no number in parameters and gradients reaches what it is part of, and no more",
            _normal(7, 130),
            (7, 130),
            options=_BOTH,
            stray=stray,
        )
        for name, stray in (("nan", np.nan), ("inf", np.inf))
    ),
    _case(
        "saved-eps",
        "a gradient by statistics that another eps made",
        _normal(9, 130, mean=2.0),
        (9, 130),
        options=Options(saved_stats=True, dh=True),
        saved_eps=0.5,
    ),
    _case(
        "capped-64",
        "a cap that several rows of every workgroup stay below",
        _normal(602, 70, mean=2.0),
        (602, 70),
        options=Options(max_workgroups=64),
    ),
    _case("rows-4096", "a power of 2, as most batches are", _normal(4096, 72), (4096, 72), options=_BOTH),
    _case(
        "rows-4099", "rows between those of a batch and 2^16", _normal(4099, 96), (4099, 96), options=_BOTH
    ),
    _case("rows-131101", "more than 2^17 rows", _normal(131101, 33), (131101, 33), options=_BOTH),
    _case("large", "8 million elements", _normal(521, 16411, mean=3.0), (521, 16411), options=_BOTH),
    _case(
        "larger",
        "67 million elements: 2^28 bytes, more than a page's storage binding",
        _normal(16411, 4099, mean=-2.0),
        (16411, 4099),
        options=_BOTH,
        for_gpus=True,
    ),
)

# Cases whose shapes, values and options are drawn, of norms and of their gradients each.
_DRAWN = 4
_MOST_DRAWN = 1 << 19
_MOST_LONG = 1 << 17

# Values that break formulas, in rows of any length.
_HARD: tuple[Callable[[int], Callable[[np.random.Generator], Array]], ...] = (
    lambda cols: _outlier_first(2, cols),
    lambda cols: lambda rng: np.broadcast_to(rng.uniform(1, 1e6, (3, 1)), (3, cols)),
    _neighbours,
    lambda cols: _normal(3, cols, mean=1e4),
    lambda cols: _normal(3, cols, mean=-1e6),
    lambda cols: _normal(2, cols, 1e18),
    lambda cols: _normal(2, cols, 1e-20),
)


def _long_cases(seed: int) -> Iterator[Case]:
    """Options together with long rows, and many of them, that are cut into slices, and an eps that weighs:
    each type of y, and each kind of gradient, with half of the others.
    """
    rng = np.random.default_rng([seed, 2])
    types = (None, "float16", "bfloat16", *FP8, "int8")
    beside = zip(*(_halves(rng, len(types)) for _ in range(5)), strict=True)
    for out_dtype, (odd, centred, residual, bias, stats) in zip(types, beside, strict=True):
        options = Options(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual=residual,
            residual_bias=residual and bias,
            return_stats=stats or out_dtype is None,
            out_dtype=out_dtype,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # In a row that has what is no number, so is the largest of all rows.
        stray = _one_of(rng, None, np.nan, np.inf)
        yield _long_case(rng, f"long-{out_dtype or 'y'}", options, odd, seed, stray)
    kinds = ((True, True), (True, False), (False, True))
    beside = zip(*(_halves(rng, len(kinds)) for _ in range(3)), strict=True)
    for number, ((saved_stats, dh), (odd, centred, bias)) in enumerate(zip(kinds, beside, strict=True)):
        options = Options(
            zero_centered_weight=centred,
            weight_dtype=_one_of(rng, None, *STORAGE),
            residual_bias=bias,
            saved_stats=saved_stats,
            dh=dh,
            max_workgroups=_one_of(rng, 0, 3, 64),
        )
        # Sums over the rows of all slices.
        yield _long_case(rng, f"long-gradient-{number + 1}", options, odd or bias, seed)


def _halves(rng: np.random.Generator, count: int) -> list[bool]:
    """Half of them true, or one more, nobody knows which."""
    return [bool(one) for one in rng.permutation(count) % 2 == 0]


def _long_case(
    rng: np.random.Generator, name: str, options: Options, odd: bool, seed: int, stray: float | None = None
) -> Case:
    # Slices of an odd number of odd rows begin beside where a binding may begin.
    cols = _multiple(rng, round(2 ** rng.uniform(8.1, 11.5))) | odd
    rows = _multiple(rng, min(round(2 ** rng.uniform(6, 8)), _MOST_LONG // cols)) | odd
    # So far from 0 that a gradient needs both words of a saved mean.
    mean = _one_of(rng, 1e4, -1e4) if options.saved_stats else _one_of(rng, 20.0, -20.0)
    return _case(
        name,
        "drawn: options beside long rows, slices, another eps",
        _with_stray(rng, _normal(rows, cols, mean=mean), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-2, 0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        narrow="bindings",
        seed=seed,
    )


def _hard_cases(seed: int) -> Iterator[Case]:
    """Values that break formulas, in rows of other lengths each time, short and long."""
    rng = np.random.default_rng([seed, 3])
    for name, least, most in (("short", 2, 8), ("long", 8, 13)):
        cols = _multiple(rng, round(2 ** rng.uniform(least, most)))
        yield _case(
            f"hard-{name}", "drawn: rows that break formulas, of another length", *_hard(cols), seed=seed
        )


def _hard(cols: int) -> tuple[Callable[[np.random.Generator], Array], tuple[int, int]]:
    def x(rng: np.random.Generator) -> Array:
        return np.concatenate([values(cols)(rng) for values in _HARD])

    return x, (len(x(np.random.default_rng(0))), cols)


def _with_stray(
    rng: np.random.Generator,
    x: Callable[[np.random.Generator], Array],
    rows: int,
    cols: int,
    stray: float | None,
) -> Callable[[np.random.Generator], Array]:
    """The values, one of them in another's place."""
    row, col = rng.integers(rows), _one_of(rng, 0, cols - 1, rng.integers(cols))

    def changed(rng: np.random.Generator) -> Array:
        drawn = x(rng)
        if stray is not None:
            drawn[row, col] = stray
        return drawn

    return changed


def drawn_cases(seed: int, count: int = _DRAWN) -> tuple[Case, ...]:
    """Cases of random shapes, values, options, eps and parameters, the same for the same seed."""
    return tuple(
        _drawn_case(f"drawn-{name}{number}", np.random.default_rng([seed, backward, number]), OPS[op], seed)
        for backward, (name, op) in enumerate((("", "layer_norm"), ("backward-", "layer_norm_backward")))
        for number in range(1, count + 1)
    )


def _drawn_case(name: str, rng: np.random.Generator, op: Op, seed: int) -> Case:
    cols = _multiple(rng, round(2 ** rng.uniform(0, 14)))
    rows = _multiple(rng, max(1, min(round(2 ** rng.uniform(0, 16)), _MOST_DRAWN // cols)))
    size, mean = 10 ** rng.uniform(-3, 3), _one_of(rng, 0.0, 1.0, -1.0) * 10 ** rng.uniform(-2, 3)
    options = _drawn_options(rng, op) if rng.random() < 0.5 else Options(bias=rng.random() < 0.5)
    stray = _one_of(rng, None, None, None, np.nan, np.inf, -np.inf)
    return _case(
        name,
        "drawn: --seed repeats it",
        _with_stray(rng, _normal(rows, cols, size, mean * size), rows, cols, stray),
        (rows, cols),
        eps=10 ** rng.uniform(-12, 0) * (size**2 if rng.random() < 0.5 else 1.0),
        scale=10 ** rng.uniform(-1, 1) if options.out_dtype in FP8 else 1.0,
        options=options,
        beside=10 ** rng.uniform(-1, 1),
        narrow=_one_of(rng, "bindings", None) if rows >= _FEWEST_TO_CUT else None,
        seed=seed,
    )


def _multiple(rng: np.random.Generator, count: int) -> int:
    """About as many, and of half the draws a multiple of a power of 2, as most columns of models are."""
    unit: int = _one_of(rng, 1, 1, 1, 4, 64, 1 << int(math.log2(count)))
    return max(unit, count // unit * unit)


# Rows enough that slices of them have several workgroups.
_FEWEST_TO_CUT = 256


def _one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _drawn_options(rng: np.random.Generator, op: Op) -> Options:
    """Some of the options that an op has."""
    chosen: dict[str, Any] = {name: rng.random() < 0.5 for name in op.options}
    chosen["weight_dtype"] = _one_of(rng, None, *STORAGE)
    chosen["max_workgroups"] = _one_of(rng, 0, 0, 1, 5, 64, 1000)
    if "out_dtype" in op.options:
        chosen["out_dtype"] = _one_of(rng, None, *FP8, "int8", *STORAGE)
    if "residual" in op.options and not chosen["residual"]:
        chosen["residual_bias"] = False
    if not chosen["weight"]:
        chosen["zero_centered_weight"] = False
    return Options(**chosen)


def whole_corpus(seed: int) -> tuple[Case, ...]:
    """The fixed cases, with draws of this seed, and those that are drawn as a whole."""
    fixed = (replace(case, seed=seed) for case in (*CASES, *PROMISES))
    return (*fixed, *_long_cases(seed), *_hard_cases(seed), *drawn_cases(seed))
