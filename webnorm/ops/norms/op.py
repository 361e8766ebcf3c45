"""The ops of LayerNorm and RMSNorm: their tensors, their options, and the modules of their hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webnorm.op.blocks import converted, map_row_blocks, standard_normal
from webnorm.op.dtypes import DTYPES, FP8, Array, finfo
from webnorm.op.op import Op, Task, Tensor, ToleranceFactors, UnsupportedProblem
from webnorm.ops.copy.op import row_names
from webnorm.ops.copy.problem import draw_x
from webnorm.ops.norms import reference
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.ops.rows import SUM_TOLERANCE

# A cap that is larger than any dispatch.
_NO_CAP = 2**32
# Smaller results are not compared, since an adapter may flush denormals to zero.
_DENORMAL = 2.0**-126


def complete_inputs(task: Task, given: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return all inputs of the problem: the given arrays, and draws of the others.

    weight is uniform in [0.5, 1.5), less its offset, and bias uniform in [-0.5, 0.5). So a
    kernel that swaps or drops one of them is wrong by much more than rounding. dy, dh, residual and its bias
    are normal. Arrays that are added to x are not larger than x. Saved statistics are the rounded float64
    statistics of x.
    """
    arrays = dict(given)
    if "x" not in arrays:
        arrays["x"] = draw_x(task.problem)
    for tensor in task.op.inputs(task.problem):
        if tensor.name not in arrays:
            drawn = _draw(tensor, task, arrays, rng)
            arrays[tensor.name] = converted(drawn, DTYPES[tensor.dtype(task.problem)])
    return arrays


def _draw(tensor: Tensor, task: Task, arrays: Mapping[str, Array], rng: np.random.Generator) -> Array:
    shape = tensor.shape_in(task.problem)
    match tensor.name:
        case "weight":
            return np.asarray(rng.random(shape) + (0.5 - task.problem.options.offset))
        case "bias":
            return rng.random(shape) - 0.5
        case "stats":
            return reference.stats_of(arrays["x"], task.problem.eps, has_mean(task.op))
        case name if name in reference.ADDED:
            return standard_normal(rng, shape) * min(1.0, _largest(arrays["x"]))
        case _:
            return standard_normal(rng, shape)


def _largest(x: Array) -> float:
    """Return the largest finite |x|; 0 if there is none."""

    def of_rows(part: slice) -> float:
        wide = x[part].astype(np.float64)
        return float(np.max(np.abs(wide), where=np.isfinite(wide), initial=0.0))

    return max(map_row_blocks(of_rows, *x.shape), default=0.0)


def has_mean(op: Op) -> bool:
    """Return True if an op subtracts the mean, as LayerNorm does and RMSNorm does not."""
    return bool(op.constants.get("has_mean"))


def _header_names(problem: NormProblem) -> dict[str, int]:
    """Return names for headers of norms, in addition to sizes, flags and `row_names`.

    `packed` is 1 if elements of an array are narrower than a 32-bit word. `max_workgroups` is larger than any
    dispatch if the problem has no cap.
    """
    options = problem.options
    used = {problem.dtype, problem.input_dtype, problem.out_dtype, problem.weight_dtype}
    return {
        **row_names(problem),
        "input_itemsize": DTYPES[problem.input_dtype].itemsize,
        "out_itemsize": DTYPES[problem.out_dtype].itemsize,
        "weight_itemsize": DTYPES[problem.weight_dtype].itemsize,
        "packed": int(used != {"float32"}),
        "is_float16": int("float16" in used),
        "rounds_before_weight": int(problem.rounds_before_weight),
        "row_scaled": int(problem.out_dtype == "int8" and not options.scale_block),
        "scale_block": options.scale_block,
        "capped": int(options.max_workgroups > 0),
        "has_weight_offset": int(options.offset != 0),
        "max_workgroups": options.max_workgroups or _NO_CAP,
    }


def _template_names(problem: NormProblem) -> dict[str, str | float]:
    return {
        "input_dtype": problem.input_dtype,
        "out_dtype": problem.out_dtype,
        "weight_offset": problem.options.offset,
        "product_dtype": problem.product_dtype,
    }


def _requires(problem: NormProblem, gradient: bool) -> None:
    if problem.scale != 1.0 and problem.out_dtype not in FP8:
        raise UnsupportedProblem(
            f"scale is {problem.scale}; it needs an out_dtype of float8, such as out_dtype=float8_e4m3fn"
        )
    if problem.options.scale_block:
        _requires_of_blocks(problem)
    if problem.options.residual_bias and not problem.options.residual and not gradient:
        raise UnsupportedProblem("residual_bias is added to x + residual: it needs the option residual")
    if problem.options.residual_dtype and not problem.options.residual:
        raise UnsupportedProblem("residual_dtype is the type of residual and h: it needs the option residual")


def _requires_of_blocks(problem: NormProblem) -> None:
    block = problem.options.scale_block
    if problem.out_dtype != "int8":
        raise UnsupportedProblem(f"scale_block is {block}; it needs out_dtype=int8")
    if problem.cols % 4:
        raise UnsupportedProblem(
            f"cols is {problem.cols}; with scale_block, rows need whole words of int8: a multiple of 4"
        )


def _tolerance_of_h(problem: NormProblem) -> ToleranceFactors:
    """Return the tolerance of h.

    The sum of two values of one narrow type is exact in float32, unless they differ much in size, and is
    rounded once.
    """
    alike = problem.input_dtype == problem.dtype != "float32"
    if not alike or problem.options.residual_bias:
        return ToleranceFactors(SUM_TOLERANCE, 0.0, 0.0, 0.0, "two additions in float32")
    return ToleranceFactors(_DENORMAL, 0.0, 0.0, 0.0, "one rounding")


def _joined_stats(stats: Array) -> Array:
    """Return statistics with the sum of the mean's two words.

    The sum is NaN if the second word is too large to be a correction, since other code may use the first word
    alone.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = stats[:, 0].astype(np.float64) + stats[:, 1]
        high, low, rstd = np.abs(stats.astype(np.float64)).T
        mean[low * rstd > reference.LOW_WORD * (high * rstd + 1.0)] = np.nan
    return np.stack([mean, stats[:, 2]], axis=1)


def other_version(task: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs for rows with the other sign. Statistics change the sign of the mean only."""

    def of(name: str, array: Array) -> Array:
        if name == "stats":
            return np.concatenate([-array[:, :-1], array[:, -1:]], axis=1)
        return np.negative(array) if array.ndim == 2 else array

    return {name: of(name, array) for name, array in arrays.items()}


def other_problem(problem: NormProblem) -> NormProblem:
    """Return the problem for kernels that reject a gradient without saved statistics."""
    return replace(problem, options=replace(problem.options, saved_stats=True))


def unused_scalars(problem: NormProblem) -> tuple[str, ...]:
    """Return the scalars that do not affect a problem: `scale` applies to float8 only."""
    return () if problem.out_dtype in FP8 else ("scale",)


_rows = partial(Tensor, shape=("rows", "cols"), batched=True)
_parameter = partial(Tensor, shape=("cols",), storage="weight_dtype")
_ALWAYS = ("zero_centered_weight", "weight_offset", "weight_dtype", "max_workgroups")
_ROOM = "webnorm.ops.norms"
_HOOKS: Mapping[str, Any] = {
    "other_version": other_version,
    "tolerance": f"{_ROOM}.reference:tolerance",
    "cases": f"{_ROOM}.corpus:whole_corpus",
    "fixed_cases": f"{_ROOM}.corpus:CASES",
    "page_numbers": f"{_ROOM}.reference:NUMBERS",
    "lab_options": (
        ("residual",),
        ("return_stats",),
        ("zero_centered_weight",),
        ("weight=false", "bias=false"),
    ),
    "unused_scalars": unused_scalars,
    "export_inputs": "webnorm.ops.copy.problem:export_inputs",
    "evaluation": "webnorm.ops.copy.problem",
    "mistakes": f"{_ROOM}.mistakes:wrong_formulas",
    "diagnosis": f"{_ROOM}.row_statistics:statistics_hints",
    "trace_expectations": f"{_ROOM}.row_statistics",
    "rules": f"{_ROOM}.rules",
    "lessons": Path(__file__).with_name("lessons.toml"),
    "presets": f"{_ROOM}.presets:PRESETS",
}


def _stats(access: Any, with_mean: bool, option: str) -> Tensor:
    """Return the tensor of the statistics: the mean in two words, and rstd."""
    return Tensor(
        "stats",
        access,
        ("rows", 3 if with_mean else 1),
        batched=True,
        storage="float32",
        option=option,
        compared=_joined_stats if with_mean else None,
        holds="the mean in two words whose sum it is, and rstd" if with_mean else "rstd",
        any_non_finite=True,
    )


def _norm(name: str, summary: str, with_mean: bool, starter: str) -> Op:
    tensors = (
        _rows("x", "read"),
        _rows("residual", "read", option="residual", storage="residual_dtype"),
        _parameter("residual_bias", "read", option="residual_bias"),
        _parameter("weight", "read", option="weight"),
        _parameter("bias", "read", option="bias"),
        _rows("y", "read_write", storage="out_dtype"),
        _rows(
            "h",
            "read_write",
            option="residual",
            storage="residual_dtype",
            feeds=True,
            tolerance=_tolerance_of_h,
        ),
        _stats("read_write", with_mean, "return_stats"),
        _rows(
            "y_scale",
            "read_write",
            shape=("rows", "ceil_div(cols, scale_block if scale_block else cols)"),
            storage="float32",
            only_for=("out_dtype", ("int8",)),
        ),
        Tensor(
            "amax",
            "read_write",
            (2,),
            storage="float32",
            only_for=("out_dtype", FP8),
            opening="open_amax",
            holds="of y before it is scaled, and 1 / scale",
        ),
    )
    return _op(name, summary, tensors, with_mean, starter=starter)


def _gradient(name: str, summary: str, with_mean: bool) -> Op:
    tensors = (
        _rows("x", "read"),
        _rows("dy", "read"),
        _parameter("weight", "read", option="weight"),
        _stats("read", with_mean, "saved_stats"),
        _rows("dh", "read", option="dh"),
        _rows("dx", "read_write", any_non_finite=True),
        _parameter("dweight", "read_write", option="weight"),
        _parameter("dbias", "read_write", option="bias"),
        _parameter("dresidual_bias", "read_write", option="residual_bias", any_non_finite=True),
    )
    hooks = {
        "tolerance": f"{_ROOM}.reference:gradient_tolerance",
        "other_problem": other_problem,
        # The forward pass of a page that trains saves no statistics by default.
        "export_options": NormOptions(bias=with_mean),
        "lab_options": (("saved_stats=false",), ("dh",), ("weight=false", "bias=false")),
    }
    return _op(name, summary, tensors, with_mean, gradient=True, hooks=hooks)


def _op(
    name: str,
    summary: str,
    tensors: tuple[Tensor, ...],
    with_mean: bool,
    gradient: bool = False,
    starter: str = "",
    hooks: Mapping[str, Any] | None = None,
) -> Op:
    return Op(
        name,
        summary,
        tensors,
        partial(reference.backward if gradient else reference.forward, has_mean=with_mean),
        NormProblem,
        complete_inputs,
        defaults=NormOptions(bias=with_mean, saved_stats=gradient),
        # The defaults of torch: 1e-5, and for RMSNorm the machine epsilon of the type in which it computes.
        # That is float32 for all storage types since pytorch #142848; before, it was x's own type.
        scalars={"eps": 1e-5 if with_mean else float(finfo("float32").eps)},
        more_options=_ALWAYS if gradient else (*_ALWAYS, "rounding", "scale_block"),
        constants={"has_mean": int(with_mean)},
        gradient=gradient,
        requires=partial(_requires, gradient=gradient),
        header_names=_header_names,
        template_names=_template_names,
        starter=starter,
        hooks={**_HOOKS, **(hooks or {})},
    )


OPS: tuple[Op, ...] = (
    _norm(
        "layer_norm",
        "y = (x - mean) / sqrt(var + eps) * weight + bias, row by row.",
        with_mean=True,
        starter="two_pass",
    ),
    _gradient(
        "layer_norm_backward",
        "dx, dweight and dbias of layer_norm from x and dy.",
        with_mean=True,
    ),
    _norm(
        "rms_norm",
        "y = x / sqrt(mean(x^2) + eps) * weight, row by row.",
        with_mean=False,
        starter="workgroup",
    ),
    _gradient(
        "rms_norm_backward",
        "dx and dweight of rms_norm from x and dy.",
        with_mean=False,
    ),
)
