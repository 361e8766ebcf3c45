"""The contents of an `op.py`: sizes, tensors, scalars, options, the reference, and optional parts."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from webnorm.errors import WebnormError, check_kind, shown, unknown
from webnorm.op import expression
from webnorm.op.draws import Draw, Drawn, Integers, Normal
from webnorm.op.dtypes import DTYPES, INTEGERS
from webnorm.op.options import Options, can_be_field
from webnorm.op.problem import Problem

Function = TypeVar("Function", bound=Callable[..., Any])

# Words of WGSL, of templates and of the uniform that no size, tensor, scalar or option can be called.
_TAKEN = frozenset(
    re.findall(
        r"\w+",
        """
        alias break case const const_assert continue continuing default diagnostic discard else enable
        false fn for if let loop override requires return struct switch true var while array atomic bool
        f16 f32 i32 u32 vec2 vec3 vec4 mat2x2 mat3x3 mat4x4 ptr sampler main params param cost parameters
        immediates
        none software subgroups features target tracing trace tensors buffers dtype op min max ceil_div
        max_invocations workgroup_storage float_words int_words seed distribution subgroup_min_size
        subgroup_max_size has_subgroups has_f16 has_subgroup_size_control has_subgroup_uniformity
        has_buffer_view has_linear_indexing has_immediate_address_space has_packed_4x8_integer_dot_product
        has_pointer_composite_access has_swizzle_assignment has_uniform_buffer_standard_layout
        has_unrestricted_pointer_parameters
        options select bitcast
        """,
    )
)
# The bytes of an element of --dtype, in expressions.
ITEMSIZE = "itemsize"
# The name of the storage type that follows the problem's --dtype.
FOLLOWS = "dtype"


def check_free(name: object, what: str, *holders: type) -> str:
    """Return a name if WGSL, templates and Python accept it; raise WebnormError otherwise.

    The name must not be an attribute of a problem or of the holders.
    """
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or name.startswith("_"):
        raise WebnormError(f"{what} is {shown(name)}; expected a letter, then letters, digits and _")
    if name in _TAKEN or not can_be_field(name, Problem, *holders):
        raise WebnormError(
            f"{what} is {name!r}, which is a word of WGSL, Python or webnorm; expected another name"
        )
    return name


@dataclass(frozen=True)
class TensorDefinition:
    """One array of an op, from `tensor`. `shape` has an expression for each dimension."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    option: str | None
    draw: Draw


def tensor(
    name: str,
    shape: str = "",
    dtype: str = FOLLOWS,
    *,
    option: str | None = None,
    draw: Draw | Callable[..., Any] | None = None,
) -> TensorDefinition:
    """Define an array.

    Parameters
    ----------
    name
        The name in the reference and in kernels.
    shape
        An expression of sizes and flags for each dimension, separated by spaces: "rows cols", "n k//8".
        Empty for one element.
    dtype
        A storage type, such as "float32", "int32" or "uint32", or the name of an option that chooses one. By
        default the array follows --dtype: float32, float16 or bfloat16.
    option
        The flag without which the op does not have the tensor, or an expression of flags, such as
        "weight and not shared".
    draw
        The distribution of an input: `normal()`, `uniform(low, high)`, `integers(low, high)`,
        `permutation()`, or a function of (rng, shape) and sizes by name that returns an array. Default:
        normal numbers; for integer types all values of the type.
    """
    check_free(name, "the name of a tensor")
    if not isinstance(shape, str):
        raise WebnormError(f"the shape of {name} is {shown(shape)}; expected a string such as 'rows cols'")
    if not isinstance(dtype, str):
        raise WebnormError(f"the dtype of {name} is {shown(dtype)}; expected one of {', '.join(DTYPES)}")
    parts = tuple(shape.split()) or ("1",)
    for part in parts:
        try:
            expression.parse(part)
        except WebnormError as error:
            raise WebnormError(
                f"the shape of {name} is {shown(shape)}: {error}; "
                "expected dimensions separated by blanks, such as 'rows cols'"
            ) from error
    return TensorDefinition(name, parts, dtype, option, _draw_of(name, dtype, draw))


def _draw_of(name: str, dtype: str, draw: object) -> Draw:
    if draw is None:
        return Integers(*_range_of(dtype)) if dtype in INTEGERS else Normal()
    if isinstance(draw, Draw):
        return draw
    if not callable(draw):
        raise WebnormError(
            f"draw of {name} is {shown(draw)}; expected normal(), uniform(low, high), integers(low, high), "
            "permutation() or a function"
        )
    names = [*inspect.signature(draw).parameters]
    if names[:2] != ["rng", "shape"]:
        raise WebnormError(f"the function that draws {name} takes {names}; expected (rng, shape) first")
    return Drawn(draw, tuple(names[2:]))


def _range_of(dtype: str) -> tuple[int, int]:
    bits = 8 * DTYPES[dtype].itemsize
    return (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)


@dataclass(frozen=True)
class ScalarDefinition:
    """A number in the uniform, from `scalar`. It is an integer if its default is one."""

    name: str
    default: float

    @property
    def whole(self) -> bool:
        """True if it is an i32 in WGSL, and False if it is an f32."""
        return isinstance(self.default, int)


def scalar(name: str, default: float) -> ScalarDefinition:
    """Define a number that kernels read as `params.NAME`.

    It is an i32 if its default is an int, otherwise an f32.
    """
    check_free(name, "the name of a scalar")
    if isinstance(default, bool) or not isinstance(default, int | float):
        raise WebnormError(f"scalar {name} is {shown(default)}; expected a number")
    return ScalarDefinition(name, default)


@dataclass(frozen=True)
class OptionDefinition:
    """A flag, or a choice among values, from `option`."""

    name: str
    values: tuple[str | None, ...]
    default: bool | str | None


def option(name: str, *values: str | None, default: bool | None = None) -> OptionDefinition:
    """Define a flag, or a choice among values. The first value is the default.

    A flag is off unless `default` is True. Kernels see a flag as a constant 0 or 1; a template sees a choice
    as a text.
    """
    check_free(name, "the name of an option", Options)
    for value in values:
        if value is not None and not (isinstance(value, str) and value):
            raise WebnormError(f"option {name} may be {shown(value)}; expected strings, or None")
    if len(set(values)) < len(values) or len(values) == 1:
        raise WebnormError(f"option {name} has the values {values}; expected two different ones or more")
    if values and default is not None:
        raise WebnormError(
            f"default of option {name} is {default}; leave it out: the first value is the default"
        )
    return OptionDefinition(name, values, values[0] if values else bool(default))


@dataclass(frozen=True)
class RequirementDefinition:
    """A rule that sizes must satisfy, and its reason, from `require`."""

    rule: str
    why: str


def require(rule: str, why: str = "") -> RequirementDefinition:
    """Define an expression of sizes and flags that must be true, and the reason that errors show."""
    expression.parse(rule)
    return RequirementDefinition(rule, why or f"needs {rule}")


@dataclass(frozen=True)
class CaseDefinition:
    """Inputs that every kernel is checked on, from `case`."""

    name: str
    arrays: Mapping[str, Any]
    source: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def case(
    name: str,
    arrays: Mapping[str, Any],
    *,
    source: str = "op.py",
    sizes: Mapping[str, int] | None = None,
    options: Sequence[str] = (),
) -> CaseDefinition:
    """Define inputs that every kernel is checked on, such as inputs that broke a kernel.

    Parameters
    ----------
    name
        The name of the case.
    arrays
        Inputs by name: an array, a nested list, or a function of (rng, shape). Other inputs are drawn.
    source
        The origin of the case.
    sizes
        Sizes that no array's shape determines. Default: small ones.
    options
        Options in the form of `--option`.
    """
    if not isinstance(arrays, Mapping):
        raise WebnormError(f"case {name!r} has {shown(arrays)}; expected arrays by the names of inputs")
    return CaseDefinition(str(name), dict(arrays), source, dict(sizes or {}), tuple(options))


@dataclass(frozen=True)
class ToleranceDefinition:
    """Allowed errors of an element, relative to it and absolute. They replace the derived ones."""

    relative: float
    absolute: float


class OpDefinition:
    """The definition of an op in its `op.py`, from `define_op`.

    Its methods decorate the functions of the op.
    """

    def __init__(
        self,
        sizes: Mapping[str, int | Sequence[int]],
        inputs: Sequence[TensorDefinition],
        outputs: Sequence[TensorDefinition],
        scalars: Sequence[ScalarDefinition],
        options: Sequence[OptionDefinition],
        requirements: Sequence[RequirementDefinition],
        cases: Sequence[CaseDefinition],
        batch: str | None,
        tolerance: ToleranceDefinition | None,
        bytes: str | None,
        flops: str | None,
        derived: Mapping[str, str],
        summary: str,
        line: int,
    ) -> None:
        self.sizes, self.inputs, self.outputs = sizes, inputs, outputs
        self.scalars, self.options, self.requirements, self.cases = scalars, options, requirements, cases
        self.batch, self.tolerance, self.bytes, self.flops = batch, tolerance, bytes, flops
        self.derived = derived
        self.summary = summary
        # Of op.py, where messages about the whole point.
        self.line = line
        self.reference_function: Callable[..., Any] | None = None
        self.error_function: Callable[..., Any] | None = None
        self.mistakes: dict[str, Callable[..., Any]] = {}

    def least(self, size: str) -> int:
        """Return the smallest value of a size: 0 if it is 0 in a benchmark, else 1."""
        given = self.sizes[size]
        return min(1, *([given] if isinstance(given, int) else given))

    @property
    def named(self) -> dict[str, TensorDefinition]:
        """The tensors by name, inputs first."""
        return {one.name: one for one in (*self.inputs, *self.outputs)}

    def choice_names(self) -> dict[str, tuple[str, str]]:
        """Return the option and the value of each `is_OPTION_VALUE`, the names of choices in headers."""
        return {
            f"is_{one.name}_{value}": (one.name, value)
            for one in self.options
            for value in one.values
            if value is not None
        }

    def reference(self, function: Function) -> Function:
        """Register a function as the op's reference.

        Its parameters are the inputs, scalars, sizes and options that it needs, by name. Float inputs are
        float64 arrays, and integer inputs are int64. An input without its option is None. The function
        returns the output, or a tuple of the outputs in order.
        """
        if self.reference_function is not None:
            raise WebnormError("the op has two references; expected one function under @op.reference")
        self._check_parameters(function, "the reference")
        self.reference_function = function
        return function

    def allowed_error(self, function: Function) -> Function:
        """Register a function that returns the allowed absolute errors, in place of the derived tolerance.

        It has the parameters of a reference. It returns an array for each output, or a tuple of them, that
        broadcasts to the output: the errors of a correct float32 kernel that adds at most 64 terms one after
        another. A kernel that declares more `serial_terms` may have proportionally larger errors.
        """
        if self.error_function is not None or self.tolerance is not None:
            raise WebnormError("the op has two tolerances; expected one function under @op.allowed_error")
        self._check_parameters(function, "the allowed error")
        self.error_function = function
        return function

    def mistake(self, what: str) -> Callable[[Function], Function]:
        """Register a function that computes the result of a typical mistake, for hints.

        `what` continues "a kernel that", such as "leaves the last column out". The function has the form of a
        reference.
        """
        if not isinstance(what, str) or not what:
            raise WebnormError(
                f"the text of a mistake is {shown(what)}; "
                'expected a description, such as @op.mistake("leaves the last column out")'
            )

        def taken(function: Function) -> Function:
            self._check_parameters(function, f"the mistake {what!r}")
            self.mistakes[what] = function
            return function

        return taken

    def _check_parameters(self, function: Callable[..., Any], what: str) -> None:
        parts: Sequence[Any] = (*self.inputs, *self.scalars, *self.options)
        known = {*self.sizes, *(one.name for one in parts), FOLLOWS}
        for name in inspect.signature(function).parameters:
            if name not in known:
                raise WebnormError(f"{what} has the {unknown('parameter', name, known)}")


# The arguments of `define_op` that are lists: the type of an entry, and an example of one.
_LISTS: Mapping[str, tuple[type[Any], str]] = {
    "inputs": (TensorDefinition, 'tensor("x", "rows cols")'),
    "outputs": (TensorDefinition, 'tensor("y", "rows cols")'),
    "scalars": (ScalarDefinition, 'scalar("scale", 1.0)'),
    "options": (OptionDefinition, 'option("causal")'),
    "require": (RequirementDefinition, 'require("cols % 4 == 0")'),
    "cases": (CaseDefinition, 'case("ones", {"x": [[1.0, 1.0]]})'),
}


def _listed(name: str, value: object) -> tuple[Any, ...]:
    """Return an argument of `define_op` that has to be a list of definitions."""
    kind, example = _LISTS[name]
    if not isinstance(value, list | tuple):
        given = f"one {example.partition('(')[0]}(...)" if isinstance(value, kind) else shown(value)
        raise WebnormError(f"{name} is {given}; expected a list such as [{example}]")
    for one in value:
        if not isinstance(one, kind):
            raise WebnormError(f"one of {name} is {shown(one)}; expected {example}")
    return tuple(value)


def define_op(
    *,
    sizes: Mapping[str, int | Sequence[int]],
    inputs: Sequence[TensorDefinition],
    outputs: Sequence[TensorDefinition],
    scalars: Sequence[ScalarDefinition] = (),
    options: Sequence[OptionDefinition] = (),
    require: Sequence[RequirementDefinition] = (),
    cases: Sequence[CaseDefinition] = (),
    batch: str | None = "auto",
    relative_tolerance: float | None = None,
    absolute_tolerance: float | None = None,
    bytes: str | None = None,
    flops: str | None = None,
    derived: Mapping[str, str] | None = None,
    summary: str = "",
) -> OpDefinition:
    """Define an op, in an `op.py`.

    Parameters
    ----------
    sizes
        The sizes by name, outermost first, each with its value in a benchmark, or a list of values. Problems
        have sizes of 1 or more; or of 0 or more if a value here is 0, as for padding between rows. A size
        that is a dimension of a tensor cannot be 0.
    inputs, outputs
        Results of `tensor`; the main ones first.
    scalars, options, require, cases
        Results of `scalar`, `option`, `require` and `case`.
    batch
        The size whose elements are independent of each other. Kernels receive it at run time, and webnorm may
        cut it if a buffer is too large. "auto" tests the first dimension of the outputs with the reference.
        None means that there is no batch. An output without the batch has to be a sum over its elements.
    relative_tolerance, absolute_tolerance
        Allowed errors of an element, which replace the tolerance that is derived from the reference.
    bytes, flops
        Expressions of sizes: the bytes that a kernel must move (default: every tensor once), and its
        floating-point operations, for GFLOP/s.
    derived
        More names for headers and templates of kernels, each with an expression of sizes, flags and
        `is_OPTION_VALUE`. It must not depend on the batch.
    summary
        The description of the op, in one line. Default: the first line of the module's docstring.

    Raises
    ------
    WebnormError
        Names clash, shapes have unknown sizes, or values have the wrong type.
    """
    given = None
    for name, value in (("relative", relative_tolerance), ("absolute", absolute_tolerance)):
        if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise WebnormError(f"{name}_tolerance is {shown(value)}; expected a number of 0 or more")
    if relative_tolerance is not None or absolute_tolerance is not None:
        given = ToleranceDefinition(relative_tolerance or 0.0, absolute_tolerance or 0.0)
    check_kind("sizes", sizes, Mapping, 'a dict such as {"rows": 4096, "cols": 1024}')
    found = OpDefinition(
        dict(sizes), _listed("inputs", inputs), _listed("outputs", outputs), _listed("scalars", scalars),
        _listed("options", options), _listed("require", require), _listed("cases", cases), batch, given,
        bytes, flops, dict(derived or {}), summary, sys._getframe(1).f_lineno,
    )  # fmt: skip
    _check(found)
    return found


def _check(op: OpDefinition) -> None:
    """Raise WebnormError if the names or values do not define an op."""
    for name, given in op.sizes.items():
        check_free(name, "the name of a size")
        values: Sequence[object] = given if isinstance(given, list | tuple) and given else [given]
        for value in values:
            least = int(any(name in one.shape for one in op.named.values()))
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise WebnormError(f"size {name} is {shown(value)}; expected an int of {least} or more")
    if not op.sizes:
        raise WebnormError("the op has no sizes; expected one or more, such as {'rows': 4096, 'cols': 1024}")
    if not op.inputs or not op.outputs:
        raise WebnormError("the op has no inputs or no outputs; expected one tensor(...) or more of each")
    parts: Sequence[Any] = (*op.inputs, *op.outputs, *op.scalars)
    names = [*op.sizes, *(one.name for one in parts)]
    tensors = {one.name for one in (*op.inputs, *op.outputs)}
    # A flag may have the name of the tensor that it brings.
    names += [one.name for one in op.options if one.name not in tensors]
    options = [one.name for one in op.options]
    for group in (names, options):
        for name in group:
            if group.count(name) > 1:
                raise WebnormError(f"two of the sizes, tensors, scalars and options are called {name!r}")
    _check_tensors(op)
    known = [*op.sizes, *(one.name for one in op.options if not one.values)]
    for name, derived in op.derived.items():
        check_free(name, "a derived name")
        if name in (*names, *options):
            raise WebnormError(f"derived name {name!r} is also a size, tensor, scalar or option")
        expression.check_names(expression.parse(derived), [*known, *op.choice_names()], derived)
    for requirement in op.requirements:
        expression.check_names(expression.parse(requirement.rule), known, requirement.rule)
    for text in (op.bytes, op.flops):
        if text is not None:
            expression.check_names(expression.parse(text), [*known, *op.choice_names(), ITEMSIZE], text)
    if op.batch not in ("auto", None, *op.sizes):
        raise unknown("batch", op.batch, op.sizes)


def _check_flags(one: TensorDefinition, flags: Sequence[str]) -> None:
    text = str(one.option)
    if text.isidentifier() and text not in flags:
        raise unknown(f"flag of {one.name}", text, flags)
    expression.check_names(expression.parse(text), flags, text)


def _check_tensors(op: OpDefinition) -> None:
    flags = [one.name for one in op.options if not one.values]
    choices = [one.name for one in op.options if one.values]
    for one in op.named.values():
        for part in one.shape:
            expression.check_names(expression.parse(part), [*op.sizes, *flags], part)
        if one.option is not None:
            _check_flags(one, flags)
        if one.dtype not in (*DTYPES, FOLLOWS, *choices):
            raise unknown(f"dtype of {one.name}", one.dtype, [*DTYPES, *choices])
    for given in op.cases:
        for name in given.arrays:
            if name not in {one.name for one in op.inputs}:
                raise unknown(f"input of case {given.name!r}", name, [one.name for one in op.inputs])
