"""Variants: points of a kernel's tune axes that an adapter can run, and the names for header expressions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from webnorm.errors import WebnormError, check_kind, one_line
from webnorm.kernels.headers.kernel import Kernel, KernelPass
from webnorm.kernels.headers.parameters import MOST_IMMEDIATES, word_count
from webnorm.kernels.headers.traits import (
    BROWSER,
    DEVICE_FEATURES,
    IMMEDIATES,
    KNOWN_FEATURES,
    Traits,
    name_in_expressions,
)
from webnorm.op import expression
from webnorm.op.expression import Tree
from webnorm.op.op import Op
from webnorm.op.problem import Problem
from webnorm.op.registry import flag_names

# The derived constant with the bytes of workgroup memory that a variant needs, known before rendering.
WORKGROUP_BYTES = "workgroup_bytes"
# Header names that the snippets use as counts.
COUNTS = ("steps", "threads_per_row", "rows_per_workgroup", "vector_width", "workgroup_size")
# Mesa 22.3's llvmpipe ends an invocation after this many iterations of all its loops.
SOFTWARE_ITERATIONS = 65535
# The most points of a kernel's axes. webnorm's gradients have two hundred thousand, and filtering them takes
# half a second.
MOST_POINTS = 1 << 20
# The names that `render` gives a template in addition to the header's and the op's.
_TEMPLATE_NAMES = (
    "tensors",
    "buffers",
    "params",
    "immediates",
    "float_words",
    "int_words",
    "sizes",
    "op",
    "dtype",
    "target",
    "features",
    "requires",
    "count_cost",
    "tracing",
    "trace",
)


@dataclass(frozen=True, repr=False)
class Variant:
    """A kernel with one value for each of its tune axes.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    constants : mapping of str to int
        The values of the tune axes.
    """

    kernel: Kernel
    constants: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.kernel.label}({format_constants(self.constants)})"

    def __repr__(self) -> str:
        return f"<Variant {one_line(str(self))}>"

    def names(self, problem: Problem, traits: Traits) -> dict[str, int]:
        """Return the values of all names that the header's expressions and the template can use."""
        values = {**header_names(self.kernel.op, problem, traits), **self.constants}
        for name, tree in self.kernel.derive.items():
            values[name] = self.kernel.value(f"derived {name}", tree, values)
        return values

    def features(self, problem: Problem, traits: Traits) -> frozenset[str]:
        """Return the WebGPU features and WGSL language features that this variant uses."""
        values = self.names(problem, traits)
        return frozenset(
            name
            for name, needed in self.kernel.features.items()
            if self.kernel.value(f"feature {name}", needed, values)
        )

    def refusal(self, problem: Problem, traits: Traits) -> str | None:
        """Return the reason why the variant cannot run the problem on such an adapter; None if it can."""
        self.kernel.op.check(problem)
        if self.kernel.plain is not None and (found := self.kernel.plain.objection(self.kernel.op, problem)):
            return found
        values = self.names(problem, traits)
        for rule, why, amount in _demands(self.kernel, problem, traits):
            if not self.kernel.value("a rule", rule, values):
                return why.replace("{}", str(self.kernel.value("a rule", amount, values)))
        return None


def _demands(kernel: Kernel, problem: Problem, traits: Traits) -> Iterator[tuple[Tree, str, Tree]]:
    """Yield the rules for a variant on an adapter, each with the reason to show and the value of its {}."""
    for require in kernel.require:
        yield require.rule, require.why, 0
    for feature in sorted(kernel.features.keys() - traits.features):
        needed = kernel.features[feature]
        yield ["if", needed, 0, 1], f"needs the feature {feature!r}, which {_lacking(feature)} lacks", 0
    if IMMEDIATES in kernel.features:
        count = word_count(kernel, problem)
        why = f"has {{}} words of parameters; immediates hold at most {MOST_IMMEDIATES}"
        yield ["if", kernel.features[IMMEDIATES], ["<=", count, MOST_IMMEDIATES], 1], why, count
    if WORKGROUP_BYTES in kernel.derive:
        why = f"needs {{}} bytes of workgroup memory; the limit is {traits.workgroup_storage}"
        yield ["<=", WORKGROUP_BYTES, traits.workgroup_storage], why, WORKGROUP_BYTES
    for each in kernel.passes:
        limit = traits.max_invocations
        why = f"needs {{}} invocations per workgroup; the limit is {limit}"
        yield ["<=", each.workgroup_size, limit], why, each.workgroup_size
        if each.subgroup_size != 0:
            yield from _subgroup_demands(each, traits)
        if traits.software:
            why = (
                "an invocation's loops take {} iterations; "
                f"Mesa's llvmpipe silently ends them after {SOFTWARE_ITERATIONS}"
            )
            yield ["<=", each.iterations, SOFTWARE_ITERATIONS], why, each.iterations


def _lacking(feature: str) -> str:
    """Return what lacks a feature: language features belong to the compiler."""
    return "the adapter" if feature in DEVICE_FEATURES else "the engine's WGSL"


def _subgroup_demands(each: KernelPass, traits: Traits) -> Iterator[tuple[Tree, str, Tree]]:
    """Yield the rules for the subgroup size of a pass, which is 0 if the driver chooses it."""
    size, least, most = each.subgroup_size, traits.subgroup_min_size, traits.subgroup_max_size
    sizes = f"of {least}" if least == most else f"of {least} to {most}"
    fits: Tree = ["and", ["<=", least, size], ["<=", size, most]]
    why = f"needs subgroups of {{}} invocations; the adapter has subgroups {sizes}"
    yield ["if", size, fits, 1], why, size
    whole: Tree = ["==", ["%", each.workgroup_size, ["max", size, 1]], 0]
    yield whole, "has subgroups of {} invocations; workgroup_size must be a multiple of that", size


def format_constants(constants: Mapping[str, int]) -> str:
    """Return the constants as `name=value, name=value`."""
    return ", ".join(f"{name}={value}" for name, value in constants.items())


def check_kinds(kernel: Kernel, problem: Problem, traits: Traits) -> None:
    """Raise WebnormError for arguments of other types."""
    check_kind("kernel", kernel, Kernel)
    check_kind("problem", problem, Problem)
    check_kind("traits", traits, Traits)


def all_variants(kernel: Kernel) -> Iterator[Variant]:
    """Iterate over every point of a kernel's tune axes, including those that cannot run.

    Parameters
    ----------
    kernel : Kernel
        The kernel.

    Yields
    ------
    Variant
        One variant per point; the last axis changes fastest.

    Raises
    ------
    WebnormError
        The axes have more than 1048576 points.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> str(next(webnorm.all_variants(kernel)))
    'layer_norm/naive(workgroup_size=32)'
    """
    check_kind("kernel", kernel, Kernel)
    _require_walkable(kernel, kernel.tune)
    for point in itertools.product(*kernel.tune.values()):
        yield Variant(kernel, dict(zip(kernel.tune, point, strict=True)))


def runnable_variants(
    kernel: Kernel, problem: Problem, traits: Traits, tune: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Variant]:
    """Iterate over the variants that can run a problem on an adapter, in the order of `all_variants`.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    problem : Problem
        A problem of the kernel's op.
    traits : Traits
        The limits and features of the adapter: `Device.traits`.
    tune : mapping of str to sequence of int, optional
        Values of the tune axes. Default: all values of the kernel's axes.

    Yields
    ------
    Variant
        A variant that can run.

    Raises
    ------
    WebnormError
        The op does not have the problem, or the axes have more than 1048576 points.

    Notes
    -----
    A rule is evaluated as soon as its axes have values, and prunes all points below. A gradient has more than
    a hundred thousand points, and its rules reject nine in ten.

    Examples
    --------
    >>> import webnorm
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> traits = webnorm.find_adapter().traits
    >>> sizes = [variant.constants["workgroup_size"] for variant in
    ...          webnorm.runnable_variants(kernel, webnorm.Problem(rows=4, cols=8), traits)]
    >>> 64 in sizes
    True
    """
    check_kinds(kernel, problem, traits)
    kernel.op.check(problem)
    tune = kernel.tune if tune is None else tune
    _require_walkable(kernel, tune)

    def points(axes: Sequence[str], rules: _Rules) -> Iterator[dict[str, int]]:
        if rules.refuse:
            return
        if not axes:
            yield {}
            return
        axis, *others = axes
        for value in tune[axis]:
            for point in points(others, rules.narrowed({axis: value})):
                yield {axis: value, **point}

    try:
        rules = _Rules.of(kernel, problem, traits).narrowed(header_names(kernel.op, problem, traits))
        for point in points(list(tune), rules):
            yield Variant(kernel, point)
    except WebnormError as error:
        raise kernel.mistake("a rule", error) from error


def _require_walkable(kernel: Kernel, tune: Mapping[str, Sequence[int]]) -> None:
    count = math.prod(len(values) for values in tune.values())
    if count > MOST_POINTS:
        raise WebnormError(f"kernel {kernel.label}: its axes have {count} points; the limit is {MOST_POINTS}")


@dataclass(frozen=True)
class _Rules:
    """A kernel's rules, partially evaluated for known names, and the derived constants that they use."""

    derived: Sequence[tuple[str, Tree]]
    demands: Sequence[Tree]

    @classmethod
    def of(cls, kernel: Kernel, problem: Problem, traits: Traits) -> _Rules:
        demands = [rule for rule, _, _ in _demands(kernel, problem, traits)]
        wanted = {name for demand in demands for name in expression.names(demand)}
        derived: list[tuple[str, Tree]] = []
        for name, tree in reversed(list(kernel.derive.items())):
            if name in wanted:
                wanted |= expression.names(tree)
                derived.insert(0, (name, tree))
        return cls(derived, demands)

    @property
    def refuse(self) -> bool:
        return 0 in self.demands

    def narrowed(self, values: Mapping[str, int]) -> _Rules:
        """Return the rules partially evaluated for more names."""
        known = dict(values)
        derived = []
        for name, tree in self.derived:
            try:
                simple = expression.simplify(tree, known)
            except WebnormError as error:
                raise WebnormError(f"derived {name}: {error}") from error
            if isinstance(simple, int):
                known[name] = simple
            else:
                derived.append((name, simple))
        left = (expression.simplify(demand, known) for demand in self.demands)
        return _Rules(derived, [demand for demand in left if not isinstance(demand, int) or demand == 0])


def header_names(op: Op, problem: Problem, traits: Traits) -> dict[str, int]:
    """Return the names that header expressions may use in addition to axes and derived constants.

    They are the problem's sizes, the op's names and constants, its flags, and the adapter's traits.
    """
    flags = {name: int(getattr(problem.options, option)) for name, option in flag_names(op).items()}
    return {
        **problem.sizes,
        **op.header_names(problem),
        **flags,
        **op.constants,
        "max_invocations": traits.max_invocations,
        "workgroup_storage": traits.workgroup_storage,
        "software": int(traits.software),
        "subgroup_min_size": traits.subgroup_min_size,
        "subgroup_max_size": traits.subgroup_max_size,
        **{name_in_expressions(name): int(name in traits.features) for name in KNOWN_FEATURES},
    }


@cache
def names_of(op: Op) -> tuple[str, ...]:
    """Return the names that headers of an op may use; they are the same for all problems and adapters."""
    return tuple(header_names(op, _smallest(op), BROWSER))


@cache
def template_names_of(op: Op) -> tuple[str, ...]:
    """Return the names that templates of an op have in addition to the header names."""
    return (*_TEMPLATE_NAMES, *op.template_names(_smallest(op)))


def _smallest(op: Op) -> Problem:
    kind = op.problem_type
    return kind(options=op.defaults, **dict.fromkeys(kind.SIZES, 1))  # type: ignore[arg-type]
