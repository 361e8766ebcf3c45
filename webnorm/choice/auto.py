"""What `kernel="auto"` stands for: a recorded choice that fits, else what the rules choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from webnorm.choice.defaults import best_variant
from webnorm.choice.tuning import Choice, Tuning
from webnorm.errors import WebnormError
from webnorm.kernels.kernel import Kernel
from webnorm.kernels.traits import Traits
from webnorm.kernels.variants import RETIRED, Variant
from webnorm.norms.ops import Task


@dataclass(frozen=True)
class Chosen:
    """A variant that can run the problem, and whether a tuning or the rules named it."""

    variant: Variant
    source: Literal["tuning", "rules"]


def choose(kernels: Sequence[Kernel], task: Task, traits: Traits, tuning: Tuning | None = None) -> Chosen:
    """The variant for a task on such an adapter; a tuning that has one is followed.

    A recorded choice is passed over where its kernel or its constants are gone or cannot run the problem.
    Raises WebnormError where no kernel can.
    """
    op, problem = task.op, task.problem
    ladder = [kernel for kernel in kernels if kernel.op == op]
    for choice in tuning.matching(task) if tuning else ():
        variant = _recorded(ladder, choice)
        if variant is not None and variant.refusal(problem, traits) is None:
            return Chosen(variant, "tuning")
    found, refusal = best_variant(ladder, problem, traits)
    if found is None:
        raise WebnormError(f"no kernel of {op.name} can run {problem} on this adapter: {refusal}")
    return Chosen(found, "rules")


def _recorded(ladder: Sequence[Kernel], choice: Choice) -> Variant | None:
    for kernel in ladder:
        if kernel.name == choice.kernel and kernel.unstable is None:
            # Of a kernel that rounds the mean, as naive does now, a recorded second word is gone.
            retired = RETIRED if kernel.accuracy.rounded_mean == 0 else {}
            constants = {
                axis: value
                for axis, value in choice.constants.items()
                if axis in kernel.tune or retired.get(axis) != value
            }
            on_axes = (constants.get(axis) in values for axis, values in kernel.tune.items())
            if set(constants) == set(kernel.tune) and all(on_axes):
                return Variant(kernel, constants)
    return None
