"""Test vectors of an export: small inputs that broke other implementations, with the float64 answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from safetensors.numpy import save

from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import ExpectedOutputs, Task
from webnorm.web.package.request import ExportRequest


@dataclass(frozen=True)
class TestVector:
    """Inputs of one problem in their storage types, and the answers in float64."""

    name: str
    what: str
    # Of its op's own type.
    problem: Any
    arrays: Mapping[str, Array]
    answers: ExpectedOutputs

    @property
    def file(self) -> str:
        """Where it lies in an export."""
        return f"vectors/{self.problem.axis}/{self.name}.safetensors"

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
    main = op.tensors[0].name
    for number, (name, what, drawn) in enumerate(op.hook("export_inputs")(op, problem)):
        rng = np.random.default_rng([problem.seed, number])
        held = drawn.astype(DTYPES[problem.dtype])
        own = replace(problem.with_batch(len(drawn)), distribution="given")
        arrays = op.draw(Task(op, own), {main: held}, rng)
        yield TestVector(name, what, own, arrays, op.reference(arrays, own))
