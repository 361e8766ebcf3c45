"""The names that a header's expressions and templates may use."""

from __future__ import annotations

from dataclasses import fields

from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.norms.ops import OPS, Op
from webnorm.norms.problem import DTYPES, Options, Problem

# What `render` hands a template beside the header's names.
TEMPLATE_NAMES = (
    "tensors",
    "buffers",
    "params",
    "op",
    "dtype",
    "out_dtype",
    "target",
    "features",
    "count_cost",
    "tracing",
    "trace",
)


# Larger than any dispatch.
_NO_CAP = 2**32


_TENSORS = {tensor.name for op in OPS.values() for tensor in op.tensors}
# Flags among the options by their names here: one that is named for a tensor says whether there is one.
_FLAGS = {
    f"has_{option.name}" if option.name in _TENSORS else option.name: option.name
    for option in fields(Options)
    if isinstance(option.default, bool)
}


def header_names(op: Op, problem: Problem, traits: Traits) -> dict[str, int]:
    """What a header's expressions may use beside its own axes and derived constants.

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
        **{name: int(getattr(options, option)) for name, option in _FLAGS.items()},
        "capped": int(options.max_workgroups > 0),
        "max_workgroups": options.max_workgroups or _NO_CAP,
        "has_mean": int(op.has_mean),
        "max_invocations": traits.max_invocations,
        "workgroup_storage": traits.workgroup_storage,
        "software": int(traits.software),
        "has_subgroups": int("subgroups" in traits.features),
        "has_f16": int("shader-f16" in traits.features),
    }


# They are the same for all ops, problems and adapters.
HEADER_NAMES = tuple(header_names(OPS["copy"], Problem(rows=1, cols=1), BROWSER))
