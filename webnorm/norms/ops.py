"""What every kernel of an op shares: its tensors, its float64 reference, its least traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from webnorm.errors import WebnormError, check_kind, unknown
from webnorm.norms import reference
from webnorm.norms.problem import DTYPES, FP8, Array, Options, Problem, draw_x, finfo
from webnorm.norms.row_blocks import converted, map_row_blocks, standard_normal

Kind = Literal["data", "parameter", "out", "float32"]
_UNSET = Options()


@dataclass(frozen=True)
class Tensor:
    """One array of an op.

    `per_row` tells (rows, width) from (width,), where `width` None stands for the problem's columns. `kind`
    says which of the problem's dtypes it is stored as. A problem has it where its `option` is set and y is
    stored as one of `out_dtypes`; where these are not named, always.
    """

    name: str
    access: Literal["read", "read_write"]
    per_row: bool
    kind: Kind = "data"
    width: int | None = None
    option: str | None = None
    out_dtypes: tuple[str, ...] = ()

    def dtype(self, problem: Problem) -> str:
        """The name of its storage type."""
        kinds = {"data": problem.dtype, "parameter": problem.weight_dtype, "out": problem.out_dtype}
        return kinds.get(self.kind, "float32")

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Its shape."""
        width = problem.cols if self.width is None else self.width
        return (problem.rows, width) if self.per_row else (width,)

    def present(self, problem: Problem) -> bool:
        """Whether the problem has it."""
        asked = self.option is None or getattr(problem.options, self.option)
        return bool(asked) and (not self.out_dtypes or problem.out_dtype in self.out_dtypes)

    def data_bytes(self, problem: Problem) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape(problem)) * DTYPES[self.dtype(problem)].itemsize


class UnsupportedProblem(WebnormError):
    """A problem that an op does not have."""


@dataclass(frozen=True, repr=False)
class Op:
    """An operation on rows.

    `reference` takes the input arrays by name and the problem and gives an Expected for each output.
    `has_mean` tells LayerNorm from RMSNorm. `defaults` are the options of a problem of this op that says
    nothing. `opening` maps a tensor to the entry point that has to set it before the first pass.
    """

    name: str
    summary: str
    tensors: tuple[Tensor, ...]
    reference: Callable[[Mapping[str, Array], Problem], reference.ExpectedOutputs]
    has_mean: bool = False
    defaults: Options = field(default_factory=Options)
    opening: Mapping[str, str] | None = None
    exact: bool = False

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # There is one op of a name in every process.
        return op_named, (self.name,)

    def present(self, problem: Problem) -> tuple[Tensor, ...]:
        """The tensors that the problem has, in binding order."""
        return tuple(tensor for tensor in self.tensors if tensor.present(problem))

    def outputs(self, problem: Problem) -> tuple[Tensor, ...]:
        """Those that are written, the main one first."""
        return tuple(tensor for tensor in self.present(problem) if tensor.access == "read_write")

    @cached_property
    def named(self) -> Mapping[str, Tensor]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The fields of Options that it looks at: those that bring a tensor, and those on how it computes."""
        found = {tensor.option for tensor in self.tensors}
        if any(tensor.kind == "out" for tensor in self.tensors):
            found.add("out_dtype")
        if not self.exact:
            found |= {"zero_centered_weight", "weight_dtype", "max_workgroups"}
        return tuple(name for name in vars(_UNSET) if name in found)

    @property
    def backward(self) -> bool:
        """Whether this is a gradient."""
        return any(tensor.name == "dy" for tensor in self.tensors)

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that any kernel has to move: every tensor with rows once.

        Weight and bias are left out: they are read once per row but stay in cache; so are their gradients.
        """
        return sum(tensor.data_bytes(problem) for tensor in self.present(problem) if tensor.per_row)

    @property
    def default_eps(self) -> float:
        """What torch takes: 1e-5; for RMSNorm the machine epsilon of the type it computes in.

        That is float32 for all storage types since pytorch #142848; before, it was x's own type.
        """
        if self.name.startswith("rms_norm"):
            return float(finfo("float32").eps)
        return 1e-5

    def problem(
        self,
        rows: int,
        cols: int,
        dtype: str | None = None,
        eps: float | None = None,
        options: Options | None = None,
        **given: Any,
    ) -> Problem:
        """A problem of this op; what is None is the op's own default. `given` are Problem's other fields.

        Raises UnsupportedProblem for what this op does not have, WebnormError for what no op has.
        """
        problem = Problem(
            rows=rows,
            cols=cols,
            dtype="float32" if dtype is None else dtype,
            eps=self.default_eps if eps is None else eps,
            options=self.defaults if options is None else options,
            **given,
        )
        self.check(problem)
        return problem

    def check(self, problem: Problem) -> None:
        """Raise UnsupportedProblem for options that this op lacks, or that do not go together."""
        unset = vars(_UNSET)
        given = {name for name, value in vars(problem.options).items() if value != unset[name]}
        for name in sorted(given - set(self.options) - {"weight", "bias"}):
            takes = f"it has {', '.join(self.options)}" if self.options else "it has none"
            raise UnsupportedProblem(f"{self.name} has no option {name}: {takes}")
        if problem.scale != 1.0 and problem.out_dtype not in FP8 and not self.exact:
            raise UnsupportedProblem(f"scale is {problem.scale}, which needs an out_dtype of float8")
        if problem.options.residual_bias and not problem.options.residual and not self.backward:
            raise UnsupportedProblem("residual_bias is added to x + residual: it needs the option residual")


@dataclass(frozen=True)
class Task:
    """A problem and the op that it is one of."""

    op: Op
    problem: Problem

    def __str__(self) -> str:
        return f"{self.op.name}, {self.problem}"


def as_copy_problem(problem: Problem) -> Problem:
    """The problem as the copy sees it: nothing but rows, columns and dtype."""
    return replace(problem, options=Options(), scale=1.0)


def make_inputs(op: Op, problem: Problem) -> dict[str, Array]:
    """Draw every input that the op reads for this problem, in its storage type.

    Weight is uniform in [0.5, 1.5) (less 1 where it is zero-centred) and bias uniform in [-0.5, 0.5), so that
    a kernel that swaps or drops one of them is wrong by much more than rounding. dy, dh, residual and its
    bias are normal, what is added to x not larger than it; saved statistics are those of x in float64,
    rounded.
    """
    check_kind("op", op, Op)
    check_kind("problem", problem, Problem)
    try:
        rng = np.random.default_rng([problem.seed, 1])
        return complete_inputs(Task(op, problem), {"x": draw_x(problem)}, rng)
    except MemoryError as error:
        raise WebnormError(f"the inputs of {problem} find no room in memory") from error


def complete_inputs(task: Task, given: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """The given arrays, and what else the op reads for this problem, drawn."""
    arrays = dict(given)
    for tensor in task.op.present(task.problem):
        if tensor.access == "read" and tensor.name not in arrays:
            drawn = _draw(tensor, task, arrays, rng)
            arrays[tensor.name] = converted(drawn, DTYPES[tensor.dtype(task.problem)])
    return arrays


def _draw(tensor: Tensor, task: Task, arrays: Mapping[str, Array], rng: np.random.Generator) -> Array:
    shape = tensor.shape(task.problem)
    match tensor.name:
        case "weight":
            return rng.random(shape) + (-0.5 if task.problem.options.zero_centered_weight else 0.5)
        case "bias":
            return rng.random(shape) - 0.5
        case "stats":
            return reference.stats_of(arrays["x"], task.problem.eps, task.op.has_mean)
        case name if name in reference.ADDED:
            return standard_normal(rng, shape) * min(1.0, _largest(arrays["x"]))
        case _:
            return standard_normal(rng, shape)


def _largest(x: Array) -> float:
    """The largest finite |x|; 0 where there is none."""

    def of_rows(part: slice) -> float:
        wide = x[part].astype(np.float64)
        return float(np.max(np.abs(wide), where=np.isfinite(wide), initial=0.0))

    return max(map_row_blocks(of_rows, *x.shape), default=0.0)


_rows = partial(Tensor, per_row=True)
_parameter = partial(Tensor, per_row=False, kind="parameter")
_float32_rows = partial(_rows, kind="float32")


def _norm(name: str, summary: str, has_mean: bool, defaults: Options) -> Op:
    tensors = (
        _rows("x", "read"),
        _rows("residual", "read", option="residual"),
        _parameter("residual_bias", "read", option="residual_bias"),
        _parameter("weight", "read", option="weight"),
        _parameter("bias", "read", option="bias"),
        _rows("y", "read_write", kind="out"),
        _rows("h", "read_write", option="residual"),
        _float32_rows("stats", "read_write", width=_stats_width(has_mean), option="return_stats"),
        _float32_rows("y_scale", "read_write", width=1, out_dtypes=("int8",)),
        Tensor("amax", "read_write", per_row=False, kind="float32", width=2, out_dtypes=FP8),
    )
    computed = partial(reference.forward, has_mean=has_mean)
    return Op(name, summary, tensors, computed, has_mean, defaults, opening={"amax": "open_amax"})


def _gradient(name: str, summary: str, has_mean: bool, defaults: Options) -> Op:
    tensors = (
        _rows("x", "read"),
        _rows("dy", "read"),
        _parameter("weight", "read", option="weight"),
        _float32_rows("stats", "read", width=_stats_width(has_mean), option="saved_stats"),
        _rows("dh", "read", option="dh"),
        _rows("dx", "read_write"),
        _parameter("dweight", "read_write", option="weight"),
        _parameter("dbias", "read_write", option="bias"),
        _parameter("dresidual_bias", "read_write", option="residual_bias"),
    )
    return Op(name, summary, tensors, partial(reference.backward, has_mean=has_mean), has_mean, defaults)


def _stats_width(has_mean: bool) -> int:
    """The mean in two words, and rstd."""
    return 3 if has_mean else 1


def _copy(arrays: Mapping[str, Array], problem: Problem) -> reference.ExpectedOutputs:
    nothing = np.zeros(1)
    return {"y": reference.Expected(converted(arrays["x"], np.float64), nothing, nothing)}


_NO_BIAS = Options(bias=False)

OPS: Mapping[str, Op] = {
    op.name: op
    for op in (
        Op(
            "copy",
            "y = x: the roofline that every other op is measured against.",
            (Tensor("x", "read", per_row=True), Tensor("y", "read_write", per_row=True)),
            _copy,
            exact=True,
        ),
        _norm(
            "layer_norm",
            "y = (x - mean) / sqrt(var + eps) * weight + bias, row by row.",
            has_mean=True,
            defaults=Options(),
        ),
        _gradient(
            "layer_norm_backward",
            "dx, dweight and dbias of layer_norm from x and dy.",
            has_mean=True,
            defaults=Options(saved_stats=True),
        ),
        _norm(
            "rms_norm",
            "y = x / sqrt(mean(x^2) + eps) * weight, row by row.",
            has_mean=False,
            defaults=_NO_BIAS,
        ),
        _gradient(
            "rms_norm_backward",
            "dx and dweight of rms_norm from x and dy.",
            has_mean=False,
            defaults=replace(_NO_BIAS, saved_stats=True),
        ),
    )
}


# What those that compute no norm are, for who asks for a norm.
MEASURES = {name: "only measures what a norm is compared with" for name, op in OPS.items() if op.exact}


def op_named(name: str) -> Op:
    """The op of that name; raises WebnormError without one."""
    if name not in OPS:
        raise unknown("op", name, OPS)
    return OPS[name]
