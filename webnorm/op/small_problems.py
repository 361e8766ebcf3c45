"""The problems that a kernel of an op of the user's is evaluated on while it is written, and test vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.built_op import small_problem
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task
from webnorm.op.options import Options

# Sizes of an aligned problem and of an odd one.
_SIZES = (64, 37)
_SEED = 16
# Elements of an export's test vector, about: a package is downloaded.
_VECTOR_ELEMENTS = 4_000


def playground_tasks(op: Op, dtype: str = "float32", options: Options | None = None) -> tuple[Task, ...]:
    """An aligned and an odd problem of an op; raises WebnormError for options that it lacks."""
    found = [Task(op, small_problem(op, size, options, dtype=dtype, seed=_SEED)) for size in _SIZES]
    return tuple(found)


def draw_playground(task: Task) -> dict[str, Array]:
    """The inputs of a task, as its op draws them."""
    return task.op.draw(task, {}, np.random.default_rng(task.problem.seed))


def given_task(op: Op, dtype: str = "float32", options: Options | None = None) -> Task:
    """Raise WebnormError: a mean and a deviation are no inputs of any op."""
    raise WebnormError(f"{op.name} draws its inputs itself; the mean and deviation of x are for norms")


def draw_given(task: Task, mean: float, spread: float) -> dict[str, Array]:
    """Raise WebnormError: see `given_task`."""
    raise WebnormError(f"{task.op.name} draws its inputs itself")


def export_inputs(op: Op, problem: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, description and problem of each test vector: one for each way to draw the inputs."""
    count = max(1, min(37, _VECTOR_ELEMENTS // max(1, problem.inner))) | 1
    for kind in op.problem_type.DISTRIBUTIONS:
        one = replace(problem.with_batch(count), distribution=kind)
        yield kind, f"inputs drawn as {kind}", one
