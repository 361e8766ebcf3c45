"""What every kernel of an op shares: its tensors, its problems, its float64 reference, and its hooks."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from webnorm.errors import WebnormError, check_kind
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.options import NO_OPTIONS, Options
from webnorm.op.problem import Problem

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """One output in float64, before it is rounded to its storage type, with the sizes that errors scale with.

    A float32 computation may be off by its tolerance times `error_scale`: the size of what was added up to
    make the element. A mean that was rounded to float32 adds its relative error times `mean_error_scale`. For
    a sum over the batch, `abs_sum` is the sum of the absolute terms. `beyond_float32` marks the elements that
    float32 cannot compute, since something on the way is larger than it holds. All broadcast to `value`.
    """

    value: Float64Array
    error_scale: Array
    mean_error_scale: Array
    abs_sum: Array | None = None
    beyond_float32: Array | None = None


ExpectedOutputs = dict[str, Expected]


@dataclass(frozen=True)
class ToleranceFactors:
    """Allowed error of an element: base * error_scale + slope * mean_error_scale + adding * abs_sum (see
    Expected).

    `equal_share` of a rounded output's elements must be equal to the rounded answer. `reason` says in a
    sentence where the numbers come from. `best` is the base that the best kernels of the op are held to,
    and `best_of` what they are.
    """

    base: float
    slope: float
    adding: float
    equal_share: float
    reason: str
    best: float = 0.0
    best_of: str = ""


Access = Literal["read", "read_write"]


@dataclass(frozen=True)
class Tensor:
    """One array of an op.

    `shape` has a number, or an expression of the problem's sizes, for each dimension; where it is `batched`,
    the first is the size that may be cut. `storage` is a storage type, or what names one: "dtype" for the
    problem's own, or an option. A problem has the tensor where its `option` is set and, with `only_for` such
    as ("out_dtype", ("int8",)), where that storage type is one of those; always where neither is named.
    `opening` is the entry point that has to set it before the first pass, and `holds` says what its elements
    are, where the name does not.

    Of an output: `feeds` says that the reference computes the others from what was written of it; `compared`
    makes of what was written what is compared with the answer; `tolerance` gives the factors for a problem
    where they are not the kernel's own; with `any_non_finite` NaN and both infinities are one.
    """

    name: str
    access: Access
    shape: tuple[str | int, ...]
    batched: bool = False
    storage: str = "dtype"
    option: str | None = None
    only_for: tuple[str, tuple[str, ...]] | None = None
    opening: str | None = None
    holds: str = ""
    feeds: bool = False
    compared: Callable[[Array], Array] | None = None
    tolerance: Callable[[Any], ToleranceFactors] | None = None
    any_non_finite: bool = False

    @property
    def inner_shape(self) -> tuple[str | int, ...]:
        """The dimensions that belong to one element of the batch, or all where it is not batched."""
        return self.shape[1:] if self.batched else self.shape

    @property
    def wide(self) -> bool:
        """Whether those depend on the problem's sizes."""
        return not all(isinstance(size, int) for size in self.inner_shape)

    def inner(self, problem: Problem) -> int:
        """Elements of one element of the batch, or of the whole tensor where it is not batched."""
        return prod(_dimension(size, problem) for size in self.inner_shape)

    def dtype(self, problem: Problem) -> str:
        """The name of its storage type."""
        return problem.storage(self.storage)

    def shape_in(self, problem: Problem) -> tuple[int, ...]:
        """Its shape in a problem."""
        return tuple(_dimension(size, problem) for size in self.shape)

    def present(self, problem: Problem) -> bool:
        """Whether the problem has it."""
        asked = self.option is None or getattr(problem.options, self.option)
        return bool(asked) and (
            self.only_for is None or problem.storage(self.only_for[0]) in self.only_for[1]
        )

    def data_bytes(self, problem: Problem) -> int:
        """Bytes of its elements."""
        return prod(self.shape_in(problem)) * DTYPES[self.dtype(problem)].itemsize


@cache
def _size(text: str) -> Callable[[Mapping[str, int]], int]:
    # Here: the expressions' parser is slow to import, and help and completion ask ops for nothing but names.
    from webnorm.op import expression

    return partial(expression.evaluate, expression.parse(text))


def _dimension(size: str | int, problem: Problem) -> int:
    return size if isinstance(size, int) else _size(size)(problem.sizes)


class UnsupportedProblem(WebnormError):
    """A problem that an op does not have."""


@dataclass(frozen=True)
class HeaderTerms:
    """What a kernel's header says of its arithmetic, for one problem: the float32 terms that one accumulator
    adds for an element of the batch, and for a sum over the batch; and how often it rounds a mean.
    """

    serial: int
    # As headers call the sum over the batch, which is one down a column.
    column: int
    rounded_mean: int


# A function, or where it is: "module:name". It is imported when it is first asked for.
Hook = Callable[..., Any] | str


@dataclass(frozen=True)
class OpSource:
    """The folder of an op of the user's, the op's name, and a digest of the folder's Python files.

    `sent_to` is where copies of the files lie that another process sent here.
    """

    folder: str
    name: str
    digest: str
    sent_to: str | None = field(default=None, compare=False)

    @property
    def files(self) -> Path:
        """The folder that this process reads the files from."""
        return Path(self.sent_to or self.folder)

    def op(self) -> Op:
        """Return the op; raises WebnormError where the files are gone or have changed."""
        from webnorm.op.op_folders import op_of_source

        return op_of_source(self)


@dataclass(frozen=True, repr=False, eq=False)
class Op:
    """An operation: what it computes, and everything that the lab has to know of it.

    `reference` takes the input arrays by name and the problem and gives an Expected for each output. `draw`
    gives the arrays that a problem reads: `draw(task, arrays, rng)` completes those that are given.
    `defaults` are the options of a problem that says nothing, `scalars` the scalars that are not the problem
    type's own. `counted_bytes` and `counted_flops` say what a problem has to move and to compute; an op of
    the user's has a `source`. An op that `is_copy` is the roofline of the others: `copied` makes its problem
    of theirs.
    `gradient` says that its outputs are gradients of another op's inputs.

    Hooks that an op may do without: `requires(problem)` raises UnsupportedProblem for options that do not go
    together. `header_names(problem)` has what headers may use beside sizes and flags, `template_names` what
    templates may. `starter` names the kernel that a new one begins as.

    `hooks` may have `tolerance(terms, problem)`, the factors for a kernel's HeaderTerms;
    `other_version(task, arrays)`, the inputs for other outputs; `other_problem(problem)`, the problem for
    kernels that refuse one; `unused_scalars(problem)`; `certain_bytes(problem)`, where they are not the
    counted ones. For checks: `cases(seed)`, the corpus; `fixed_cases`, those that no seed changes;
    `evaluation`, a module for the problems of a kernel that is being written. For hints:
    `mistakes(task, arrays)`, the outputs of kernels with a mistake; `diagnosis`, a function that explains
    errors; `trace_expectations`, a module for traced names. Also `rules`, a module for the choice of
    kernels; `presets`; `lessons`, the path of a TOML file; `export_options`, the defaults of an export;
    `lab_options`, the sets of options that a lab's page offers, each in the words of --option;
    `export_inputs(op, problem)`, its test vectors; and `page_numbers`, the numbers that its pages share.
    """

    name: str
    summary: str
    tensors: tuple[Tensor, ...]
    reference: Callable[[Mapping[str, Array], Any], ExpectedOutputs]
    problem_type: type[Problem]
    draw: Callable[..., dict[str, Array]]
    # Of the op's own type.
    defaults: Any = NO_OPTIONS
    scalars: Mapping[str, float] = field(default_factory=dict)
    more_options: tuple[str, ...] = ()
    constants: Mapping[str, int] = field(default_factory=dict)
    is_copy: bool = False
    gradient: bool = False
    copied: Callable[[Problem], Problem] | None = None
    requires: Callable[[Any], None] | None = None
    header_names: Callable[[Any], Mapping[str, int]] = lambda problem: {}
    template_names: Callable[[Any], Mapping[str, Any]] = lambda problem: {}
    starter: str = ""
    counted_bytes: Callable[[Any], int] | None = None
    counted_flops: Callable[[Any], int] | None = None
    source: OpSource | None = None
    hooks: Mapping[str, Hook] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is not None:
            return OpSource.op, (self.source,)
        # There is one op of a name in every process.
        from webnorm.op.registry import op_named

        return op_named, (self.name,)

    def hook(self, name: str) -> Any:
        """Return the hook of a name, imported where that is new; None where the op has none."""
        found = self.hooks.get(name)
        return pkgutil.resolve_name(found) if isinstance(found, str) else found

    def present(self, problem: Problem) -> tuple[Tensor, ...]:
        """The tensors that the problem has, in binding order."""
        return tuple(tensor for tensor in self.tensors if tensor.present(problem))

    def inputs(self, problem: Problem) -> tuple[Tensor, ...]:
        """Those that are read."""
        return tuple(tensor for tensor in self.present(problem) if tensor.access == "read")

    def outputs(self, problem: Problem) -> tuple[Tensor, ...]:
        """Those that are written, the main one first."""
        return tuple(tensor for tensor in self.present(problem) if tensor.access == "read_write")

    @cached_property
    def named(self) -> Mapping[str, Tensor]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The options that it looks at: those that bring a tensor or its storage type, and `more_options`."""
        found = {tensor.option for tensor in self.tensors} | {tensor.storage for tensor in self.tensors}
        return tuple(name for name in vars(self.defaults) if name in found | {*self.more_options})

    def elements(self, problem: Problem) -> int:
        """Elements of its largest tensor."""
        return max(prod(tensor.shape_in(problem)) for tensor in self.present(problem))

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that any kernel has to move: every batched tensor once.

        The others are left out: they are read once per element of the batch but stay in cache.
        """
        if self.counted_bytes is not None:
            return self.counted_bytes(problem)
        return sum(tensor.data_bytes(problem) for tensor in self._moved(problem))

    def certain_bytes(self, problem: Problem) -> int:
        """Bytes that any kernel has to move whatever the inputs hold: fewer where an op only assumes them."""
        certain: Callable[[Problem], int] | None = self.hook("certain_bytes")
        return self.minimum_bytes(problem) if certain is None else certain(problem)

    def one_sidedness(self, problem: Problem) -> float:
        """From 0, where it writes as many bytes as it reads, to 1, where it only reads or only writes."""
        moved = self._moved(problem)
        written: int = sum(tensor.data_bytes(problem) for tensor in moved if tensor.access == "read_write")
        total: int = sum(tensor.data_bytes(problem) for tensor in moved)
        return abs(total - 2 * written) / total

    def _moved(self, problem: Problem) -> list[Tensor]:
        """The batched tensors; of an op that has none, all."""
        present = self.present(problem)
        return [tensor for tensor in present if tensor.batched] or [*present]

    def sizes_of(self, named: Mapping[str, int]) -> tuple[int, ...]:
        """Return sizes in the op's order: those named, and small ones for the others.

        Raises WebnormError for a size that the op does not have.
        """
        self.check_sizes(named)
        small = self.problem_type.default_sizes(software=True, quick=True)[0]
        return tuple(named.get(name, size) for name, size in zip(self.problem_type.SIZES, small, strict=True))

    def check_sizes(self, names: Collection[str]) -> None:
        """Raise UnsupportedProblem for the name of a size that the op does not have."""
        for name in names:
            if name not in self.problem_type.SIZES:
                raise UnsupportedProblem(
                    f"{self.name} has no size {name}: it has {', '.join(self.problem_type.SIZES)}"
                )

    def problem(
        self, *sizes: int, dtype: str | None = None, options: Options | None = None, **given: Any
    ) -> Any:
        """Return a problem of these sizes; what is None is the op's own default.

        `given` are scalars and the other fields of its type. Raises UnsupportedProblem for what this op does
        not have, WebnormError for what no op has.
        """
        given = {name: value for name, value in given.items() if value is not None}
        known = {one.name for one in fields(self.problem_type)}
        if len(sizes) > len(self.problem_type.SIZES):
            raise WebnormError(
                f"{self.name} has the sizes {', '.join(self.problem_type.SIZES)}; {len(sizes)} given"
            )
        if names := ", ".join(sorted(given.keys() - known)):
            raise UnsupportedProblem(f"{self.name} has no {names}: it has {', '.join(sorted(known))}")
        named = dict(zip(self.problem_type.SIZES, sizes, strict=False))
        if missing := [name for name in self.problem_type.SIZES if name not in {**named, **given}]:
            raise WebnormError(f"{', '.join(missing)} of {self.name} is missing; expected a size")
        if options is not None and not isinstance(options, type(self.defaults)):
            self._check_options(options)
            options = None
        problem = self.problem_type(
            **cast(Any, named),
            dtype="float32" if dtype is None else dtype,
            options=self.defaults if options is None else options,
            **{**self.scalars, **given},
        )
        self.check(problem)
        return problem

    def check(self, problem: Problem) -> None:
        """Raise UnsupportedProblem for options that this op lacks, or that do not go together."""
        self._check_options(problem.options)
        if self.requires is not None:
            self.requires(problem)

    def _check_options(self, options: Options) -> None:
        for name in sorted(options.set_names - {*self.options} - options.IGNORABLE):
            raise self.without_option(name)

    def without_option(self, name: str) -> UnsupportedProblem:
        """The error for an option that this op lacks."""
        takes = f"it has {', '.join(self.options)}" if self.options else "it has none"
        return UnsupportedProblem(f"{self.name} has no option {name}: {takes}")

    def unused_scalars(self, problem: Problem) -> Collection[str]:
        """Return the scalars that this problem has no use for."""
        unused: Callable[[Problem], Collection[str]] | None = self.hook("unused_scalars")
        return unused(problem) if unused is not None else ()

    def copied_problem(self, problem: Problem) -> Problem:
        """The problem of this op that stands for another op's: the copy has its own."""
        return problem if self.copied is None else self.copied(problem)


@dataclass(frozen=True)
class Task:
    """A problem and the op that it is one of."""

    op: Op
    # Of the op's own type.
    problem: Any

    def __str__(self) -> str:
        return f"{self.op.name}, {self.problem}"


def make_inputs(op: Op, problem: Problem) -> dict[str, Array]:
    """Draw every input of an op for a problem, in its storage type.

    Parameters
    ----------
    op : Op
        The op, such as `kernel.op`.
    problem : Problem
        A problem of the op. Its `seed` and `distribution` determine the values.

    Returns
    -------
    dict of str to numpy.ndarray
        The arrays by the names of the op's tensors.

    Raises
    ------
    WebnormError
        The arrays do not fit in memory, or an argument has the wrong type.

    Examples
    --------
    >>> import webnorm
    >>> op = webnorm.select(webnorm.discover(), "naive").op
    >>> arrays = webnorm.make_inputs(op, webnorm.Problem(rows=4, cols=8))
    >>> {name: array.shape for name, array in arrays.items()}
    {'x': (4, 8), 'weight': (8,), 'bias': (8,)}
    """
    check_kind("op", op, Op)
    check_kind("problem", problem, Problem)
    try:
        rng = np.random.default_rng([problem.seed, 1])
        return op.draw(Task(op, problem), {}, rng)
    except MemoryError as error:
        raise WebnormError(f"the inputs of {problem} find no room in memory") from error
