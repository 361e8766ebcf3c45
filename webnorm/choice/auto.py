"""What `kernel="auto"` stands for: a recorded choice that fits, else what the rules choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from webnorm.choice.defaults import KernelOf, best_variant, suggested_variant
from webnorm.choice.tuning import TunedChoice, Tuning
from webnorm.errors import WebnormError
from webnorm.kernels.headers.kernel import Kernel, Traits
from webnorm.kernels.headers.library import own_kernel, own_kernels
from webnorm.kernels.headers.variants import Variant
from webnorm.op.op import Task


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
    """`choose` among the kernels that come with webnorm, of which a first call reads no more than it has to:
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
        kernel = kernel_of(choice.kernel)
        variant = None if kernel is None else _of_kernel(kernel, choice)
        if variant is not None and variant.refusal(task.problem, traits) is None:
            return variant
    return None


def _of_kernel(kernel: Kernel, choice: TunedChoice) -> Variant | None:
    """A choice's variant; None where its constants are not the kernel's any more."""
    if kernel.unstable is not None:
        return None
    on_axes = (choice.constants.get(axis) in values for axis, values in kernel.tune.items())
    is_whole = set(choice.constants) == set(kernel.tune) and all(on_axes)
    return Variant(kernel, choice.constants) if is_whole else None
