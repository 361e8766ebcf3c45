"""What is asked of the lab, from names to requests, and which parts of that were checked: the same for the
command and for calls from Python.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from webnorm.errors import WebnormError, shown
from webnorm.gpu import timing
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import (
    AUTO,
    UnreadableKernel,
    check_axes,
    select_each,
    survey,
    without_auto,
)
from webnorm.kernels.headers.sources import is_wgsl
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.results.result import Result
from webnorm.lab.run.bench import BenchRequest
from webnorm.lab.run.check import CheckRequest, user_array_case
from webnorm.op import presets
from webnorm.op.corpus import Case, Overrides, cases_of
from webnorm.op.dtypes import Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.op.selection import ALL, dtypes_named, is_pattern, ops_named, select_names

# Seeds that nobody gave: short enough to be typed.
_SEEDS = 10**6
# What one size stands for where only the other is given.
_OTHER_SIZE = (1024,)
# Parts that are listed in a message.
_MOST_LISTED = 3


def seed_or_random(seed: int | None) -> int:
    """The seed, or any where none was given: what a kernel knows of one says little of others."""
    return secrets.randbelow(_SEEDS) if seed is None else seed


def kernel_names(given: Sequence[str] | None) -> list[str] | None:
    """Names and paths of kernels, of which each text may be a list; None where nothing was given."""
    if not given:
        return None
    # A path may have a comma of its own.
    return [part for text in given for part in ([text] if is_wgsl(text) else text.split(","))]


def requested_kernels(
    names: Sequence[str] | None, ops: Sequence[str], roots: Sequence[Path]
) -> tuple[list[Kernel], list[Kernel], list[UnreadableKernel]]:
    """The kernels asked for, those of the copy that they are measured against, and what of both is broken."""
    found, broken = survey(roots)
    chosen, failed = select_each(found, broken, names, ops)
    return (
        [kernel for kernel in chosen if not kernel.op.is_copy],
        [kernel for kernel in found if kernel.op.is_copy],
        failed,
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is to be timed: ops by types by shapes, or a preset. Mistakes in it are found at once.

    Shapes that nobody named depend on the adapter; no types are the default one, or a preset's own. `options`
    are as Options.changed takes them, of a preset's `quick` a few tasks are taken.
    """

    op: str | Sequence[str] | None = None
    dtype: str | Sequence[str] | None = None
    sizes: Mapping[str, Sequence[int] | None] = field(default_factory=dict)
    preset: str | None = None
    options: Sequence[str] = ()
    quick: bool = False
    distribution: str = "normal"
    scalars: presets.Scalars = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.tasks(None)

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the ops."""
        if self.preset is None:
            return ops_named(self.op)
        return tuple(dict.fromkeys(task.op.name for task in self.tasks(None)))

    def tasks(self, traits: Traits | None) -> tuple[Task, ...]:
        """One after another, for an adapter of these traits."""
        software = traits is not None and traits.software
        dtypes = dtypes_named(self.dtype)
        if self.preset is not None:
            return presets.preset_tasks(
                self.preset, dtypes, self.options, software, self.quick, self.scalars, self.seed
            )
        found: list[Task] = []
        self._check_sizes()
        for name in presets.ops_with_options(self.ops, self.options):
            kind = OPS[name].problem_type
            presets.check_batch(kind.BATCH, self.sizes.get(kind.BATCH))
            given = [self.sizes.get(size) for size in kind.SIZES]
            if OPS[name].source is not None:
                shapes = presets.usual_shapes(OPS[name], self.sizes, software, self.quick)
            elif any(given) or traits is None:
                shapes = [*itertools.product(*(sizes or _OTHER_SIZE for sizes in given))]
            else:
                shapes = [*kind.default_sizes(software, self.quick)]
            common = {"distribution": self.distribution, "seed": self.seed, **self.scalars}
            found += presets.tasks_of_each([name], dtypes, shapes, self.options, **common)
        return tuple(found)

    def _check_sizes(self) -> None:
        """Raise WebnormError for a size that none of the ops has."""
        given = [size for size, values in self.sizes.items() if values is not None]
        known = {size for name in self.ops for size in OPS[name].problem_type.SIZES}
        if any(size not in known for size in given):
            OPS[self.ops[0]].check_sizes(given)


def bench_request(
    names: Sequence[str] | None,
    ops: Sequence[str],
    *,
    roots: Sequence[Path] = (),
    chosen: Mapping[str, Sequence[int]] | None = None,
    every: bool = False,
    rule: timing.StoppingRule,
    budget_s: float | None = None,
) -> BenchRequest:
    """The kernels to time, and how long; on which tasks, once and one by one or not, others say.

    `chosen` picks values of tune axes and `every` takes all constants, as BenchRequest has it.
    """
    kernels, copies, broken = requested_kernels(without_auto(names), ops, roots)
    check_axes(chosen or {}, [*kernels, *copies])
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
    others = without_auto(names)
    kernels, copies, broken = requested_kernels(others, ops, roots)
    if not kernels and (others or all(OPS[op].is_copy for op in ops)):
        kernels = copies
    check_axes(chosen or {}, kernels)
    return CheckRequest(
        tuple(kernels),
        roots=tuple(roots),
        chosen=chosen or {},
        every=every,
        ladder=tuple(requested_kernels(None, ops, roots)[0] if names and AUTO in names else ()),
        broken=tuple(broken),
    )


def with_cases(
    request: CheckRequest,
    corpus: Sequence[Case],
    cases: str | Sequence[str] | None,
    input: Path | Array | None,
    dtype: str | Sequence[str] | None,
    changes: Overrides,
) -> CheckRequest:
    """The request with the cases of these names, or that patterns like "cols-*" fit, all where none is given,
    or a user's own array (see user_array_case) in place of them, and storage types.

    Raises WebnormError for a case that there is not, and where nothing is left to check.
    """
    by_name = {one.name: one for one in corpus}
    names = _case_names(cases, corpus, request) if cases else by_name
    chosen = tuple(by_name[name] for name in names)
    dtypes = dtypes_named(dtype)
    if input is not None:
        own = user_array_case(input, dtypes)
        chosen, dtypes = (own,), (own.dtype,)
    whole = not cases and input is None and changes.options is None
    found = replace(request, cases=chosen, dtypes=dtypes or ("float32",), changes=changes, whole=whole)
    if not found.count():
        found.refuse_options()
        if cases and input is None:
            _refuse_cases(cases, corpus, found)
        raise WebnormError("nothing to check: no case has these options, or they are of other ops")
    return found


def _refuse_cases(asked: str | Sequence[str], corpus: Sequence[Case], request: CheckRequest) -> None:
    """Raise WebnormError where all cases of a request are of other ops, whatever the options."""
    ops = [op.name for op in request.ops]
    if not {*cases_of(corpus, ops)} & {*request.cases}:
        names = asked if isinstance(asked, str) else ",".join(asked)
        raise WebnormError(
            f"no case of {', '.join(ops)} matches {shown(names)}; "
            "`webnorm check --cases`, with the same --op, lists them"
        )


def _case_names(asked: str | Sequence[str], corpus: Sequence[Case], request: CheckRequest) -> tuple[str, ...]:
    """The names of the cases asked for; the error for an unknown one lists those of the request's ops."""
    try:
        return select_names(asked, [case.name for case in corpus], "case")
    except WebnormError:
        own = [case.name for case in cases_of(corpus, {kernel.op.name for kernel in request.kernels})]
        if not own:
            raise
        return select_names(asked, own, "case")


@dataclass(frozen=True)
class Coverage:
    """What a request names. Every op and storage type needs a result that was checked; so does each name of
    an op, a storage type, a kernel or a case. A pattern, "all" and a default ask for what runs here.

    With `timed` a result counts when it has a time, and every problem needs one.
    """

    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    timed: bool = False

    @classmethod
    def of(
        cls,
        op: str | Sequence[str] | None = None,
        dtype: str | Sequence[str] | None = None,
        kernels: Sequence[str] | None = None,
        cases: str | Sequence[str] | None = None,
        *,
        timed: bool = False,
    ) -> Coverage:
        """The coverage that the arguments of `check` or `bench` ask for."""
        return cls(_names(op), _names(dtype), _names(kernels), _names(cases), timed)

    def unchecked(self, results: Sequence[Result]) -> list[str]:
        """The parts of the request without a checked result, in words; "everything" where none has one."""
        own = [one for one in results if not one.roofline] or results
        parts: dict[str, bool] = {}
        kernels: dict[tuple[str, str], bool] = {}
        for one in own:
            part, checked = self._part(one), self._checked(one)
            parts[part] = parts.get(part, False) or checked
            if any(_is_of(name, one) for name in self.kernels):
                # A kernel that is declared unstable may have to fail, and then has no time.
                failed = one.status == "fail" and bool(one.expected)
                kernels[one.kernel, part] = kernels.get((one.kernel, part), False) or checked or failed
        if not any(self._checked(one) for one in own):
            return ["everything"]
        given = {
            *(one.op for one in results),
            *(one.problem.dtype for one in own),
            *(one.case for one in own),
        }
        absent = (name for name in (*self.ops, *self.dtypes, *self.cases) if name not in given)
        return [
            *(part for part, checked in parts.items() if not checked),
            # Where nothing of a part was checked, no kernel was.
            *(f"{name} ({part})" for (name, part), checked in kernels.items() if parts[part] and not checked),
            *absent,
        ]

    def _part(self, one: Result) -> str:
        """The part of the request that a result belongs to."""
        what = f"{one.op}, {one.problem if self.timed else one.problem.dtype}"
        return f"{what}, case {one.case}" if one.case in self.cases else what

    def _checked(self, one: Result) -> bool:
        return one.timed if self.timed else one.status != "skip"


def first_names(parts: Sequence[str]) -> str:
    """The first parts, and how many more there are."""
    more = len(parts) - _MOST_LISTED
    return "; ".join(parts[:_MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of a list, without patterns."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(part for part in map(str.strip, parts) if part != ALL and not is_pattern(part))


def _is_of(name: str, one: Result) -> bool:
    """Whether a name of a kernel, a label or a path means a result's kernel."""
    stem = Path(name).stem if is_wgsl(name) else name
    return one.kernel == stem or f"{one.op}/{one.kernel}" == name
