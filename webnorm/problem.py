"""A problem: the sizes, options and inputs that one kernel is asked to compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from webnorm.errors import WebnormError, unknown

Array = npt.NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {"float32": np.dtype(np.float32)}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an op may leave out. `weight` and `bias`: whether y is scaled and shifted."""

    weight: bool = True
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Normalise `rows` rows of `cols` columns.

    `distribution` names how x is drawn (see DISTRIBUTIONS) and `seed` fixes the draw.
    """

    rows: int
    cols: int
    dtype: str = "float32"
    eps: float = 1e-5
    distribution: str = "normal"
    seed: int = 0
    options: Options = Options()

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise WebnormError(f"rows is {self.rows}; expected 0 or more")
        if self.cols < 1:
            raise WebnormError(f"cols is {self.cols}; expected 1 or more")
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        if not (self.eps >= 0 and math.isfinite(self.eps)):
            raise WebnormError(f"eps is {self.eps}; expected a finite number of 0 or more")
        if self.distribution not in DISTRIBUTIONS and self.distribution != "given":
            raise unknown("distribution", self.distribution, DISTRIBUTIONS)
        if self.seed < 0:
            raise WebnormError(f"seed is {self.seed}; expected 0 or more")

    @property
    def itemsize(self) -> int:
        """Bytes of one element of x."""
        return DTYPES[self.dtype].itemsize

    def as_json(self) -> dict[str, Any]:
        """The problem as it stands in a results file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """The inverse of `as_json`; raises TypeError or WebnormError for foreign data."""
        return cls(**{**data, "options": Options(**data["options"])})

    def __str__(self) -> str:
        left_out = [name for name, present in asdict(self.options).items() if not present]
        return f"{self.rows}x{self.cols} {self.dtype}" + "".join(f", no {name}" for name in left_out)


def _shifted(mean: float) -> Callable[[np.random.Generator, int, int], Array]:
    return lambda rng, rows, cols: rng.standard_normal((rows, cols)) + mean


def _outlier(rng: np.random.Generator, rows: int, cols: int) -> Array:
    x = rng.standard_normal((rows, cols))
    x[:, cols // 2] = 1e4
    return x


def _row_scales(rng: np.random.Generator, rows: int, cols: int) -> Array:
    scales = np.logspace(-6, 6, max(rows, 1))[:, None]
    return rng.standard_normal((rows, cols)) * scales


# Every draw is float64 of shape (rows, cols), rounded to the problem's dtype by make_inputs.
DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal": _shifted(0.0),
    "uniform": lambda rng, rows, cols: rng.random((rows, cols)),
    "mean100": _shifted(1e2),
    "mean1000": _shifted(1e3),
    "mean1e4": _shifted(1e4),
    "mean1e6": _shifted(1e6),
    "triton": lambda rng, rows, cols: -2.3 + 0.5 * rng.standard_normal((rows, cols)),
    "outlier": _outlier,
    "row_scales": _row_scales,
}


def make_inputs(problem: Problem) -> dict[str, Array]:
    """Draw x (rows, cols) and, where the options ask for them, weight and bias (cols,).

    Weight is uniform in [0.5, 1.5) and bias uniform in [-0.5, 0.5), so that a kernel that swaps or
    drops one of them is wrong by much more than rounding.
    """
    dtype = DTYPES[problem.dtype]
    rng = np.random.default_rng(problem.seed)
    x = DISTRIBUTIONS[problem.distribution](rng, problem.rows, problem.cols)
    arrays = {"x": x.astype(dtype)}
    if problem.options.weight:
        arrays["weight"] = (rng.random(problem.cols) + 0.5).astype(dtype)
    if problem.options.bias:
        arrays["bias"] = (rng.random(problem.cols) - 0.5).astype(dtype)
    return arrays
