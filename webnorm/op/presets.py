"""Named workloads: the shapes that a paper, a tutorial or a model asks for."""

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
    """A list of tasks and where they come from."""

    summary: str
    tasks: tuple[Task, ...]

    def changed(self, options: Sequence[str], dtype: str | None, scalars: Scalars, seed: int = 0) -> Preset:
        """The same sizes with some options set (see Options.changed), another dtype, scalars and seed."""

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
    """Raise WebnormError for a batch that there is nothing to time in; None stands for any.

    `name` is what its size is called.
    """
    for count in counts or ():
        if count < 1:
            raise WebnormError(f"{name} is {count}; expected 1 or more: no {name} take no time")


def usual_shapes(
    op: Op, sizes: Mapping[str, Sequence[int] | None], software: bool, quick: bool
) -> list[tuple[int, ...]]:
    """The shapes that a benchmark of an op takes, with the sizes that are given in their place."""
    given = [sizes.get(name) for name in op.problem_type.SIZES]
    found = (
        itertools.product(*(values or (own,) for values, own in zip(given, shape, strict=True)))
        for shape in op.problem_type.default_sizes(software, quick)
    )
    return [*dict.fromkeys(shape for shapes in found for shape in shapes)]


def tasks(
    op: str, shapes: Sequence[tuple[int, ...]], options: Options | None = None, **common: Any
) -> tuple[Task, ...]:
    """Problems of an op, one for each tuple of its sizes: see Op.problem."""
    chosen = OPS[op]
    return tuple(Task(chosen, chosen.problem(*shape, options=options, **common)) for shape in shapes)


def smallest_problem(op: Op, options: Options | None = None) -> Problem:
    """The smallest problem of an op; raises UnsupportedProblem for options that it lacks."""
    if op.source is not None:
        # Here: its sizes may have to meet what it requires.
        from webnorm.op.built_op import small_problem

        found: Problem = small_problem(op, 1, options)
        return found
    one: Problem = op.problem(*(1 for _ in op.problem_type.SIZES), options=options)
    return one


def ops_with_options(ops: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Those of the ops that have these options (see Options.changed); raises UnsupportedProblem where none
    has.
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
    """`tasks` of those ops that have the options, in several storage types or in their default one."""
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
    """The first, the middle and the last task of each op: enough to see that a preset runs.

    On a software adapter with a smaller batch, which changes what it measures less than its patience.
    """
    found: list[Task] = []
    for op in dict.fromkeys(task.op.name for task in preset.tasks):
        own = [task for task in preset.tasks if task.op.name == op]
        found += [own[at] for at in sorted({0, len(own) // 2, len(own) - 1})]
    if not software:
        return tuple(found)
    # Sizes that differed in their batch only may be the same now.
    return without_duplicates(Task(task.op, _small(task.problem)) for task in found)


def without_duplicates(found: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks without those that are named again."""
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
    """The tasks of a preset in the storage types, its own where there are none; a few of them if `quick`."""
    if name not in presets():
        raise unknown("preset", name, presets())
    preset = presets()[name]
    changed = [preset.changed(options, dtype, scalars, seed) for dtype in dtypes or (None,)]
    return without_duplicates(
        task for one in changed for task in (quick_tasks(one, software) if quick else one.tasks)
    )


def _small(problem: Problem) -> Problem:
    return problem.with_batch(min(problem.batch_size, max(64, 2**19 // problem.inner)))
