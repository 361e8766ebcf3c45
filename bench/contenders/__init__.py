"""The contenders: other implementations of webnorm's ops, on the same arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webnorm.errors import sentence
from webnorm.op.dtypes import Array, finfo
from webnorm.op.op import Expected, ExpectedOutputs, Op, Task
from webnorm.op.registry import OPS

# Tensors by webnorm's names, of the library's own type.
Tensors = Mapping[str, Any]
# A function that computes outputs from inputs.
Compute = Callable[[Tensors], Tensors]

# The contenders, in the order of a table's columns.
COPIES = ("torch copy", "NumPy copy")
NAMES = (
    *COPIES,
    "torch eager",
    "torch.compile",
    "torch.compile max-autotune",
    "Triton",
    "Liger",
    "QuACK",
    "JAX",
    "NumPy",
    "ONNX Runtime",
)

# Rows on which a contender's outputs are checked. A wrong eps or a missing bias shows in any row.
_ROWS = 64
# Allowed in addition to the storage type's rounding, because libraries sum float32 in any order.
_TOLERANCE = 1e-5
# Roundings to the storage type that a library may put between x and y.
_ROUNDINGS = 4.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Contender:
    """An implementation of a task's op or of the copy, or the reason why it is absent.

    `adapt` converts a set of inputs to the form that the library requires, before anything is timed.
    """

    name: str
    compute: Compute | None = None
    absent: str | None = None
    copies: bool = False
    adapt: Callable[[Tensors], Tensors] | None = None

    def op(self, task: Task) -> Op:
        """Return the op that the contender computes."""
        return OPS["copy"] if self.copies else task.op


def beyond_plain(task: Task) -> str | None:
    """Return why a float32 implementation without a residual cannot compute a task, or None."""
    if task.problem.dtype != "float32" or task.problem.options.residual:
        return "implemented here for float32 without a residual"
    return None


def said(error: Exception) -> str:
    """Return a library's exception in one line, without colours."""
    first_line = _COLOURS.sub("", str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {sentence(first_line)}"


def some_rows(answers: ExpectedOutputs) -> tuple[ExpectedOutputs, slice]:
    """Return the answers of up to 64 evenly spaced rows, and these rows; sums over rows stay whole.

    Answers may not include a problem's last rows.
    """
    lengths = [len(answer.value) for answer in answers.values() if answer.value.ndim > 1]
    rows = slice(0, min(lengths), max(1, min(lengths) // _ROWS))

    def few(answer: Expected) -> Expected:
        if answer.value.ndim == 1:
            return answer
        unit = np.broadcast_to(answer.error_scale, answer.value.shape)
        return replace(answer, value=answer.value[rows], error_scale=unit[rows])

    return {name: few(answer) for name, answer in answers.items()}, rows


def found_wrong(
    outputs: Mapping[str, Array], answers: ExpectedOutputs, dtype: str, least_scale: float = 0.0
) -> tuple[float, str | None]:
    """Return the largest error of any output, and the reason if an output is wrong, or None.

    The bound is looser than webnorm's own: four roundings to `dtype`, plus 1e-5 of the summed magnitudes. The
    scale of an element's error is at least `least_scale`.
    """
    largest = 0.0
    allowed = _TOLERANCE + _ROUNDINGS * float(finfo(dtype).eps)
    for name, answer in answers.items():
        if name not in outputs:
            return largest, f"the output {name} is missing"
        got, value = outputs[name], answer.value
        if got.shape != value.shape:
            return largest, f"{name} has the shape {got.shape}; expected {value.shape}"
        error = np.abs(got.astype(np.float64) - value)
        limit = allowed * (np.maximum(answer.error_scale, least_scale) + np.abs(value))
        if answer.abs_sum is not None:
            limit = limit + _TOLERANCE * answer.abs_sum
        # NaN fails this form of the comparison.
        if not bool(np.all(error <= limit)):
            return float(np.max(error)), f"{name} is off by up to {np.max(error):.2g}"
        largest = max(largest, float(np.max(error, initial=0.0)))
    return largest, None
