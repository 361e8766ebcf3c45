"""Kernels: template files with a header that says what they are and which constants they admit."""

from __future__ import annotations

import itertools
import keyword
import math
import re
import reprlib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

from webnorm.choice import rules
from webnorm.errors import WebnormError, check_kind, shown, unknown
from webnorm.files import absolute, resolved
from webnorm.gpu.device import Traits
from webnorm.kernels import expression
from webnorm.kernels.expression import Tree
from webnorm.kernels.sources import FORBIDDEN, Unreadable, code_point, one_line, read, split_header
from webnorm.norms.ops import OPS, Op
from webnorm.norms.problem import DTYPES, Problem

# Names that a header's expressions may use beside its own axes and derived constants.
PROBLEM_NAMES = (
    "rows",
    "cols",
    "span",
    "itemsize",
    "out_itemsize",
    "weight_itemsize",
    "packed",
    "is_float16",
    "row_scaled",
    "has_weight",
    "has_bias",
    "zero_centered_weight",
    "has_residual",
    "has_residual_bias",
    "return_stats",
    "saved_stats",
    "has_dh",
    "capped",
    "max_workgroups",
)
ADAPTER_NAMES = ("max_invocations", "workgroup_storage", "software", "has_subgroups", "has_f16")
KNOWN_FEATURES = ("subgroups", "shader-f16")
# What `render` hands a template beside the header's names.
TEMPLATE_NAMES = (
    "tensors",
    "buffers",
    "params",
    "op",
    "has_mean",
    "dtype",
    "out_dtype",
    "target",
    "features",
    "count_cost",
)


Per = Literal["rows", "call"]
# What stands for no kernel but for the choice of one (webnorm/choice/auto.py).
AUTO = "auto"
# In all loops of an invocation together, seen with Mesa 22.3.
SOFTWARE_ITERATIONS = 65535
# The points of a kernel's axes that are walked over; webnorm's gradients have a hundred thousand.
MOST_POINTS = 1 << 19


@dataclass(frozen=True)
class Require:
    """A rule that a variant has to meet, and the reason a reader is told when it does not."""

    rule: Tree
    why: str


@dataclass(frozen=True)
class Pass:
    """One dispatch. With `per` "rows" it is repeated for each slice of the rows and `workgroup_count` counts
    workgroups for one slice; with "call" it runs once. `bindings` names the tensors and scratch buffers it
    uses, None all of them. A pass whose `when` is 0 is left out. `iterations` counts those of an invocation's
    loops, where they depend on the rows.
    """

    entry_point: str
    workgroup_size: Tree
    workgroup_count: Tree
    per: Per = "rows"
    bindings: tuple[str, ...] | None = None
    when: Tree = 1
    iterations: Tree = 0


@dataclass(frozen=True)
class Scratch:
    """A float32 buffer between passes: `records` of `words` floats, which every slice of the rows adds to.

    `per_row` tells a buffer whose records are the rows.
    """

    name: str
    per_row: bool
    records: Tree
    words: Tree


@dataclass(frozen=True)
class AccuracyRules:
    """What the tolerance depends on: float32 terms added one after another into one accumulator, of a row
    and of a column, and whether the mean is rounded to float32 before x - mean (no hi/lo mean).
    """

    serial_terms: Tree
    column_terms: Tree
    rounded_mean: Tree


@dataclass(frozen=True)
class Kernel:
    """One template file. `rung` orders the ladder: higher means later and usually faster.

    Of the kernels that can run a problem on an adapter, the one of the highest `preference` is chosen where
    nobody named one.
    """

    op: Op
    name: str
    path: Path
    summary: str
    differs: str
    rung: int
    preference: Tree
    unstable: str | None
    features: Mapping[str, Tree]
    tune: Mapping[str, tuple[int, ...]]
    default: Mapping[str, Tree]
    derive: Mapping[str, Tree]
    require: tuple[Require, ...]
    passes: tuple[Pass, ...]
    scratch: tuple[Scratch, ...]
    accuracy: AccuracyRules

    @property
    def label(self) -> str:
        """The kernel as a person names it: `op/kernel`, or just the op when both are the same."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"

    @property
    def compiles_rows_in(self) -> bool:
        """Whether anything but a count of workgroups or records depends on the rows."""
        trees = [
            *self.derive.values(),
            *self.features.values(),
            *(scratch.words for scratch in self.scratch),
        ]
        trees += [tree for step in self.passes for tree in (step.workgroup_size, step.when)]
        return any("rows" in expression.names(tree) for tree in trees)

    @property
    def takes_slices(self) -> bool:
        """Whether rows can be cut where they do not fit a binding: no pass of the whole call reads or writes
        rows.
        """
        rows = {tensor.name for tensor in self.op.tensors if tensor.per_row}
        whole = (step for step in self.passes if step.per == "call")
        return all(step.bindings is not None and rows.isdisjoint(step.bindings) for step in whole)

    def mistake(self, what: str, message: object) -> WebnormError:
        """The error for what a part of the header comes to."""
        return WebnormError(f"{self.path}: {what}: {message}")

    def value(
        self, what: str, tree: Tree, values: Mapping[str, int], least: int = -expression.LARGEST
    ) -> int:
        """What an expression of the header comes to; raises WebnormError that names the header and `what`,
        for less than `least` too.
        """
        try:
            value = expression.evaluate(tree, values)
        except WebnormError as error:
            raise self.mistake(what, error) from error
        if value < least:
            raise self.mistake(what, f"{expression.shown(tree)} is {value}; expected {least} or more")
        return value


@dataclass(frozen=True)
class Variant:
    """A kernel with one point of its tune axes."""

    kernel: Kernel
    constants: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.kernel.label}({format_constants(self.constants)})"

    def names(self, problem: Problem, traits: Traits) -> dict[str, int]:
        """Every name the header's expressions and the template can use, with its value."""
        values = {**problem_names(problem), **traits.names(), **self.constants}
        for name, tree in self.kernel.derive.items():
            values[name] = self.kernel.value(f"derived {name}", tree, values)
        return values

    def features(self, problem: Problem, traits: Traits) -> frozenset[str]:
        """The WebGPU features that this variant uses."""
        values = self.names(problem, traits)
        return frozenset(
            name
            for name, needed in self.kernel.features.items()
            if self.kernel.value(f"feature {name}", needed, values)
        )

    def refusal(self, problem: Problem, traits: Traits) -> str | None:
        """Why this variant cannot run the problem on such an adapter; None when it can."""
        self.kernel.op.check(problem)
        values = self.names(problem, traits)
        for rule, why, amount in _demands(self.kernel, traits):
            if not self.kernel.value("a rule", rule, values):
                return why.replace("{}", str(self.kernel.value("a rule", amount, values)))
        return None


def _demands(kernel: Kernel, traits: Traits) -> Iterator[tuple[Tree, str, Tree]]:
    """The rules that a variant has to meet on such an adapter. With each the reason that a reader is told
    when it does not, and what its {} stands for.
    """
    for require in kernel.require:
        yield require.rule, require.why, 0
    for feature in sorted(kernel.features.keys() - traits.features):
        needed = kernel.features[feature]
        yield ["if", needed, 0, 1], f"needs the feature {feature!r}, which the adapter lacks", 0
    for step in kernel.passes:
        limit = traits.max_invocations
        why = f"needs {{}} invocations per workgroup; the limit is {limit}"
        yield ["<=", step.workgroup_size, limit], why, step.workgroup_size
        if traits.software:
            why = (
                "an invocation's loops take {} iterations; "
                f"Mesa's llvmpipe ends them after {SOFTWARE_ITERATIONS} without a word"
            )
            yield ["<=", step.iterations, SOFTWARE_ITERATIONS], why, step.iterations


def format_constants(constants: Mapping[str, int]) -> str:
    """The constants as `name=value, name=value`."""
    return ", ".join(f"{name}={value}" for name, value in constants.items())


# Larger than any dispatch.
_NO_CAP = 2**32


def problem_names(problem: Problem) -> dict[str, int]:
    """The problem's part of the names.

    `span`: columns that the vec4 of a row take up, at most, with those of other rows in the first and the
    last, where rows do not start on multiples of four. `packed`: whether some array's elements are narrower
    than a 32-bit word.
    `max_workgroups` is larger than any dispatch where the problem has no cap.
    """
    options = problem.options
    used = {problem.dtype, problem.out_dtype, problem.weight_dtype}
    return {
        "rows": problem.rows,
        "cols": problem.cols,
        "span": problem.cols if problem.cols % 4 == 0 else problem.cols + 3,
        "itemsize": DTYPES[problem.dtype].itemsize,
        "out_itemsize": DTYPES[problem.out_dtype].itemsize,
        "weight_itemsize": DTYPES[problem.weight_dtype].itemsize,
        "packed": int(used != {"float32"}),
        "is_float16": int("float16" in used),
        "row_scaled": int(problem.out_dtype == "int8"),
        "has_weight": int(options.weight),
        "has_bias": int(options.bias),
        "zero_centered_weight": int(options.zero_centered_weight),
        "has_residual": int(options.residual),
        "has_residual_bias": int(options.residual_bias),
        "return_stats": int(options.return_stats),
        "saved_stats": int(options.saved_stats),
        "has_dh": int(options.dh),
        "capped": int(options.max_workgroups > 0),
        "max_workgroups": options.max_workgroups or _NO_CAP,
    }


def _check_kinds(kernel: Kernel, problem: Problem, traits: Traits) -> None:
    check_kind("kernel", kernel, Kernel)
    check_kind("problem", problem, Problem)
    check_kind("traits", traits, Traits)


def default_variant(kernel: Kernel, problem: Problem, traits: Traits) -> Variant:
    """The variant for a kernel that nobody gave constants: what the rules name first of what the adapter can
    run, with the header's `default` table for the rest.
    """
    _check_kinds(kernel, problem, traits)
    values = {**problem_names(problem), **traits.names()}
    for chosen in rules.constants(kernel.op.name, kernel.name, values):
        if all(value in kernel.tune.get(axis, ()) for axis, value in chosen.items()):
            variant = _with_defaults(kernel, problem, values, chosen)
            if variant.refusal(problem, traits) is None:
                return variant
    return _with_defaults(kernel, problem, values, {})


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


def fitting_variant(kernel: Kernel, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """The default variant if it can run the problem on such an adapter, else the reason why it cannot."""
    variant = default_variant(kernel, problem, traits)
    refusal = variant.refusal(problem, traits)
    return (variant, "") if refusal is None else (None, refusal)


def best_variant(kernels: Sequence[Kernel], problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """The default variant of the stable kernel that the rules, or else the headers, prefer of those that can
    run the problem.

    Without one, the reason why the least preferred cannot. A kernel whose header has no sense for the problem
    cannot.
    """
    refusal = "every kernel is unstable"
    names = {**problem_names(problem), **traits.names()}

    def place(kernel: Kernel) -> tuple[int, int]:
        order = rules.order(kernel.op.name, names)
        first = order.index(kernel.name) if kernel.name in order else len(order)
        try:
            return first, -kernel.value("preference", kernel.preference, names)
        except WebnormError:
            return len(order) + 1, 0

    for kernel in sorted(kernels, key=place):
        if kernel.unstable is None:
            kernel.op.check(problem)
            try:
                variant, refusal = fitting_variant(kernel, problem, traits)
            except WebnormError as error:
                variant, refusal = None, str(error)
            if variant is not None:
                return variant, ""
    return None, refusal


def all_variants(kernel: Kernel) -> Iterator[Variant]:
    """Every point of the tune axes, those that cannot run included."""
    check_kind("kernel", kernel, Kernel)
    _require_walkable(kernel, kernel.tune)
    for point in itertools.product(*kernel.tune.values()):
        yield Variant(kernel, dict(zip(kernel.tune, point, strict=True)))


def runnable_variants(
    kernel: Kernel, problem: Problem, traits: Traits, tune: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Variant]:
    """Those of all_variants that such an adapter can run the problem with, in the same order; `tune` takes
    the place of the kernel's axes. Raises WebnormError for a problem that the op does not have.

    A rule is worked out as far as the axes that already have a value go, and no further once it refuses: a
    gradient has a hundred thousand points, of which it refuses nine in ten.
    """
    _check_kinds(kernel, problem, traits)
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
        rules = _Rules.of(kernel, traits).narrowed({**problem_names(problem), **traits.names()})
        for point in points(list(tune), rules):
            yield Variant(kernel, point)
    except WebnormError as error:
        raise kernel.mistake("a rule", error) from error


def _require_walkable(kernel: Kernel, tune: Mapping[str, Sequence[int]]) -> None:
    count = math.prod(len(values) for values in tune.values())
    if count > MOST_POINTS:
        raise WebnormError(
            f"kernel {kernel.label}: its axes have {count} points; at most {MOST_POINTS} are walked over"
        )


@dataclass(frozen=True)
class _Rules:
    """What is left of a kernel's demands where some names have a value, with the derived constants that they
    look up.
    """

    derived: Sequence[tuple[str, Tree]]
    demands: Sequence[Tree]

    @classmethod
    def of(cls, kernel: Kernel, traits: Traits) -> _Rules:
        demands = [rule for rule, _, _ in _demands(kernel, traits)]
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
        """What is left when more names have a value."""
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


def each_chosen(
    kernels: Sequence[Kernel],
    op: Op,
    problem: Problem,
    traits: Traits,
    chosen: Mapping[str, Sequence[int]],
    every: bool = False,
) -> tuple[list[Variant], list[Broken]]:
    """`chosen_variants` of all kernels of an op, and those whose headers make no sense of the problem.

    Raises WebnormError where somebody chose values, which may be what is wrong.
    """
    found: list[Variant] = []
    broken: list[Broken] = []
    for kernel in kernels:
        if kernel.op is op:
            try:
                found += chosen_variants(kernel, problem, traits, chosen, every)
            except WebnormError as error:
                if chosen:
                    raise
                broken.append(Broken(op, kernel.name, kernel.path, str(error)))
    return found, broken


# --- reading files -------------------------------------------------------------------------------

# The keys that a [[scratch]] table has, and those that it may have.
_SCRATCH: tuple[set[str], set[str]] = ({"name", "words"}, {"records"})
_KEYS = {
    "summary",
    "differs",
    "rung",
    "preference",
    "unstable",
    "features",
    "tune",
    "default",
    "derive",
    "require",
    "pass",
    "scratch",
    "accuracy",
}
# Bounds of a header, several times what webnorm's own have: characters, values and tables, and how deep they
# are nested; characters of a name and of a sentence; entries of a table; values of an axis.
MOST_HEADER, MOST_VALUES, MOST_LEVELS = 1 << 15, 2000, 4
MOST_NAME, MOST_SENTENCE = 64, 2000
MOST_ENTRIES = {"tune": 24, "derive": 64, "require": 48, "pass": 16, "scratch": 12}
MOST_ON_AXIS, LARGEST_ON_AXIS = 128, 2**31
# Points of the axes times the parts of the rules that are worked out at each: eight times what it is with the
# gradients' registers, which take seconds.
MOST_WORK = 1 << 27
# What a template or an expression does not take for a name.
_RESERVED = {
    *keyword.kwlist,
    "true",
    "false",
    "none",
    "min",
    "max",
    "ceil_div",
    "params",
    "cost",
    "parameters",
}
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def _quoted(value: object) -> str:
    """A value of a header, in a few words."""
    return one_line(_REPR.repr(value), 120)


def home(path: Path) -> tuple[Path, str]:
    """The folder that a kernel's file and its snippets have to lie in, and the name of the file's folder.

    It is the folder above that of the op, as with --wgsl, or the file's own where that is no op.
    """
    # Not resolved: a link in the place of an op's folder may lead out, too.
    try:
        folder = absolute(path).parent
        if folder.name not in OPS:
            folder = resolved(folder)
    except OSError as error:
        raise _unreadable(path, error) from error
    return folder.parent if folder.name in OPS else folder, folder.name


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot read the kernel: {error.strerror or error}")


def load(path: Path, op_name: str | None = None) -> Kernel:
    """Read a kernel file. Its folder is the op, unless `op_name` says otherwise.

    Raises WebnormError that names the file and, where there is one, the line.
    """
    root, folder = home(path)
    found = re.search(rf"{FORBIDDEN.pattern}|[\t\n\r]", path.name)
    if found:
        raise WebnormError(f"{one_line(str(path))}: its name holds {code_point(found[0])}")
    try:
        source, _, _ = read(path, root)
    except Unreadable as error:
        place = str(path) if error.line is None else f"{path}:{error.line}"
        raise WebnormError(f"{place}: cannot read the kernel: {error.reason}") from error
    name = op_name or folder
    if name not in OPS:
        raise unknown(f"op (the folder of {path})", name, OPS)
    start, toml = split_header(source, path)
    return _Header(path, start, toml).kernel(OPS[name])


class _Header:
    """Checks one header table by table; every complaint carries file and line."""

    def __init__(self, path: Path, start: int, toml: str) -> None:
        self.path, self.start, self.lines = path, start, toml.splitlines()
        if len(toml) > MOST_HEADER:
            raise self.at(0, f"the header has {len(toml)} characters; expected at most {MOST_HEADER}")
        try:
            self.table = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"\(at line (\d+), column \d+\)", str(error))
            message = re.sub(r" \(at .*\)", "", str(error))
            raise self.at(
                int(match[1]) if match else len(self.lines), f"header is not TOML: {message}"
            ) from error
        except (ValueError, RecursionError) as error:
            # tomllib has no line for a number of thousands of digits and for brackets in brackets.
            longest = max(range(len(self.lines)), key=lambda at: len(self.lines[at]))
            what = "a value is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self.at(longest + 1, f"header is not TOML: {what}") from error
        self.measure()

    def at(self, line: int, message: str) -> WebnormError:
        """The error with a line of the header, from 1."""
        return WebnormError(f"{self.path}:{self.start + line}: {one_line(message)}")

    def measure(self) -> None:
        """Complain about what no header needs, before anything else looks at it."""
        waiting: list[tuple[str, Any, int]] = [("", self.table, 0)]
        for count in itertools.count():
            if not waiting:
                return
            if count > MOST_VALUES:
                raise self.at(0, f"the header has more than {MOST_VALUES} values")
            near, value, level = waiting.pop()
            if len(near) > MOST_NAME:
                raise self.complaint(near, f"{_quoted(near)} has more than {MOST_NAME} characters")
            if isinstance(value, dict | list):
                if level > MOST_LEVELS:
                    raise self.complaint(near, f"{_quoted(near)} is nested more than {MOST_LEVELS} deep")
                inside = value.items() if isinstance(value, dict) else ((near, part) for part in value)
                waiting += [(key, part, level + 1) for key, part in inside]
            elif isinstance(value, int) and abs(value) > expression.LARGEST:
                raise self.complaint(near, f"{near} is a number of {value.bit_length()} bits; expected fewer")
            elif isinstance(value, str) and len(value) > MOST_SENTENCE:
                raise self.complaint(
                    near, f"{near} has {len(value)} characters; expected at most {MOST_SENTENCE}"
                )

    def complaint(self, near: str, message: str, holding: str = "", index: int = 0) -> WebnormError:
        """The error with the line of the key or table `near`: the one that holds a text, or the index-th.

        A key deeper in a line (an inline table) is the second choice; the header's first line the last.
        """
        key = rf"{re.escape(near)}\b"
        stripped = [line.strip() for line in self.lines]
        for pattern in (re.compile(rf"\[*\s?[\"']?{key}"), re.compile(rf".*\b{key}")):
            found = [i for i, text in enumerate(stripped, 1) if pattern.match(text)]
            found = [i for i in found if holding in self.lines[i - 1]] or found
            if found:
                break
        return self.at(found[min(index, len(found) - 1)] if found else 0, message)

    def text(self, key: str) -> str:
        return self.sentence(key, self.table.get(key), f"header key {key!r}")

    def sentence(self, near: str, value: object, what: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.complaint(near, f"{what} is {_quoted(value)}; expected a sentence")
        return value

    def mapping(self, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self.complaint(key, f"header key {key!r} is {_quoted(value)}; expected a table")
        self.few(key, value)
        return value

    def few(self, key: str, entries: Collection[object]) -> None:
        most = MOST_ENTRIES.get(key, len(entries))
        if len(entries) > most:
            raise self.complaint(key, f"{key} has {len(entries)} entries; expected at most {most}")

    def tree(self, near: str, text: object, known: Sequence[str]) -> Tree:
        if not isinstance(text, str | int):
            raise self.complaint(near, f"{near} is {_quoted(text)}; expected an expression")
        try:
            tree = expression.parse(text)
            expression.check_names(tree, known, text)
        except WebnormError as error:
            raise self.complaint(near, str(error), str(text)) from error
        return tree

    def only(self, table: Mapping[str, Any], keys: set[str], where: str) -> None:
        for key in table:
            if key not in keys:
                raise self.complaint(key, str(unknown(f"{where} key", key, keys)))

    def free(self, name: object, known: Sequence[str], kind: str, holding: str = "") -> str:
        """A name that is not taken yet, by Jinja, the header or the problem."""
        if not isinstance(name, str):
            raise self.complaint("name", f"{kind} is {_quoted(name)}; expected a name")
        if not name.isidentifier() or name in known or name in TEMPLATE_NAMES or name in _RESERVED:
            raise self.complaint(name, f"{kind} {name!r} is no free identifier", holding)
        return name

    def axis(self, name: str, values: object) -> tuple[int, ...]:
        self.free(name, (*PROBLEM_NAMES, *ADAPTER_NAMES), "axis")
        if not isinstance(values, list) or not values or not all(isinstance(v, int) for v in values):
            raise self.complaint(
                name, f"axis {name} is {_quoted(values)}; expected a list of integers or booleans"
            )
        if len(values) > MOST_ON_AXIS:
            raise self.complaint(
                name, f"axis {name} has {len(values)} values; expected at most {MOST_ON_AXIS}"
            )
        numbers = tuple(int(value) for value in values)
        for number in numbers:
            if not 0 <= number <= LARGEST_ON_AXIS:
                raise self.complaint(name, f"axis {name} has {number}; expected 0 to {LARGEST_ON_AXIS}")
            if numbers.count(number) > 1:
                raise self.complaint(name, f"axis {name} has {number} twice")
        return numbers

    def kernel(self, op: Op) -> Kernel:
        self.only(self.table, _KEYS, "header")
        tune = {name: self.axis(name, values) for name, values in self.mapping(self.table, "tune").items()}
        known = [*PROBLEM_NAMES, *ADAPTER_NAMES]
        defaults = self.mapping(self.table, "default")
        self.only(defaults, set(tune), "default")
        default: dict[str, Tree] = {}
        for axis in tune:
            default[axis] = self.tree(axis, defaults.get(axis, tune[axis][0]), known)
            known.append(axis)
        derive: dict[str, Tree] = {}
        for name, text in self.mapping(self.table, "derive").items():
            self.free(name, known, "derived constant", str(text))
            derive[name] = self.tree(name, text, known)
            known.append(name)
        features = {}
        for name, text in self.mapping(self.table, "features").items():
            if name not in KNOWN_FEATURES:
                raise self.complaint(name, str(unknown("feature", name, KNOWN_FEATURES)))
            features[name] = self.tree(name, text, known)
        unstable = self.text("unstable") if "unstable" in self.table else None
        rung = self.table.get("rung", 0)
        if not isinstance(rung, int) or isinstance(rung, bool):
            raise self.complaint("rung", f"rung is {_quoted(rung)}; expected an integer")
        scratch = tuple(self.scratch(known, op))
        kernel = Kernel(
            op=op,
            name=self.path.stem,
            path=self.path,
            summary=self.text("summary"),
            differs=self.text("differs"),
            rung=rung,
            preference=self.tree(
                "preference", self.table.get("preference", rung), (*PROBLEM_NAMES, *ADAPTER_NAMES)
            ),
            unstable=unstable,
            features=features,
            tune=tune,
            default=default,
            derive=derive,
            require=tuple(self.requires(known)),
            passes=tuple(self.passes(known, op, [one.name for one in scratch])),
            scratch=scratch,
            accuracy=self.accuracy(known),
        )
        self.require_walkable(kernel)
        return kernel

    def require_walkable(self, kernel: Kernel) -> None:
        """Complain about axes that nobody can walk over."""
        points = math.prod(len(values) for values in kernel.tune.values())
        trees = [*kernel.derive.values(), *(require.rule for require in kernel.require)]
        trees += [tree for step in kernel.passes for tree in (step.workgroup_size, step.iterations)]
        parts = sum(expression.size(tree) for tree in trees)
        if points > MOST_POINTS or points * parts > MOST_WORK:
            raise self.complaint(
                "tune",
                f"the axes have {points} points, with rules of {parts} parts to be worked out at each; "
                f"expected at most {min(MOST_POINTS, MOST_WORK // max(parts, 1))} points",
            )

    def tables(
        self, key: str, keys: set[str], optional: Set[str] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        entries = self.table.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.complaint(key, f"{key} is {_quoted(entries)}; expected [[{key}]] tables")
        self.few(key, entries)
        for index, entry in enumerate(entries):
            self.only(entry, keys | optional, key)
            for name in sorted(keys - set(entry)):
                raise self.complaint(key, f"a [[{key}]] table lacks the key {name!r}", "[[", index)
            yield entry

    def requires(self, known: Sequence[str]) -> Iterator[Require]:
        for entry in self.tables("require", {"rule", "why"}):
            why = self.sentence("why", entry["why"], "why")
            yield Require(self.tree("rule", entry["rule"], known), why)

    def passes(self, known: Sequence[str], op: Op, scratch: Sequence[str]) -> Iterator[Pass]:
        keys, optional = (
            {"entry_point", "workgroup_size", "workgroup_count"},
            {"per", "bindings", "when", "iterations"},
        )
        entries = list(self.tables("pass", keys, optional))
        if not entries:
            raise self.complaint("summary", "a kernel has at least one [[pass]] table; this header has none")
        names = {*(tensor.name for tensor in op.tensors), *scratch}
        for entry in entries:
            per = entry.get("per", "rows")
            if not isinstance(per, str):
                raise self.complaint("per", f"per is {_quoted(per)}; expected {' or '.join(get_args(Per))}")
            if per not in get_args(Per):
                raise self.complaint("per", str(unknown("per", per, get_args(Per))), str(per))
            bound = entry.get("bindings")
            yield Pass(
                self.entry_point(entry["entry_point"]),
                self.tree("workgroup_size", entry["workgroup_size"], known),
                self.tree("workgroup_count", entry["workgroup_count"], known),
                cast(Per, per),
                None if bound is None else self.bindings(bound, names),
                self.tree("when", entry.get("when", 1), known),
                self.tree("iterations", entry.get("iterations", 0), known),
            )

    def entry_point(self, name: object) -> str:
        """The name of a function, as WGSL takes it."""
        if isinstance(name, str) and name.isidentifier() and name != "_" and not name.startswith("__"):
            return name
        raise self.complaint(
            "entry_point",
            f"entry_point is {_quoted(name)}; expected the name of a WGSL function",
            name if isinstance(name, str) else "",
        )

    def bindings(self, bound: object, names: Set[str]) -> tuple[str, ...]:
        if not isinstance(bound, list) or not all(isinstance(name, str) for name in bound):
            raise self.complaint(
                "bindings", f"bindings is {_quoted(bound)}; expected a list of tensors and scratch buffers"
            )
        for name in bound:
            if name not in names:
                raise self.complaint("bindings", str(unknown("binding", name, names)), name)
            if bound.count(name) > 1:
                raise self.complaint("bindings", f"bindings names {name!r} twice", name)
        return tuple(bound)

    def scratch(self, known: Sequence[str], op: Op) -> Iterator[Scratch]:
        taken = [*known, *(tensor.name for tensor in op.tensors)]
        for entry in self.tables("scratch", *_SCRATCH):
            name = self.free(entry["name"], taken, "scratch buffer", "name")
            taken.append(name)
            yield Scratch(
                name,
                "records" not in entry,
                self.tree("records", entry.get("records", "rows"), known),
                self.tree("words", entry["words"], known),
            )

    def accuracy(self, known: Sequence[str]) -> AccuracyRules:
        table = self.mapping(self.table, "accuracy")
        keys = {"serial_terms", "column_terms", "rounded_mean"}
        self.only(table, keys, "accuracy")
        trees = {key: self.tree(key, table.get(key, 0), known) for key in keys}
        return AccuracyRules(**trees)


# --- finding kernels -----------------------------------------------------------------------------


@cache
def wgsl_root() -> Path:
    """The folder of the kernels that come with webnorm: in the wheel, or beside the package."""
    packaged = Path(str(resources.files("webnorm"))) / "wgsl"
    return packaged if packaged.is_dir() else packaged.parents[1] / "wgsl"


@dataclass(frozen=True)
class Broken:
    """A file of the user's that is no kernel, and why: one line, with file and line where there is one."""

    op: Op
    name: str
    path: Path
    reason: str

    @property
    def label(self) -> str:
        """What the kernel would be called."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"


def survey(extra: Sequence[Path] = ()) -> tuple[list[Kernel], list[Broken]]:
    """Every kernel of webnorm and of the user's own folders (`DIR/<op>/<kernel>.wgsl`), by op and rung, and
    those of the user's that are broken.

    A user's kernel of the same op and name takes the place of webnorm's, and leaves it empty where it is
    broken. Raises WebnormError for a folder that is none, or holds no kernel.
    """
    check_kind("extra", extra, Sequence, "a sequence of folders")
    for one in extra:
        check_kind("one of extra", one, Path)
    found: dict[tuple[str, str], Kernel | Broken] = {}
    for root in (wgsl_root(), *extra):
        for path in _kernel_files(root):
            key = path.parent.name, path.stem
            found.pop(key, None)
            try:
                found[key] = load(path)
            except Exception as error:
                if root == wgsl_root():
                    raise
                found[key] = Broken(OPS[key[0]], one_line(path.stem), path, _reason(path, error))
    order = list(OPS)
    kernels = [one for one in found.values() if isinstance(one, Kernel)]
    kernels.sort(key=lambda kernel: (order.index(kernel.op.name), kernel.rung, kernel.name))
    return kernels, [one for one in found.values() if isinstance(one, Broken)]


def _kernel_files(root: Path) -> list[Path]:
    try:
        if not root.is_dir():
            raise WebnormError(f"{root}: expected a folder of kernels, <op>/<kernel>.wgsl")
        paths = [path for op in OPS for path in sorted((root / op).glob("*.wgsl"))]
    except (OSError, ValueError) as error:
        raise WebnormError(f"{root}: cannot read the folder of kernels: {error}") from error
    if not paths:
        raise WebnormError(
            f"{root}: holds no kernel; expected <op>/<kernel>.wgsl there, op one of {', '.join(OPS)}"
        )
    return paths


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, WebnormError):
        return str(error)
    return one_line(f"{path}: cannot read the kernel: {type(error).__name__} {error}")


def discover(extra: Sequence[Path] = ()) -> list[Kernel]:
    """Every kernel, as `survey` finds them; raises WebnormError for the first that is broken."""
    kernels, broken = survey(extra)
    for one in broken:
        raise WebnormError(one.reason)
    return kernels


def select_for(kernels: Sequence[Kernel], names: Sequence[str] | None, ops: Sequence[str]) -> list[Kernel]:
    """The kernels of some ops: all of them where names is None, else those called so in any of the ops."""
    if names is None:
        return [kernel for kernel in kernels if kernel.op.name in ops]
    found: dict[str, Kernel] = {}
    for name in names:
        own = [kernel for kernel in kernels if kernel.op.name in ops and kernel.name == name]
        for kernel in own or [select(kernels, name, ops[0], also=(AUTO, "copy"))]:
            found[str(kernel.path)] = kernel
    return list(found.values())


def select_each(
    kernels: Sequence[Kernel], broken: Sequence[Broken], names: Sequence[str] | None, ops: Sequence[str]
) -> tuple[list[Kernel], list[Broken]]:
    """`select_for`, and of the broken those that were asked for, by name or by path.

    Raises WebnormError for a name that nothing has, and for what is broken where nothing else is left.
    """
    own = [one for one in broken if one.op.name in ops]
    if names is None:
        return select_for(kernels, None, ops), own
    found: list[Kernel] = []
    failed = [one for one in own if one.name in names or one.label in names]
    known = {one.name for one in failed} | {one.label for one in failed}
    for name in names:
        if name in known:
            continue
        try:
            found += select_for(kernels, [name], ops)
        except WebnormError as error:
            if not name.endswith(".wgsl"):
                raise
            failed.append(Broken(OPS[ops[0]], one_line(Path(name).stem), Path(name), str(error)))
    if failed and not found:
        raise WebnormError(failed[0].reason)
    return found, failed


def select(
    kernels: Sequence[Kernel],
    name: str,
    op: str = "layer_norm",
    also: Sequence[str] = (AUTO,),
    broken: Sequence[Broken] = (),
) -> Kernel:
    """The kernel called `name`: a path to a file, `op/kernel`, or the name of one of `op`'s kernels.

    `also` are other names that the caller takes, which the error for an unknown one may suggest. One of the
    `broken` is refused with its reason.
    """
    check_kind("kernels", kernels, Sequence, "a sequence of kernels")
    for one in kernels:
        check_kind("one of kernels", one, Kernel)
    check_kind("name", name, str, "a text")
    if not isinstance(op, str) or op not in OPS:
        raise unknown("op", op if isinstance(op, str) else shown(op), OPS)
    if name.endswith(".wgsl"):
        path = Path(name)
        try:
            folder = resolved(path).parent.name
        except OSError as error:
            raise _unreadable(path, error) from error
        return load(path, None if folder in OPS else op)
    by_label = {kernel.label: kernel for kernel in kernels}
    reasons = {one.label: one.reason for one in broken}
    for label in (f"{op}/{name}", name):
        if label in reasons:
            raise WebnormError(reasons[label])
        if label in by_label:
            return by_label[label]
    raise unknown("kernel", name, {*also, *(kernel.name for kernel in kernels if kernel.op.name == op)})
