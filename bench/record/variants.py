"""Webnorm's side of a record: the choice of `auto`, and the variants that are timed with it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from webnorm.choice.defaults import ChosenVariant, best_variant, choose, default_variant
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.op.op import Task
from webnorm.op.registry import as_copy_problem

# Axes that auto sets from the adapter's features.
_FIXED = ("subgroups",)


@dataclass(frozen=True)
class TunedVariants:
    """The fastest variants that tuning found for a task, and how many it tried."""

    variants: tuple[Variant, ...]
    tried: int


@dataclass(frozen=True)
class OwnVariants:
    """Webnorm's choice for a task, and the timed variants, with the default copy first."""

    auto: ChosenVariant
    variants: tuple[Variant, ...]

    @property
    def whole(self) -> tuple[int, int]:
        """The indices of the copy and of webnorm's choice, which are checked on all rows."""
        return 0, self.variants.index(self.auto.variant)


@cache
def all_kernels() -> tuple[Kernel, ...]:
    """Return webnorm's kernels, which are read once."""
    return tuple(discover())


def neighbours(variant: Variant, task: Task, traits: Traits) -> list[Variant]:
    """Return the variant and its nearest runnable neighbours on both sides of each axis."""
    problem = as_copy_problem(task.problem) if variant.kernel.op.is_copy else task.problem
    found = [variant]
    for axis, values in variant.kernel.tune.items():
        if axis in _FIXED:
            continue
        own = variant.constants[axis]
        below = sorted((value for value in values if value < own), reverse=True)
        above = sorted(value for value in values if value > own)
        for side in (below, above):
            others = (Variant(variant.kernel, {**variant.constants, axis: value}) for value in side)
            fitting = (other for other in others if other.refusal(problem, traits) is None)
            found += itertools.islice(fitting, 1)
    return found


def own_variants(task: Task, traits: Traits, tuned: TunedVariants | None = None) -> OwnVariants:
    """Return the variants of a task.

    These are the copy with its neighbours, webnorm's choice with its neighbours or the tuned variants, and
    the second choice of kernel. Raises WebnormError if no kernel can run the problem.
    """
    kernels = all_kernels()
    ladder = [kernel for kernel in kernels if kernel.op is task.op]
    auto = choose(ladder, task, traits)
    second, _ = best_variant([one for one in ladder if one is not auto.variant.kernel], task.problem, traits)
    (copy,) = (kernel for kernel in kernels if kernel.op.is_copy)
    copies = neighbours(default_variant(copy, as_copy_problem(task.problem), traits), task, traits)
    near = neighbours(auto.variant, task, traits)
    compared = near if tuned is None else [auto.variant, *tuned.variants]
    return OwnVariants(auto, without_duplicates((*copies, *compared, *([second] if second else []))))


def without_duplicates(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the variants without duplicates."""
    return tuple({str(one): one for one in variants}.values())
