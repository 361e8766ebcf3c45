"""An input of the corpus: how it is drawn, and the problems that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.op.case import ForceSplit, Overrides
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.registry import options_of
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.ops.norms.reference import stats_of
from webnorm.ops.norms.row_draws import Draw, normal

_PLAIN = NormOptions(weight=False, bias=False)


@dataclass(frozen=True)
class NormCase:
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
    x: Draw
    shape: tuple[int, int]
    options: NormOptions = _PLAIN
    eps: float | None = None
    scale: float = 1.0
    given: str | None = None
    breaks_one_pass: bool = False
    beside: float | None = None
    narrow: ForceSplit | None = None
    saved_eps: float | None = None
    stray: float | None = None
    for_gpus: bool = False
    seed: int = 0

    @property
    def shape_text(self) -> str:
        """The sizes and options as text."""
        rows, cols = self.shape
        return f"{rows}x{cols}" + (f", {self.options}" if str(self.options) else "")

    @property
    def must_fail(self) -> str | None:
        """The kernel that cannot be right here, in float32."""
        return "one_pass" if self.breaks_one_pass else None

    def problem(
        self, op: Op, dtype: str = "float32", overrides: Overrides | None = None
    ) -> NormProblem | None:
        """The case as a problem of an op; None where it has none, or the type cannot hold the case's x.

        `overrides` take the place of the case's own. Options that an op lacks make the case one of other ops.
        """
        overrides = overrides or Overrides()
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
        """The input arrays of a problem that `problem` gave for its op."""
        op, problem, rng = task.op, task.problem, self._rng()
        with np.errstate(over="ignore"):
            arrays = {"x": np.broadcast_to(self.x(rng), self.shape).astype(DTYPES[problem.dtype])}
        if self.beside is not None:
            arrays |= _drawn_beside(task, self.beside, rng)
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
    """A case of normal numbers; `given` are NormCase's other fields."""
    return NormCase(name, source, normal(*shape, spread, mean), shape, **given)


# The share of zeros among what is read beside x.
_ZEROS = 0.05


def _drawn_beside(task: Task, size: float, rng: np.random.Generator) -> dict[str, Array]:
    """What an op reads beside x and its statistics, normal and of this size, some of it 0."""
    arrays = {}
    for tensor in task.op.present(task.problem):
        if tensor.access == "read" and tensor.name not in ("x", "stats"):
            drawn = rng.standard_normal(tensor.shape_in(task.problem)) * size
            drawn[rng.random(drawn.shape) < _ZEROS] = 0.0
            with np.errstate(over="ignore"):
                arrays[tensor.name] = drawn.astype(DTYPES[tensor.dtype(task.problem)])
    return arrays
