"""Requests to the lab, built from names, and the parts of a request that were checked.

The command and the Python functions share this module.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from webnorm.errors import WebnormError, nearest, shown
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
from webnorm.op.model_cases import model_cases
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.op.selection import ALL, dtypes_named, is_pattern, ops_named, select_names

# Random seeds are short enough to type.
_SEEDS = 10**6
# The default of a size if only the other one is given.
_OTHER_SIZE = (1024,)
# The number of parts that a message lists.
_MOST_LISTED = 3


def seed_or_random(seed: int | None) -> int:
    """Return the seed, or a random one: a kernel that is right for one seed may be wrong for others."""
    return secrets.randbelow(_SEEDS) if seed is None else seed


def kernel_names(given: Sequence[str] | None) -> list[str] | None:
    """Split lists of kernel names; paths stay whole. Return None for no names."""
    if not given:
        return None
    # A path can contain a comma.
    return [part for text in given for part in ([text] if is_wgsl(text) else text.split(","))]


def requested_kernels(
    names: Sequence[str] | None, ops: Sequence[str], roots: Sequence[Path]
) -> tuple[list[Kernel], list[Kernel], list[UnreadableKernel]]:
    """Return the requested kernels, the copy kernels, and the unreadable kernels among both."""
    found, broken = survey(roots)
    chosen, failed = select_each(found, broken, names, ops)
    return (
        [kernel for kernel in chosen if not kernel.op.is_copy],
        [kernel for kernel in found if kernel.op.is_copy],
        failed,
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The workload of a benchmark: ops x types x shapes, a preset, or a model's norms.

    The constructor finds mistakes.

    Default shapes depend on the adapter. Without types the default one is used, or a preset's own. `options`
    have the form of Options.changed. `quick` selects a few tasks of a preset or a model.
    """

    op: str | Sequence[str] | None = None
    dtype: str | Sequence[str] | None = None
    sizes: Mapping[str, Sequence[int] | None] = field(default_factory=dict)
    preset: str | None = None
    model: Sequence[Task] | None = None
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
        if self.preset is None and self.model is None:
            return ops_named(self.op)
        return tuple(dict.fromkeys(task.op.name for task in self.tasks(None)))

    def tasks(self, traits: Traits | None) -> tuple[Task, ...]:
        """Return the tasks for an adapter with these traits."""
        software = traits is not None and traits.software
        if self.model is not None:
            return presets.model_tasks(self.model, software, self.quick, self.seed)
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
        """Raise WebnormError for a size that no op has."""
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
    """Return a request with the kernels to time and the stopping rule, but without tasks.

    `chosen` and `every` are those fields of BenchRequest.
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
    """Return a request with the kernels to check; `with_cases` adds cases, types and options."""
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
    """Return the request with cases and storage types.

    The cases are selected by names or patterns such as "cols-*", all without a selection, or the user's own
    array (see user_array_case). Raises WebnormError for an unknown case, and if nothing is left to check.
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
        raise WebnormError(
            "nothing to check: the selected ops have no case with these options; change --option or --op"
        )
    return found


def with_model(request: CheckRequest, tasks: Sequence[Task], seed: int) -> CheckRequest:
    """Return the request with the cases of a model's norms."""
    dtypes = dict.fromkeys(task.problem.dtype for task in tasks)
    return replace(request, cases=model_cases(tasks, seed), dtypes=tuple(dtypes))


def _refuse_cases(asked: str | Sequence[str], corpus: Sequence[Case], request: CheckRequest) -> None:
    """Raise WebnormError if all cases of a request belong to other ops."""
    ops = [op.name for op in request.ops]
    if not {*cases_of(corpus, ops)} & {*request.cases}:
        names = asked if isinstance(asked, str) else ",".join(asked)
        raise WebnormError(
            f"no case of {', '.join(ops)} matches {shown(names)}; {_similar(asked, corpus, ops)}"
            "`webnorm check --cases` with the same --op lists them"
        )


def _similar(asked: str | Sequence[str], corpus: Sequence[Case], ops: Sequence[str]) -> str:
    """Return a question about the case whose name is like a single one, or nothing."""
    (name, *others) = asked.split(",") if isinstance(asked, str) else asked
    found = None if others else nearest(name, [case.name for case in cases_of(corpus, ops)])
    return "" if found is None else f"did you mean {shown(found)}? "


def _case_names(asked: str | Sequence[str], corpus: Sequence[Case], request: CheckRequest) -> tuple[str, ...]:
    """Return the selected case names; the error for an unknown one lists the cases of the request's ops."""
    try:
        return select_names(asked, [case.name for case in corpus], "case")
    except WebnormError:
        own = [case.name for case in cases_of(corpus, {kernel.op.name for kernel in request.kernels})]
        if not own:
            raise
        return select_names(asked, own, "case")


@dataclass(frozen=True)
class Coverage:
    """The names in a request that need a checked result.

    Every op and storage type in the results needs one too. Patterns, "all" and defaults add no names, since
    they select what runs on this machine. With `timed` only results with a time count, and every problem
    needs one.
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
        """Return the coverage that the arguments of `check` or `bench` request."""
        return cls(_names(op), _names(dtype), _names(kernels), _names(cases), timed)

    def unchecked(self, results: Sequence[Result]) -> list[str]:
        """Return the parts of the request without a checked result; "every kernel" if there is none."""
        own = [one for one in results if not one.roofline] or results
        parts: dict[str, bool] = {}
        kernels: dict[tuple[str, str], bool] = {}
        for one in own:
            part, checked = self._part(one), self._checked(one)
            parts[part] = parts.get(part, False) or checked
            if any(_is_of(name, one) for name in self.kernels):
                # An unstable kernel may have to fail, and then has no time.
                failed = one.status == "fail" and bool(one.expected)
                kernels[one.kernel, part] = kernels.get((one.kernel, part), False) or checked or failed
        if not any(self._checked(one) for one in own):
            return ["every kernel"]
        given = {
            *(one.op for one in results),
            *(one.problem.dtype for one in own),
            *(one.case for one in own),
        }
        absent = (name for name in (*self.ops, *self.dtypes, *self.cases) if name not in given)
        return [
            *(part for part, checked in parts.items() if not checked),
            # Kernels of an unchecked part are not listed again.
            *(f"{name} ({part})" for (name, part), checked in kernels.items() if parts[part] and not checked),
            *absent,
        ]

    def _part(self, one: Result) -> str:
        """Return the part of the request that a result belongs to."""
        what = f"{one.op}, {one.problem if self.timed else one.problem.dtype}"
        return f"{what}, case {one.case}" if one.case in self.cases else what

    def _checked(self, one: Result) -> bool:
        return one.timed if self.timed else one.status != "skip"


def first_names(parts: Sequence[str]) -> str:
    """Return the first parts and the number of further ones."""
    more = len(parts) - _MOST_LISTED
    return "; ".join(parts[:_MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in a list, without patterns."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(part for part in map(str.strip, parts) if part != ALL and not is_pattern(part))


def _is_of(name: str, one: Result) -> bool:
    """Return true if a kernel's name, label or path means a result's kernel."""
    stem = Path(name).stem if is_wgsl(name) else name
    return one.kernel == stem or f"{one.op}/{one.kernel}" == name
