"""Which kernel and which constants run by default: what a tuning recorded, where it fits; else
what the rules choose; else the header's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

from webnorm.choice.tuning import Tuning
from webnorm.errors import WebnormError
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import UnreadableKernel, own_kernel, own_kernels
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import (
    WORKGROUP_BYTES,
    Variant,
    check_kinds,
    header_names,
    runnable_variants,
)
from webnorm.op.op import Op, Task
from webnorm.op.problem import Problem

Constants = Mapping[str, int]
KernelOf = Callable[[str], Kernel | None]
# Workgroup memory that a page has unless it asks for more.
_PAGE_BYTES = 16384


def default_variant(kernel: Kernel, problem: Problem, traits: Traits) -> Variant:
    """Return the default variant of a kernel for a problem on an adapter.

    The constants are the first ones of the rules that the adapter can run. The header's `default` table
    supplies the rest. The variant may still be unable to run: see `Variant.refusal`.

    Parameters
    ----------
    kernel : Kernel
        A kernel, such as one from `webnorm.select`.
    problem : Problem
        A problem of the kernel's op.
    traits : Traits
        The limits and features of the adapter: `Device.traits`.

    Returns
    -------
    Variant
        The kernel with its constants.

    Raises
    ------
    WebnormError
        A default of the header is not on its axis, or an argument has the wrong type.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> traits = webnorm.find_adapter().traits
    >>> variant = webnorm.default_variant(kernel, webnorm.Problem(rows=4, cols=8), traits)
    >>> list(variant.constants)
    ['workgroup_size']
    """
    check_kinds(kernel, problem, traits)
    values = header_names(kernel.op, problem, traits)
    # Without subgroups a gradient is kept within a page's memory where it can be: what is exported for two
    # classes of adapters is then one text.
    small_first = kernel.op.gradient and not values["has_subgroups"]
    for small in (True, False) if small_first else (False,):
        for chosen in _constants(kernel, values):
            if _has(kernel, chosen):
                variant = _with_defaults(kernel, problem, values, chosen)
                if variant.refusal(problem, traits) is None and (
                    not small or variant.names(problem, traits).get(WORKGROUP_BYTES, 0) <= _PAGE_BYTES
                ):
                    return variant
    return _with_defaults(kernel, problem, values, {})


def _has(kernel: Kernel, constants: Mapping[str, int]) -> bool:
    """Whether constants are on a kernel's axes: a user's file may have the name of another kernel."""
    return all(value in kernel.tune.get(axis, ()) for axis, value in constants.items())


def _with_defaults(
    kernel: Kernel, problem: Problem, values: Mapping[str, int], chosen: Mapping[str, int]
) -> Variant:
    constants: dict[str, int] = {}
    for axis in kernel.tune:
        if axis in chosen:
            constants[axis] = chosen[axis]
            continue
        constants[axis] = kernel.value(f"default {axis}", kernel.default[axis], {**values, **constants})
        if constants[axis] not in kernel.tune[axis]:
            raise WebnormError(
                f"{kernel.path}: default {axis} is {constants[axis]} for {problem}; "
                f"expected one of {list(kernel.tune[axis])}"
            )
    return Variant(kernel, constants)


def default_constants(
    kernels: Sequence[Kernel], task: Task, traits: Traits
) -> dict[tuple[str, str], Mapping[str, int]]:
    """By op and kernel, the constants of `default_variant`, for those kernels whose headers have any."""
    found: dict[tuple[str, str], Mapping[str, int]] = {}
    for kernel in kernels:
        if kernel.op is task.op:
            with suppress(WebnormError):
                variant = default_variant(kernel, task.problem, traits)
                found.setdefault((kernel.op.name, kernel.name), variant.constants)
    return found


def fitting_variant(kernel: Kernel, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """The default variant if it can run the problem on such an adapter, else the reason why it cannot."""
    variant = default_variant(kernel, problem, traits)
    refusal = variant.refusal(problem, traits)
    return (variant, "") if refusal is None else (None, refusal)


def nearest_variant(kernel: Kernel, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """The default variant if it can run the problem on such an adapter, else the one that is most like it of
    those that can, such as one of fewer invocations; without any, the reason why the default cannot.
    """
    default = default_variant(kernel, problem, traits)
    refusal = default.refusal(problem, traits)
    if refusal is None:
        return default, ""

    def difference(other: Variant) -> float:
        return sum(
            abs(math.log2(1 + abs(other.constants[axis])) - math.log2(1 + abs(value)))
            for axis, value in default.constants.items()
        )

    nearest = min(runnable_variants(kernel, problem, traits), key=difference, default=None)
    return nearest, refusal


def best_variant(kernels: Sequence[Kernel], problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """What the rules, or else the headers, prefer of the variants of stable kernels that can run the problem.

    Without one, the reason why the least preferred cannot. A kernel whose header has no sense for the problem
    cannot.
    """
    stable = {kernel.name: kernel for kernel in kernels if kernel.unstable is None}
    if not stable:
        return None, "every kernel is unstable"
    op = next(iter(stable.values())).op
    op.check(problem)
    names = header_names(op, problem, traits)
    candidates = chain(_suggested(op, stable.get, names), _by_preference(stable.values(), names))
    return _first_to_run(candidates, names, problem, traits)


def suggested_variant(op: Op, kernel_of: KernelOf, problem: Problem, traits: Traits) -> Variant | None:
    """What the rules prefer of the variants of stable kernels that can run the problem; None where none of
    those that they name can. Kernels are asked for one by one, and no more than there have to be.
    """
    op.check(problem)
    names = header_names(op, problem, traits)
    return _first_to_run(_suggested(op, kernel_of, names), names, problem, traits)[0]


def _constants(kernel: Kernel, names: Mapping[str, int]) -> Iterator[Constants]:
    """Constants that the rules of the op prefer for a kernel, the best first."""
    if (rules := kernel.op.hook("rules")) is not None:
        yield from rules.constants(kernel.op.name, kernel.name, names)


def suggestions(op: Op, names: Mapping[str, int]) -> Iterator[tuple[str, Constants | None]]:
    """Yield the kernels that the rules of an op would try before all others, the best first, each with its
    constants or None for the kernel's own choice.

    `names` are those of headers, for a problem on an adapter.
    """
    if (rules := op.hook("rules")) is not None:
        yield from rules.suggestions(op.name, names)


def _suggested(
    op: Op, kernel_of: KernelOf, names: Mapping[str, int]
) -> Iterator[tuple[Kernel, Constants | None]]:
    for name, constants in suggestions(op, names):
        kernel = kernel_of(name)
        if kernel is not None and kernel.unstable is None and _has(kernel, constants or {}):
            yield kernel, constants


def _first_to_run(
    candidates: Iterable[tuple[Kernel, Constants | None]],
    names: Mapping[str, int],
    problem: Problem,
    traits: Traits,
) -> tuple[Variant | None, str]:
    """The first variant that can run the problem, its constants the kernel's own choice where there are none;
    without one, the reason why the last cannot.
    """
    refusal = ""
    for kernel, constants in candidates:
        try:
            variant = (
                default_variant(kernel, problem, traits)
                if constants is None
                else _with_defaults(kernel, problem, names, constants)
            )
            found = variant.refusal(problem, traits)
        except WebnormError as error:
            found = str(error)
        if found is None:
            return variant, ""
        refusal = found
    return None, refusal


def _by_preference(
    kernels: Iterable[Kernel], names: Mapping[str, int]
) -> Iterator[tuple[Kernel, Constants | None]]:
    """Each with its own constants, as headers rank them; last those whose headers have no sense for the
    problem.
    """

    def preference(kernel: Kernel) -> float:
        try:
            return -kernel.value("preference", kernel.preference, names)
        except WebnormError:
            return math.inf

    yield from ((kernel, None) for kernel in sorted(kernels, key=preference))


def chosen_variants(
    kernel: Kernel, problem: Problem, traits: Traits, chosen: Mapping[str, Sequence[int]], every: bool = False
) -> list[Variant]:
    """The variants to run: every admitted point, or the default with some axes chosen by the user.

    Raises WebnormError for a value that is not on its axis. Axes that this kernel lacks are ignored,
    since one choice is made for many kernels. Points a rule refuses are left out when there are several.
    """
    for axis, values in chosen.items():
        for value in values:
            if axis in kernel.tune and value not in kernel.tune[axis]:
                raise WebnormError(
                    f"{axis} is {value} for kernel {kernel.label}; expected one of {list(kernel.tune[axis])}"
                )
    default = default_variant(kernel, problem, traits)
    axes = {
        axis: chosen.get(axis, points if every else (default.constants[axis],))
        for axis, points in kernel.tune.items()
    }
    first = Variant(kernel, {axis: values[0] for axis, values in axes.items()})
    return list(runnable_variants(kernel, problem, traits, axes)) or [first]


def extreme_variants(variant: Variant, problem: Problem, traits: Traits) -> list[Variant]:
    """Return other variants than the default one that a kernel may run with, if that can run the problem.

    They are the one that is the default on a GPU, or on a software adapter, and those that differ from
    `variant` in one constant: the least and the greatest of each axis that can run. Raises WebnormError
    where the header makes no sense on the other kind of adapter.
    """
    if variant.refusal(problem, traits) is not None:
        return []
    try:
        other = default_variant(variant.kernel, problem, replace(traits, software=not traits.software))
    except WebnormError as error:
        raise WebnormError(f"{error} (on a {'GPU' if traits.software else 'software adapter'})") from None
    found = [other] if other != variant and other.refusal(problem, traits) is None else []
    for axis, points in variant.kernel.tune.items():
        for order in (sorted(points), sorted(points, reverse=True)):
            others = (Variant(variant.kernel, {**variant.constants, axis: value}) for value in order)
            runnable = (other for other in others if other.refusal(problem, traits) is None)
            found += [one for one in [next(runnable, variant)] if one not in (variant, *found)]
    return found


def each_chosen(
    kernels: Sequence[Kernel],
    task: Task,
    traits: Traits,
    chosen: Mapping[str, Sequence[int]],
    every: bool = False,
    extremes: bool = False,
) -> tuple[list[Variant], list[UnreadableKernel]]:
    """`chosen_variants` of all kernels of a task's op, and those whose headers make no sense of its problem.

    With `extremes`, each variant's `extreme_variants`, too. Raises WebnormError where somebody chose values,
    which may be what is wrong.
    """
    found: list[Variant] = []
    broken: list[UnreadableKernel] = []
    for kernel in kernels:
        if kernel.op is task.op:
            try:
                variants = chosen_variants(kernel, task.problem, traits, chosen, every)
                found += variants
                for own in variants if extremes else ():
                    found += extreme_variants(own, task.problem, traits)
            except WebnormError as error:
                if chosen:
                    raise
                broken.append(UnreadableKernel(task.op, kernel.name, kernel.path, str(error)))
    return found, broken


@dataclass(frozen=True)
class ChosenVariant:
    """A variant that can run the problem, and whether a tuning or the rules named it."""

    variant: Variant
    source: Literal["tuning", "rules"]


def choose(
    kernels: Sequence[Kernel], task: Task, traits: Traits, tuning: Tuning | None = None
) -> ChosenVariant:
    """The variant for a task on such an adapter; a tuning that has one is followed.

    A recorded choice is passed over where its kernel or its constants are gone or cannot run the problem.
    Raises WebnormError where no kernel can.
    """
    op, problem = task.op, task.problem
    ladder = {kernel.name: kernel for kernel in kernels if kernel.op == op}
    recorded = _recorded(ladder.get, task, traits, tuning)
    if recorded is not None:
        return ChosenVariant(recorded, "tuning")
    found, refusal = best_variant(tuple(ladder.values()), problem, traits)
    if found is None:
        raise WebnormError(f"no kernel of {op.name} can run {problem} on this adapter: {refusal}")
    return ChosenVariant(found, "rules")


def choose_own(task: Task, traits: Traits, tuning: Tuning | None = None) -> ChosenVariant:
    """`choose` among the kernels that come with webnorm. A first call reads no more of them than it has to:
    a header takes about a millisecond.
    """
    kernel_of = partial(own_kernel, task.op.name)
    recorded = _recorded(kernel_of, task, traits, tuning)
    if recorded is not None:
        return ChosenVariant(recorded, "tuning")
    found = suggested_variant(task.op, kernel_of, task.problem, traits)
    return ChosenVariant(found, "rules") if found else choose(own_kernels(task.op.name), task, traits)


def _recorded(kernel_of: KernelOf, task: Task, traits: Traits, tuning: Tuning | None) -> Variant | None:
    """The variant of the nearest choice that can still run."""
    for choice in tuning.matching(task) if tuning else ():
        kernel, constants = kernel_of(choice.kernel), choice.constants
        # The constants may not be the kernel's any more.
        if (
            kernel
            and kernel.unstable is None
            and constants.keys() == kernel.tune.keys()
            and _has(kernel, constants)
        ):
            variant = Variant(kernel, constants)
            if variant.refusal(task.problem, traits) is None:
                return variant
    return None
