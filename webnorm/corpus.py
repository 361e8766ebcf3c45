"""The corpus of `check`: inputs that broke other implementations and edges of our own, with sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from webnorm.problem import Array, Options, Problem

_PLAIN = Options(weight=False, bias=False)


@dataclass(frozen=True)
class Case:
    """One input. `draw` makes the arrays that `problem`'s options ask for.

    `breaks_one_pass`: E[x²] - E[x]² in float32 has to fail here, since the square of the mean times the unit
    roundoff is as large as the variance, or larger.
    """

    name: str
    source: str
    problem: Problem
    draw: Callable[[], dict[str, Array]]
    breaks_one_pass: bool = False


def _case(
    name: str,
    source: str,
    x: Callable[[np.random.Generator], Array],
    shape: tuple[int, int],
    *,
    eps: float = 1e-5,
    options: Options = _PLAIN,
    breaks_one_pass: bool = False,
) -> Case:
    """A case whose x (rows, cols) is drawn in float64 and rounded to float32, as are weight and bias."""

    def draw() -> dict[str, Array]:
        rng = np.random.default_rng(len(name))
        with np.errstate(over="ignore"):
            arrays = {"x": np.broadcast_to(x(rng), shape).astype(np.float32)}
        if options.weight:
            arrays["weight"] = (rng.random(shape[1]) + 0.5).astype(np.float32)
        if options.bias:
            arrays["bias"] = (rng.random(shape[1]) - 0.5).astype(np.float32)
        return arrays

    rows, cols = shape
    problem = Problem(rows=rows, cols=cols, eps=eps, distribution="given", options=options)
    return Case(name, source, problem, draw, breaks_one_pass)


def _normal(
    rows: int, cols: int, scale: float = 1.0, mean: float = 0.0
) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.standard_normal((rows, cols)) * scale + mean


def _constant(value: float) -> Callable[[np.random.Generator], Array]:
    return lambda rng: np.array(value)


def _consecutive(first: int, count: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: np.arange(first, first + count, dtype=np.float64)[None, :]


def _outlier(rng: np.random.Generator) -> Array:
    x = rng.standard_normal((3, 1024))
    x[:, 700] = 1e4
    return x


def _scales(rng: np.random.Generator) -> Array:
    return rng.standard_normal((24, 257)) * np.logspace(-18, 17, 24)[:, None]


def _poisoned(value: float) -> Callable[[np.random.Generator], Array]:
    def x(rng: np.random.Generator) -> Array:
        drawn = rng.standard_normal((9, 130))
        drawn[4, 77] = value
        return drawn

    return x


_BOTH = Options()
_SHIFT = "mean of {} standard deviations: the rounding of the mean (webnorm docs/numerics.md)"

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
        "onnxruntime #31626: float16 squares that overflow; 300 ± 100 here, in float32",
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
        "pytorch #41527: float16 zeros with eps 1e-12; float32 here",
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
)
