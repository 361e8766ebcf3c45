"""Test vectors of an export: small inputs that broke other implementations, with the float64 answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from safetensors.numpy import save

from webnorm.norms.ops import Task, complete_inputs
from webnorm.norms.problem import DISTRIBUTIONS, DTYPES, Array, Problem
from webnorm.norms.reference import ExpectedOutputs
from webnorm.web.package.request import ExportRequest

# Elements of x in a vector, about: a package is downloaded.
_ELEMENTS = 24_000


@dataclass(frozen=True)
class TestVector:
    """Inputs of one problem in their storage types, and the answers in float64."""

    name: str
    what: str
    problem: Problem
    arrays: Mapping[str, Array]
    answers: ExpectedOutputs

    @property
    def file(self) -> str:
        """Where it lies in an export."""
        return f"vectors/{self.problem.cols}/{self.name}.safetensors"

    def encoded(self) -> bytes:
        """A safetensors file: the inputs by name, the answers rounded to float32 as `expected.NAME`."""
        with np.errstate(over="ignore"):
            expected = {
                f"expected.{name}": answer.value.astype(np.float32) for name, answer in self.answers.items()
            }
        arrays = {**self.arrays, **expected}
        # One entry: the library writes several in any order, and equal exports have equal bytes.
        metadata = {"what": self.what}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)


def vectors_of(request: ExportRequest) -> list[TestVector]:
    """The vectors of an export, those of each number of columns."""
    return [vector for cols in request.cols for vector in draw_vectors(request.task(cols))]


def draw_vectors(task: Task) -> Iterator[TestVector]:
    """The vectors of an op for the columns, storage types and options of a problem."""
    op, problem = task.op, task.problem
    for number, (name, what, x) in enumerate(_inputs(problem, op.has_mean)):
        rng = np.random.default_rng([problem.seed, number])
        held = x.astype(DTYPES[problem.dtype])
        own = replace(problem, rows=len(x), distribution="given")
        arrays = complete_inputs(Task(op, own), {"x": held}, rng)
        yield TestVector(name, what, own, arrays, op.reference(arrays, own))


def _inputs(problem: Problem, has_mean: bool) -> Iterator[tuple[str, str, Array]]:
    """Name, description and x in float64 of each vector."""
    cols = problem.cols
    rng = np.random.default_rng(problem.seed)
    several = max(3, min(37, _ELEMENTS // cols)) | 1
    yield (
        "normal",
        f"{several} rows of normal numbers: an odd number, so that the last workgroup is not full",
        rng.standard_normal((several, cols)),
    )
    largest = float(np.finfo(np.float32).max if problem.dtype != "float16" else np.finfo(np.float16).max)
    kinds = [draw_rows(rng, 1, cols) for draw_rows in DISTRIBUTIONS.values()]
    # Without a mean, a constant row gives the weights, many of which lie on boundaries of a float8 type.
    constant = [np.full((1, cols), value) for value in ((0.0, 3.0, -1000.0) if has_mean else (0.0,))]
    held = [row for row in [*kinds, *constant] if np.abs(row).max() <= largest]
    yield (
        "mixed",
        "rows of unlike distributions: large means, outliers, small scales, constant rows",
        np.concatenate(held[:: -(-len(held) // max(4, _ELEMENTS // cols))]),
    )
    poisoned = rng.standard_normal((3, cols))
    poisoned[1, cols // 2] = np.nan
    yield "nan", "a NaN in the middle row: its neighbours must not see it", poisoned
    yield "one_row", "a single row", rng.standard_normal((1, cols))
