"""The cases of a model's norms: its own shapes, with ordinary and hostile values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from webnorm.op.corpus import Case, Overrides
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.problem import Problem

# Elements of a case's largest tensor, if the batch can be that small.
MOST_ELEMENTS = 1 << 20
# More elements take minutes on a software adapter.
_MOST_ON_SOFTWARE = 1 << 23


@dataclass(frozen=True)
class ModelCase(Case):
    """One distribution of inputs for a norm of a model."""

    name: str
    task: Task
    for_gpus: bool = False
    source = "the model: its own sizes and options"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The sizes."""
        return tuple(self.task.problem.sizes.values())

    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the norm's problem; None for another op or type."""
        own: Problem = self.task.problem
        return own if op.name == self.task.op.name and dtype == own.dtype else None

    def other_task(self, task: Task, fits: Callable[[Any], bool], numbers: Sequence[int]) -> Task:
        """Return the same task, since a kernel that refuses the model's sizes is of no use to it."""
        return task

    def draw(self, task: Task) -> dict[str, Array]:
        """Return the arrays that the op draws."""
        return make_inputs(task.op, task.problem)


def model_cases(tasks: Sequence[Task], seed: int) -> tuple[Case, ...]:
    """Return a case for each norm and each distribution of its op.

    A smaller batch limits a case to MOST_ELEMENTS elements. Sizes that are compiled in stay.
    """
    small = (Task(task.op, limited(task)) for task in tasks)
    found = [case for task in dict.fromkeys(small) for case in _cases(task, seed)]
    return tuple(_with_unique_names(found))


def _largest(task: Task, problem: Problem) -> int:
    return max(prod(tensor.shape_in(problem)) for tensor in task.op.present(problem))


def limited(task: Task, most: int = MOST_ELEMENTS) -> Problem:
    """Return the problem with a batch of at most `most` elements, but at least one."""
    problem: Problem = task.problem
    each = max(1, _largest(task, problem.with_batch(1)))
    return problem.with_batch(min(problem.batch_size, max(1, most // each)))


def _cases(task: Task, seed: int) -> Iterator[ModelCase]:
    problem: Problem = task.problem
    large = _largest(task, problem) > _MOST_ON_SOFTWARE
    for kind in problem.DISTRIBUTIONS:
        own = Task(task.op, replace(problem, distribution=kind, seed=seed))
        if _is_held(own):
            words = (task.op.name, problem.shape_text, *str(problem.options).split(), kind)
            yield ModelCase("-".join(words), own, large)


def _is_held(task: Task) -> bool:
    """Return False for a draw that leaves the range of float16, such as a mean of a million."""
    if task.problem.dtype != "float16":
        return True
    drawn = make_inputs(task.op, replace(task.problem, dtype="float32"))[task.op.tensors[0].name]
    return bool(np.abs(drawn).max() <= np.finfo(np.float16).max)


def _with_unique_names(cases: Sequence[ModelCase]) -> Iterator[ModelCase]:
    """Yield the cases; norms that differ in their type or scalars get a number behind their name."""
    counts: dict[str, int] = {}
    for case in cases:
        counts[case.name] = counts.get(case.name, 0) + 1
        number = counts[case.name]
        yield case if number == 1 else replace(case, name=f"{case.name}-{number}")
