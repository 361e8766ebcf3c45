"""The default kernel and constants: from a recorded tuning, else from rules, else from headers."""

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
# Bytes of workgroup memory in a page that does not request more.
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
    # Without subgroups a gradient stays within a page's memory if possible. Then one exported shader serves
    # two classes of adapters.
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
    """Return whether constants are on a kernel's axes: a user's file may reuse the name of another kernel."""
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
                f"it must be one of {list(kernel.tune[axis])}"
            )
    return Variant(kernel, constants)


def default_constants(
    kernels: Sequence[Kernel], task: Task, traits: Traits
) -> dict[tuple[str, str], Mapping[str, int]]:
    """Return the constants of `default_variant` by op and kernel, without kernels whose headers fail."""
    found: dict[tuple[str, str], Mapping[str, int]] = {}
    for kernel in kernels:
        if kernel.op is task.op:
            with suppress(WebnormError):
                variant = default_variant(kernel, task.problem, traits)
                found.setdefault((kernel.op.name, kernel.name), variant.constants)
    return found


def fitting_variant(kernel: Kernel, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """Return the default variant if it can run the problem on the adapter, else the reason why it cannot."""
    variant = default_variant(kernel, problem, traits)
    refusal = variant.refusal(problem, traits)
    return (variant, "") if refusal is None else (None, refusal)


def nearest_variant(kernel: Kernel, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """Return the runnable variant nearest to the default, such as one with fewer invocations.

    If the default cannot run on the adapter, the second value is the reason.
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
    """Return the runnable variant of a stable kernel that the rules, or else the headers, prefer.

    If there is none, the second value is the reason why the least preferred one cannot run. Kernels whose
    headers fail for the problem count as not runnable.
    """
    if not kernels:
        return None, "the op has no kernel; add a .wgsl file next to its op.py"
    stable = {kernel.name: kernel for kernel in kernels if kernel.unstable is None}
    if not stable:
        return None, "every kernel is unstable"
    op = next(iter(stable.values())).op
    op.check(problem)
    names = header_names(op, problem, traits)
    candidates = chain(_suggested(op, stable.get, names), _by_preference(stable.values(), names))
    return _first_to_run(candidates, names, problem, traits)


def suggested_variant(op: Op, kernel_of: KernelOf, problem: Problem, traits: Traits) -> Variant | None:
    """Return the runnable variant of a stable kernel that the rules prefer; None if they name none.

    `kernel_of` loads kernels one by one, only as many as needed.
    """
    op.check(problem)
    names = header_names(op, problem, traits)
    return _first_to_run(_suggested(op, kernel_of, names), names, problem, traits)[0]


def _constants(kernel: Kernel, names: Mapping[str, int]) -> Iterator[Constants]:
    """Yield the constants that the op's rules suggest for a kernel, the best first."""
    if (rules := kernel.op.hook("rules")) is not None:
        yield from rules.constants(kernel.op.name, kernel.name, names)


def suggestions(op: Op, names: Mapping[str, int]) -> Iterator[tuple[str, Constants | None]]:
    """Yield the kernels that the op's rules suggest, the best first.

    Each comes with constants, or None for the kernel's own defaults. `names` are the header names of a
    problem on an adapter.
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
    """Return the first candidate that can run the problem; without one, the reason why the last cannot.

    Candidates without constants use the kernel's defaults.
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
    """Yield the kernels by the `preference` of their headers; headers that fail for the problem come last."""

    def preference(kernel: Kernel) -> float:
        try:
            return -kernel.value("preference", kernel.preference, names)
        except WebnormError:
            return math.inf

    yield from ((kernel, None) for kernel in sorted(kernels, key=preference))


def chosen_variants(
    kernel: Kernel, problem: Problem, traits: Traits, chosen: Mapping[str, Sequence[int]], every: bool = False
) -> list[Variant]:
    """Return the variants to run.

    Parameters
    ----------
    chosen
        The user's values per axis. Axes that the kernel lacks are ignored, because a choice may be for
        several kernels.
    every
        Whether the axes without chosen values use all their points instead of the default.

    Returns
    -------
    list of Variant
        The runnable combinations. If none is, the first combination, whose refusal gives the reason.

    Raises
    ------
    WebnormError
        A value is not on its axis.
    """
    for axis, values in chosen.items():
        for value in values:
            if axis in kernel.tune and value not in kernel.tune[axis]:
                raise WebnormError(
                    f"constant {axis} is {value}; kernel {kernel.label} accepts "
                    f"{', '.join(map(str, kernel.tune[axis]))}"
                )
    default = default_variant(kernel, problem, traits)
    axes = {
        axis: chosen.get(axis, points if every else (default.constants[axis],))
        for axis, points in kernel.tune.items()
    }
    first = Variant(kernel, {axis: values[0] for axis, values in axes.items()})
    return list(runnable_variants(kernel, problem, traits, axes)) or [first]


def extreme_variants(variant: Variant, problem: Problem, traits: Traits) -> list[Variant]:
    """Return further variants to check, if `variant` can run the problem.

    They are the default of the other kind of adapter (GPU or software), and the variants with the smallest
    and the largest runnable value of one axis. Raises WebnormError if the header fails on the other kind.
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
    """Return the `chosen_variants` of all kernels of a task's op, and the kernels whose headers fail for it.

    With `extremes`, the list includes the `extreme_variants` of each variant. If the user chose values, a
    failure raises WebnormError, because the values may be the cause.
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
    """A variant that can run the problem, and its source: a tuning or the rules."""

    variant: Variant
    source: Literal["tuning", "rules"]


def choose(
    kernels: Sequence[Kernel], task: Task, traits: Traits, tuning: Tuning | None = None
) -> ChosenVariant:
    """Return the variant for a task on an adapter: the tuning's choice, or else the rules' choice.

    A recorded choice is ignored if its kernel or constants no longer exist or cannot run the problem. Raises
    WebnormError if no kernel can run it.
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
    """Do `choose` among webnorm's own kernels.

    It reads as few headers as possible, because each takes about a millisecond of a first call.
    """
    kernel_of = partial(own_kernel, task.op.name)
    recorded = _recorded(kernel_of, task, traits, tuning)
    if recorded is not None:
        return ChosenVariant(recorded, "tuning")
    found = suggested_variant(task.op, kernel_of, task.problem, traits)
    return ChosenVariant(found, "rules") if found else choose(own_kernels(task.op.name), task, traits)


def _recorded(kernel_of: KernelOf, task: Task, traits: Traits, tuning: Tuning | None) -> Variant | None:
    """Return the variant of the recorded choice with the nearest batch size that can run."""
    for choice in tuning.matching(task) if tuning else ():
        kernel, constants = kernel_of(choice.kernel), choice.constants
        # The kernel's axes may have changed since the tuning.
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
