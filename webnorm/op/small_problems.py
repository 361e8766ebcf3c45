"""The small problems on which a user kernel is evaluated while it is written, and test vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.built_op import small_problem
from webnorm.op.dtypes import Array
from webnorm.op.fitting_problem import Sizes, multiples, odd_sizes, reduced
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.options import Options

# The first size of an aligned problem and of an odd one with few sizes, and the distance between sizes.
_SIZES = ((64, 4), (37, 1))
# Elements of their largest tensor, for any number of sizes.
_MOST_ELEMENTS = 64 * 65 * 4
_SEED = 16
# Approximate elements of a test vector. A package is downloaded, so it must be small.
_VECTOR_ELEMENTS = 4_000


def playground_tasks(op: Op, dtype: str = "float32", options: Options | None = None) -> tuple[Task, ...]:
    """Return an aligned and an odd problem of an op; raise WebnormError for options that it lacks."""
    given = {"options": options, "dtype": dtype, "seed": _SEED}
    return tuple(Task(op, _bounded_problem(op, first, step, given)) for first, step in _SIZES)


def _bounded_problem(op: Op, first: int, step: int, given: dict[str, Any]) -> Any:
    """Return a problem with few elements, whose sizes all differ and satisfy the op's requirements.

    Raises
    ------
    UnsupportedProblem
        No small sizes satisfy them.
    """
    shapes = _spread(len(op.problem_type.SIZES), first, step)
    others = (sizes for one in shapes for sizes in (*multiples(one), *reduced(one)))
    for sizes in dict.fromkeys(chain(shapes, others)):
        with suppress(UnsupportedProblem):
            problem = op.problem(*sizes, **given)
            if op.elements(problem) <= _MOST_ELEMENTS:
                return problem
    # The op may require equal sizes, for example.
    problem = small_problem(op, first, **given)
    for smaller in (first // 4, 2):
        if op.elements(problem) > _MOST_ELEMENTS:
            problem = small_problem(op, smaller, **given)
    return problem


def _spread(count: int, first: int, step: int) -> list[Sizes]:
    """Return sizes that are different multiples of a step, from large ones to small ones.

    If even the smallest have a large product, the leading sizes are small odd numbers instead.
    """
    starts = [first]
    while starts[-1] // 2 >= step:
        starts.append(starts[-1] // 2)
    found: list[Sizes] = []
    for leading in range(count if step > 1 else 1):
        odd = odd_sizes(leading)
        found = [(*odd, *(start + step * at for at in range(count - leading))) for start in starts]
        if prod(found[-1]) <= _MOST_ELEMENTS:
            break
    return found


def draw_playground(task: Task) -> dict[str, Array]:
    """Draw the inputs of a task with the op's own draws."""
    return task.op.draw(task, {}, np.random.default_rng(task.problem.seed))


def given_task(op: Op, dtype: str = "float32", options: Options | None = None) -> Task:
    """Raise WebnormError: only norms have a mean and a deviation as inputs."""
    raise WebnormError(f"{op.name} draws its inputs itself; the mean and deviation of x are for norms")


def draw_given(task: Task, mean: float, spread: float) -> dict[str, Array]:
    """Raise WebnormError: see `given_task`."""
    raise WebnormError(f"{task.op.name} draws its inputs itself")


def export_inputs(op: Op, problem: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, description and problem of each test vector, one for each distribution."""
    count = max(1, min(37, _VECTOR_ELEMENTS // max(1, problem.inner))) | 1
    for kind in op.problem_type.DISTRIBUTIONS:
        one = replace(problem.with_batch(count), distribution=kind)
        yield kind, f"inputs drawn as {kind}", one
