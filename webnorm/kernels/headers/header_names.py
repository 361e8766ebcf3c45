"""The names that a header's expressions and templates may use."""

from __future__ import annotations

from functools import cache

from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.op.op import Op
from webnorm.op.problem import Problem
from webnorm.op.registry import flag_names

# What `render` hands a template beside the header's names, and those of the op's own.
_TEMPLATE_NAMES = (
    "tensors",
    "buffers",
    "params",
    "float_words",
    "op",
    "dtype",
    "target",
    "features",
    "count_cost",
    "tracing",
    "trace",
)


def header_names(op: Op, problem: Problem, traits: Traits) -> dict[str, int]:
    """Return what a header's expressions may use beside its own axes and derived constants.

    These are the problem's sizes, the op's own names and constants, its options that are flags, and what is
    known of the adapter.
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
        "has_subgroups": int("subgroups" in traits.features),
        "has_f16": int("shader-f16" in traits.features),
    }


@cache
def names_of(op: Op) -> tuple[str, ...]:
    """Return the names that headers of an op may use: the same for all problems and adapters."""
    return tuple(header_names(op, _smallest(op), BROWSER))


@cache
def template_names_of(op: Op) -> tuple[str, ...]:
    """Return the names that templates of an op have beside those of headers."""
    return (*_TEMPLATE_NAMES, *op.template_names(_smallest(op)))


def _smallest(op: Op) -> Problem:
    kind = op.problem_type
    return kind(options=op.defaults, **dict.fromkeys(kind.SIZES, 1))  # type: ignore[arg-type]
