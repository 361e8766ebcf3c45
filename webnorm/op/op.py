"""The definition of an op: its tensors, its problems, its float64 reference, and its hooks."""

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
    """One expected output in float64, before rounding to its storage type, with the scales of its errors.

    All arrays broadcast to `value`.

    Attributes
    ----------
    value
        The expected output.
    error_scale
        The size of the terms that were added up to make the element. A float32 computation may be off by its
        tolerance times this.
    mean_error_scale
        A mean that was rounded to float32 adds its relative error times this.
    abs_sum
        The sum of the absolute terms, for a sum over the batch.
    beyond_float32
        A mask of elements that float32 cannot compute, since an intermediate result is too large.
    """

    value: Float64Array
    error_scale: Array
    mean_error_scale: Array
    abs_sum: Array | None = None
    beyond_float32: Array | None = None


ExpectedOutputs = dict[str, Expected]


@dataclass(frozen=True)
class ToleranceFactors:
    """The factors of an element's allowed error.

    The allowed error is base * error_scale + slope * mean_error_scale + adding * abs_sum (see Expected).

    Attributes
    ----------
    base
        Factor of `error_scale`.
    slope
        Factor of `mean_error_scale`.
    adding
        Factor of `abs_sum`.
    equal_share
        The share of a rounded output's elements that must equal the rounded answer.
    reason
        The origin of the numbers, in one sentence.
    best
        The base of the best kernels of the op.
    best_of
        A description of the best kernels.
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

    A problem has the tensor if its `option` is set. With `only_for`, such as ("out_dtype", ("int8",)), that
    storage type must also be in the list. A problem always has a tensor with neither.

    Attributes
    ----------
    name
        The name.
    access
        "read" for inputs, "read_write" for outputs.
    shape
        A number, or an expression of the problem's sizes and of options that are counts, for each dimension.
    batched
        True if the first dimension is the size that may be cut.
    storage
        A storage type, or the name of one: "dtype" for the problem's own, or an option.
    option
        The flag without which a problem does not have the tensor, or an expression of flags.
    only_for
        The storage types for which a problem has the tensor.
    opening
        The entry point that must set it before the first pass.
    holds
        A description of the elements, if the name is not enough.
    feeds
        Outputs: the reference computes the other outputs from the written values.
    compared
        Outputs: a function from the written values to the values that are compared with the answer.
    tolerance
        Outputs: a function from a problem to the factors, if they differ from the kernel's own.
    any_non_finite
        Outputs: NaN and both infinities count as equal.
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
        """The dimensions of one element of the batch, or all dimensions if the tensor is not batched."""
        return self.shape[1:] if self.batched else self.shape

    @property
    def wide(self) -> bool:
        """True if a dimension of `inner_shape` is one of the problem's sizes."""
        return any(isinstance(size, str) and size.isidentifier() for size in self.inner_shape)

    def inner(self, problem: Problem) -> int:
        """Return the number of elements of `inner_shape`."""
        return prod(_dimension(size, problem) for size in self.inner_shape)

    def dtype(self, problem: Problem) -> str:
        """Return the name of the tensor's storage type."""
        return problem.storage(self.storage)

    def shape_in(self, problem: Problem) -> tuple[int, ...]:
        """Return the tensor's shape in a problem."""
        return tuple(_dimension(size, problem) for size in self.shape)

    def present(self, problem: Problem) -> bool:
        """Return True if the problem has the tensor."""
        return self._asked(problem) and (
            self.only_for is None or problem.storage(self.only_for[0]) in self.only_for[1]
        )

    def _asked(self, problem: Problem) -> bool:
        """Return True if the problem's options ask for the tensor."""
        if self.option is None:
            return True
        if self.option.isidentifier():
            return bool(getattr(problem.options, self.option))
        return bool(_evaluator(self.option)(problem.counts))

    def data_bytes(self, problem: Problem) -> int:
        """Return the bytes of the elements."""
        return prod(self.shape_in(problem)) * DTYPES[self.dtype(problem)].itemsize


@cache
def _evaluator(text: str) -> Callable[[Mapping[str, int]], int]:
    # The parser of expressions is slow to import, and help and completion only need the names of ops.
    from webnorm.op import expression

    return partial(expression.evaluate, expression.parse(text))


def _dimension(size: str | int, problem: Problem) -> int:
    if isinstance(size, int):
        return size
    return int(getattr(problem, size)) if size in problem.SIZES else _evaluator(size)(problem.counts)


class UnsupportedProblem(WebnormError):
    """An error for a problem that an op does not support."""


@dataclass(frozen=True)
class HeaderTerms:
    """A kernel's arithmetic for one problem, as its header declares it.

    Attributes
    ----------
    serial
        float32 terms that one accumulator adds for an element of the batch.
    column
        float32 terms that one accumulator adds for a sum over the batch.
    rounded_mean
        The number of times that a mean is rounded.
    """

    serial: int
    # Headers call a sum over the batch a column sum.
    column: int
    rounded_mean: int


# A function, or its "module:name", which is imported on first use.
Hook = Callable[..., Any] | str


@dataclass(frozen=True)
class OpSource:
    """The folder of an `op.py`, the op's name, and a digest of the folder's Python files.

    `sent_to` is the folder of copies that another process sent here. `packaged` is True for an op that comes
    with webnorm, which has no digest.
    """

    folder: str
    name: str
    digest: str
    sent_to: str | None = field(default=None, compare=False)
    packaged: bool = False

    @property
    def files(self) -> Path:
        """The folder from which this process reads the files."""
        return Path(self.sent_to or self.folder)

    def op(self) -> Op:
        """Return the op; raise WebnormError if the files are gone or have changed."""
        if self.packaged:
            from webnorm.op.registry import packaged_op

            return packaged_op(self.name)
        from webnorm.op.op_folders import op_of_source

        return op_of_source(self)


@dataclass(frozen=True, repr=False, eq=False)
class Op:
    """An operation, and everything that the lab needs to know about it.

    Attributes
    ----------
    name, summary, tensors
        The name, the description, and the arrays in binding order.
    reference
        A function from the input arrays by name, and the problem, to an Expected for each output.
    problem_type
        The type of the problems.
    draw
        A function that draws the inputs of a problem: `draw(task, arrays, rng)` completes the given arrays.
    defaults
        The default options.
    scalars
        Defaults of scalars that differ from the problem type's.
    more_options
        Options without a tensor.
    constants
        Names and values for headers.
    is_copy
        True for the copy, which is the roofline of the others.
    gradient
        True if the outputs are gradients of another op's inputs.
    copied
        A function from another op's problem to the copy's.
    requires
        A function that raises UnsupportedProblem for options that are incompatible.
    header_names, template_names
        Functions from a problem to more names for headers and templates.
    starter
        The kernel that a new one is copied from.
    counted_bytes, counted_flops
        Functions from a problem to the bytes that it must move and the operations that it must compute.
    source
        The origin of an op with a definition from `define_op`, or of a user op.
    hooks
        Optional functions and modules, or their "module:name".

    Notes
    -----
    An op works without these hooks:

    - `tolerance(terms, problem)`: the factors for a kernel's HeaderTerms
    - `other_version(task, arrays)`: inputs for other outputs
    - `other_problem(problem)`: the problem for kernels that reject one
    - `unused_scalars(problem)`: scalars without effect
    - `certain_bytes(problem)`: the bytes, if they differ from the counted ones
    - `cases(seed)`: the corpus; `fixed_cases`: cases that do not depend on a seed
    - `evaluation`: a module with the problems of a kernel that is being written
    - `mistakes(task, arrays)`: the outputs of kernels with a mistake, for hints
    - `diagnosis`: a function that explains errors
    - `trace_expectations`: a module for traced names
    - `rules`: a module that chooses kernels
    - `presets`: named workloads
    - `lessons`: the path of a TOML file
    - `export_options`: the default options of an export
    - `lab_options`: the sets of options that a lab's page offers, in the form of --option
    - `export_inputs(op, problem)`: test vectors
    - `page_numbers`: the numbers that pages share
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

    @property
    def is_users(self) -> bool:
        """True if a user's folder defines the op."""
        return self.source is not None and not self.source.packaged

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is not None:
            return OpSource.op, (self.source,)
        # webnorm's own ops exist under their names in every process.
        from webnorm.op.registry import op_named

        return op_named, (self.name,)

    def hook(self, name: str) -> Any:
        """Return a hook by name, imported if necessary; None if the op does not have it."""
        found = self.hooks.get(name)
        return pkgutil.resolve_name(found) if isinstance(found, str) else found

    def present(self, problem: Problem) -> tuple[Tensor, ...]:
        """Return the tensors of a problem, in binding order."""
        return tuple(tensor for tensor in self.tensors if tensor.present(problem))

    def inputs(self, problem: Problem) -> tuple[Tensor, ...]:
        """Return the tensors that a problem reads."""
        return tuple(tensor for tensor in self.present(problem) if tensor.access == "read")

    def outputs(self, problem: Problem) -> tuple[Tensor, ...]:
        """Return the tensors that a problem writes, the main one first."""
        return tuple(tensor for tensor in self.present(problem) if tensor.access == "read_write")

    @cached_property
    def named(self) -> Mapping[str, Tensor]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The options that the op uses: options of tensors and storage types, and `more_options`."""
        found = {tensor.option for tensor in self.tensors} | {tensor.storage for tensor in self.tensors}
        return tuple(name for name in vars(self.defaults) if name in found | {*self.more_options})

    def elements(self, problem: Problem) -> int:
        """Return the number of elements of the largest tensor."""
        return max(prod(tensor.shape_in(problem)) for tensor in self.present(problem))

    def minimum_bytes(self, problem: Problem) -> int:
        """Return the bytes that any kernel must move: every batched tensor once.

        Other tensors are left out: they are read once per element of the batch, but stay in cache.
        """
        if self.counted_bytes is not None:
            return self.counted_bytes(problem)
        return sum(tensor.data_bytes(problem) for tensor in self._moved(problem))

    def certain_bytes(self, problem: Problem) -> int:
        """Return the bytes that any kernel must move for all inputs.

        Some ops assume inputs that need more.
        """
        certain: Callable[[Problem], int] | None = self.hook("certain_bytes")
        return self.minimum_bytes(problem) if certain is None else certain(problem)

    def one_sidedness(self, problem: Problem) -> float:
        """Return the imbalance of reads and writes, from 0 to 1.

        It is 0 if as many bytes are written as read, and 1 for reads or writes alone.
        """
        moved = self._moved(problem)
        written: int = sum(tensor.data_bytes(problem) for tensor in moved if tensor.access == "read_write")
        total: int = sum(tensor.data_bytes(problem) for tensor in moved)
        return abs(total - 2 * written) / total

    def _moved(self, problem: Problem) -> list[Tensor]:
        """Return the batched tensors, or all tensors if none is batched."""
        present = self.present(problem)
        return [tensor for tensor in present if tensor.batched] or [*present]

    def sizes_of(self, named: Mapping[str, int]) -> tuple[int, ...]:
        """Return all sizes in the op's order: the named ones, and small ones for the others.

        Raises
        ------
        UnsupportedProblem
            The op does not have one of the sizes.
        """
        self.check_sizes(named)
        small = self.problem_type.default_sizes(software=True, quick=True)[0]
        return tuple(named.get(name, size) for name, size in zip(self.problem_type.SIZES, small, strict=True))

    def check_sizes(self, names: Collection[str]) -> None:
        """Raise UnsupportedProblem for a size that the op does not have."""
        for name in names:
            if name not in self.problem_type.SIZES:
                raise UnsupportedProblem(
                    f"{self.name} has no size {name}; its sizes are {', '.join(self.problem_type.SIZES)}"
                )

    def problem(
        self, *sizes: int, dtype: str | None = None, options: Options | None = None, **given: Any
    ) -> Any:
        """Return a problem of these sizes. None stands for the op's default.

        Parameters
        ----------
        sizes
            The sizes in the op's order.
        dtype
            The storage type.
        options
            The options.
        given
            Scalars and the other fields of the problem type.

        Raises
        ------
        UnsupportedProblem
            This op lacks a scalar, a field or an option.
        WebnormError
            A value is invalid for every op.
        """
        given = {name: value for name, value in given.items() if value is not None}
        known = {one.name for one in fields(self.problem_type)}
        if len(sizes) > len(self.problem_type.SIZES):
            raise WebnormError(
                f"{self.name} has the sizes {', '.join(self.problem_type.SIZES)}; {len(sizes)} given"
            )
        if names := ", ".join(sorted(given.keys() - known)):
            scalars = ", ".join(self.problem_type.SCALARS)
            its = f"its scalars are {scalars}" if scalars else "it has no scalars"
            raise UnsupportedProblem(f"{self.name} has no argument {names}; {its}")
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
        """Raise UnsupportedProblem for options that the op lacks, or that are incompatible."""
        self._check_options(problem.options)
        if self.requires is not None:
            self.requires(problem)

    def _check_options(self, options: Options) -> None:
        for name in sorted(options.set_names - {*self.options} - options.IGNORABLE):
            raise self.without_option(name)

    def without_option(self, name: str) -> UnsupportedProblem:
        """Return the error for an option that the op lacks."""
        its = f"its options are {', '.join(self.options)}" if self.options else "it has no options"
        return UnsupportedProblem(f"{self.name} has no option {name}; {its}")

    def unused_scalars(self, problem: Problem) -> Collection[str]:
        """Return the scalars that do not affect this problem."""
        unused: Callable[[Problem], Collection[str]] | None = self.hook("unused_scalars")
        return unused(problem) if unused is not None else ()

    def copied_problem(self, problem: Problem) -> Problem:
        """Return the copy's problem for another op's problem."""
        return problem if self.copied is None else self.copied(problem)


@dataclass(frozen=True)
class Task:
    """An op with one of its problems."""

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
        raise WebnormError(f"the inputs of {problem} do not fit in memory; choose smaller sizes") from error
