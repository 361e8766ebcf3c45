"""What is asked of the lab, from names to requests: the same for the command and for calls from Python."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from webnorm.gpu import timing
from webnorm.kernels.kernel import Kernel
from webnorm.kernels.library import AUTO, Broken, but_auto, check_axes, select_each, survey
from webnorm.kernels.traits import Traits
from webnorm.lab.bench import BenchRequest
from webnorm.lab.check import CheckRequest
from webnorm.norms import presets
from webnorm.norms.case import Case
from webnorm.norms.ops import OPS, Task
from webnorm.norms.selection import named

# Seeds that nobody gave: short enough to be typed.
_SEEDS = 10**6
# What one size stands for where only the other is given.
_OTHER_SIZE = (1024,)


def seed_or_any(seed: int | None) -> int:
    """The seed, or any where none was given: what a kernel knows of one says little of others."""
    return secrets.randbelow(_SEEDS) if seed is None else seed


def kernels_asked(
    names: Sequence[str] | None, ops: Sequence[str], roots: Sequence[Path]
) -> tuple[list[Kernel], list[Kernel], list[Broken]]:
    """The kernels asked for, those of the copy that they are measured against, and what of both is broken."""
    found, broken = survey(roots)
    chosen, failed = select_each(found, broken, names, ops)
    return (
        [kernel for kernel in chosen if not kernel.op.exact],
        [kernel for kernel in found if kernel.op.exact],
        failed,
    )


def bench_tasks(
    ops: Sequence[str],
    dtypes: Sequence[str],
    shapes: tuple[Sequence[int] | None, Sequence[int] | None],
    options: Sequence[str],
    quick: bool,
    **common: Any,
) -> Callable[[Traits | None], tuple[Task, ...]]:
    """The tasks asked for, given an adapter's traits: shapes that nobody named depend on them.

    `common` has Problem's distribution, eps, scale and seed. Mistakes are found at once.
    """
    rows, cols = shapes
    presets.check_rows(rows)

    def tasks(traits: Traits | None) -> tuple[Task, ...]:
        if rows or cols or traits is None:
            pairs = tuple((m, n) for m in rows or _OTHER_SIZE for n in cols or _OTHER_SIZE)
        else:
            pairs = presets.default_shapes(traits.software, quick)
        return presets.tasks_of_each(ops, dtypes, pairs, options, **common)

    tasks(None)
    return tasks


def preset_tasks(
    name: str, dtypes: Sequence[str], options: Sequence[str], quick: bool, eps: float | None, seed: int
) -> Callable[[Traits | None], tuple[Task, ...]]:
    """The tasks of a preset, given an adapter's traits: see presets.of_preset. Mistakes are found at once."""

    def tasks(traits: Traits | None) -> tuple[Task, ...]:
        software = traits is not None and traits.software
        return presets.of_preset(name, dtypes, options, software, quick, eps, seed)

    tasks(None)
    return tasks


def bench_request(
    names: Sequence[str] | None,
    ops: Sequence[str],
    *,
    roots: Sequence[Path] = (),
    chosen: Mapping[str, Sequence[int]] | None = None,
    every: bool = False,
    rule: timing.Rule | None = None,
    budget_s: float | None = None,
) -> BenchRequest:
    """The kernels to time, and how long; on which tasks, once and one by one or not, others say.

    `chosen` picks values of tune axes and `every` takes all constants, as BenchRequest has it.
    """
    kernels, copies, broken = kernels_asked(but_auto(names), ops, roots)
    check_axes(chosen or {}, [*kernels, *copies])
    rule = rule or timing.Rule()
    return BenchRequest(
        (),
        tuple(kernels),
        tuple(copies),
        rule if budget_s is None else replace(rule, budget_s=budget_s),
        tuple(roots),
        chosen or {},
        every,
        ladder=tuple(survey(roots)[0]),
        with_auto=not names or AUTO in names,
        broken=tuple(broken),
    )


def check_request(
    names: Sequence[str] | None,
    ops: Sequence[str],
    *,
    roots: Sequence[Path] = (),
    chosen: Mapping[str, Sequence[int]] | None = None,
    every: bool = False,
) -> CheckRequest:
    """The kernels to check; with which cases, types and options others say."""
    others = but_auto(names)
    kernels, copies, broken = kernels_asked(others, ops, roots)
    if not kernels and (others or all(OPS[op].exact for op in ops)):
        kernels = copies
    check_axes(chosen or {}, kernels)
    return CheckRequest(
        tuple(kernels),
        roots=tuple(roots),
        chosen=chosen or {},
        every=every,
        ladder=tuple(kernels_asked(None, ops, roots)[0] if names and AUTO in names else ()),
        broken=tuple(broken),
    )


def cases_asked(names: Sequence[str] | None, corpus: Sequence[Case]) -> tuple[Case, ...]:
    """The cases of these names, or that patterns like "cols-*" fit; all where there are none."""
    by_name = {one.name: one for one in corpus}
    return tuple(by_name[name] for name in named(names, by_name, "case")) if names else tuple(corpus)
