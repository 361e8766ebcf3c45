"""Named workloads: the shapes of a paper, a tutorial or a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from webnorm.errors import WebnormError, unknown
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.options import Options
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, options_of

# Scalars by name; None stands for the op's own default.
Scalars = Mapping[str, float | None]


@dataclass(frozen=True)
class Preset:
    """A list of tasks, and their origin."""

    summary: str
    tasks: tuple[Task, ...]

    def changed(self, options: Sequence[str], dtype: str | None, scalars: Scalars, seed: int = 0) -> Preset:
        """Return the same sizes with options set (see Options.changed), another dtype, scalars and seed."""

        def problem(task: Task) -> Problem:
            given: dict[str, Any] = {"options": task.problem.options.changed(options), "seed": seed}
            if dtype is not None:
                given["dtype"] = dtype
            given |= {name: value for name, value in scalars.items() if value is not None}
            changed: Problem = replace(task.problem, **given)
            task.op.check(changed)
            return changed

        return Preset(self.summary, tuple(Task(task.op, problem(task)) for task in self.tasks))


def check_batch(name: str, counts: Sequence[int] | None) -> None:
    """Raise WebnormError for an empty batch, which has no work to time; None is valid.

    `name` is the name of the size.
    """
    for count in counts or ():
        if count < 1:
            raise WebnormError(f"{name} is {count}; expected 1 or more: an empty problem has nothing to time")


def usual_shapes(
    op: Op, sizes: Mapping[str, Sequence[int] | None], software: bool, quick: bool
) -> list[tuple[int, ...]]:
    """Return the default shapes of a benchmark of an op; `sizes` replaces some of their sizes."""
    given = [sizes.get(name) for name in op.problem_type.SIZES]
    found = (
        itertools.product(*(values or (own,) for values, own in zip(given, shape, strict=True)))
        for shape in op.problem_type.default_sizes(software, quick)
    )
    return [*dict.fromkeys(shape for shapes in found for shape in shapes)]


def tasks(
    op: str, shapes: Sequence[tuple[int, ...]], options: Options | None = None, **common: Any
) -> tuple[Task, ...]:
    """Return problems of an op, one for each tuple of its sizes: see Op.problem."""
    chosen = OPS[op]
    return tuple(Task(chosen, chosen.problem(*shape, options=options, **common)) for shape in shapes)


def smallest_problem(op: Op, options: Options | None = None) -> Problem:
    """Return the smallest problem of an op; raise UnsupportedProblem for options that it lacks."""
    if op.source is not None:
        # The sizes of a user op may have to satisfy its requirements.
        from webnorm.op.built_op import small_problem

        found: Problem = small_problem(op, 1, options)
        return found
    one: Problem = op.problem(*(1 for _ in op.problem_type.SIZES), options=options)
    return one


def ops_with_options(ops: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return the ops that have these options (see Options.changed).

    Raises
    ------
    UnsupportedProblem
        No op has them.
    """
    found: list[str] = []
    lacking: UnsupportedProblem | None = None
    for name in ops:
        op = OPS[name]
        try:
            smallest_problem(op, options_of(op, options))
            found.append(name)
        except UnsupportedProblem as error:
            lacking = error
    if lacking is not None and not found:
        raise lacking
    return tuple(found)


def tasks_of_each(
    ops: Sequence[str],
    dtypes: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    options: Sequence[str],
    **common: Any,
) -> tuple[Task, ...]:
    """Return the `tasks` of every op that has the options, in several storage types or in the default one."""
    return tuple(
        task
        for op in ops_with_options(ops, options)
        for dtype in dtypes or (None,)
        for task in tasks(op, shapes, options_of(OPS[op], options), dtype=dtype, **common)
    )


@cache
def presets() -> Mapping[str, Preset]:
    """Return the presets of all ops by name."""
    found: dict[str, Preset] = {}
    for op in OPS.values():
        found |= op.hook("presets") or {}
    return found


def quick_tasks(preset: Preset, software: bool) -> tuple[Task, ...]:
    """Return the first, middle and last task of each op, which show that a preset runs.

    A software adapter gets a smaller batch, which saves time and changes the result little.
    """
    found: list[Task] = []
    for op in dict.fromkeys(task.op.name for task in preset.tasks):
        own = [task for task in preset.tasks if task.op.name == op]
        found += [own[at] for at in sorted({0, len(own) // 2, len(own) - 1})]
    if not software:
        return tuple(found)
    # Tasks that differed only in their batch may now be equal.
    return without_duplicates(Task(task.op, _small(task.problem)) for task in found)


def without_duplicates(found: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks without duplicates."""
    return tuple({str(task): task for task in found}.values())


def preset_tasks(
    name: str,
    dtypes: Sequence[str],
    options: Sequence[str],
    software: bool,
    quick: bool,
    scalars: Scalars,
    seed: int = 0,
) -> tuple[Task, ...]:
    """Return the tasks of a preset in some storage types, or in its own; a few of them if `quick`."""
    if name not in presets():
        raise unknown("preset", name, presets())
    preset = presets()[name]
    changed = [preset.changed(options, dtype, scalars, seed) for dtype in dtypes or (None,)]
    return without_duplicates(
        task for one in changed for task in (quick_tasks(one, software) if quick else one.tasks)
    )


def model_tasks(tasks: Sequence[Task], software: bool, quick: bool, seed: int = 0) -> tuple[Task, ...]:
    """Return the tasks of a model's norms with another seed, each once; a few of them if `quick`."""
    changed = Preset("", tuple(tasks)).changed((), None, {}, seed)
    return without_duplicates(quick_tasks(changed, software) if quick else changed.tasks)


def _small(problem: Problem) -> Problem:
    return problem.with_batch(min(problem.batch_size, max(64, 2**19 // problem.inner)))
