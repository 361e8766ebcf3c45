"""The search for a small problem that satisfies the requirements of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from webnorm.errors import WebnormError
from webnorm.op.expression import Tree
from webnorm.op.op import Op, Task

# Elements of the largest tensor. More would be slow on a software adapter.
_MOST_ELEMENTS = 1 << 18
# The steps to whose multiples sizes are rounded up, and the sizes to which they are reduced.
_STEPS = (4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384, 65536)
_SMALLER = (32, 16, 8, 4, 2, 1)

# The number of a kernel's rules that are used, and the largest one.
_MOST_NUMBERS, _LARGEST_NUMBER = 8, 1 << 16

Sizes = tuple[int, ...]


def fitting_task(task: Task, fits: Callable[[Any], bool], numbers: Sequence[int] = ()) -> Task:
    """Return the task if its problem fits, or a similar task with sizes that fit.

    Parameters
    ----------
    task
        The task.
    fits
        A function that returns True for a valid problem. It may raise WebnormError for the problem of the
        task; for other problems that counts as False.
    numbers
        Numbers from 1 up that are tried as sizes, together with their multiples.

    Returns
    -------
    Task
        A task that fits, or `task` if no sizes fit.
    """
    if fits(task.problem):
        return task
    op, own = task.op, task.problem
    bases = dict.fromkeys(_bases(op, tuple(own.sizes.values()), numbers))
    shapes = (sizes for one in bases for sizes in ((one,), multiples(one, numbers), reduced(one)))
    for sizes in dict.fromkeys(chain.from_iterable(shapes)):
        with suppress(WebnormError):
            problem = replace(own, **dict(zip(own.SIZES, sizes, strict=True)))
            op.check(problem)
            if op.elements(problem) <= _MOST_ELEMENTS and fits(problem):
                return Task(op, problem)
    return task


def sizes_in(rules: Iterable[Tree]) -> list[int]:
    """Return the first numbers of rules that may be sizes."""
    numbers = dict.fromkeys(number for rule in rules for number in _numbers(rule))
    return [*numbers][:_MOST_NUMBERS]


def _numbers(rule: Tree) -> Iterator[int]:
    if isinstance(rule, list):
        for part in rule:
            yield from _numbers(part)
    elif isinstance(rule, int) and 2 < rule <= _LARGEST_NUMBER:
        yield rule


def multiples(sizes: Sizes, numbers: Sequence[int] = ()) -> Iterator[Sizes]:
    """Yield sizes with some of them rounded up to multiples: one at a time, then the last ones together.

    Sizes that differ stay different. `numbers` are additional steps.
    """
    indices = range(len(sizes) - 1, -1, -1)
    parts = [*((at,) for at in indices), *(tuple(range(at, len(sizes))) for at in indices[1:])]
    for step in (*_STEPS, *numbers):
        for part in parts:
            yield _rounded(sizes, part, step)


def reduced(sizes: Sizes) -> Iterator[Sizes]:
    """Yield sizes with one of them made smaller; sizes that differ stay different."""
    for at in range(len(sizes) - 1, -1, -1):
        for value in _SMALLER:
            if value < sizes[at] and value not in sizes:
                yield (*sizes[:at], value, *sizes[at + 1 :])


def odd_sizes(count: int) -> Sizes:
    """Return small odd sizes, all different, which are not multiples of the usual requirements."""
    return tuple(range(3, 3 + 2 * count, 2))


def _rounded(sizes: Sizes, part: Sequence[int], step: int) -> Sizes:
    """Return the sizes, with the ones at these indices rounded up to multiples of `step`."""
    found = [*sizes]
    for at in part:
        found[at] = -(-found[at] // step) * step
        while found[at] in (*found[:at], *found[at + 1 :]):
            found[at] += step
    return tuple(found)


def _bases(op: Op, own: Sizes, numbers: Sequence[int]) -> Iterator[Sizes]:
    """Yield the starting points of the search.

    These are the task's own sizes, small ones, and small ones in which one size is replaced. The replacement
    is one of the numbers, or one of the op's default sizes, which kernels are usually written for.
    """
    small = odd_sizes(len(own))
    yield own
    yield small
    kind = op.problem_type
    equal = [(number,) * len(own) for number in numbers]
    for shape in (*equal, *kind.default_sizes(True, True), *kind.default_sizes(True, False)):
        for at in range(len(own) - 1, -1, -1):
            yield (*small[:at], shape[at], *small[at + 1 :])
        if kind.BATCH:
            batch = [*kind.SIZES].index(kind.BATCH)
            yield (*shape[:batch], small[batch], *shape[batch + 1 :])
