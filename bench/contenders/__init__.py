"""What webnorm is measured beside: other implementations of its ops, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.norms.ops import OPS, Op, Task
from webnorm.norms.problem import Array, finfo
from webnorm.norms.reference import Answers

# Output tensors by webnorm's names from input tensors by webnorm's names, of whatever type a library has.
Compute = Callable[[Mapping[str, Any]], Mapping[str, Any]]

# In the order of a table's columns.
COPIES = ("torch copy", "NumPy copy")
NAMES = (
    *COPIES,
    "torch eager",
    "torch.compile",
    "Triton",
    "Liger",
    "NumPy",
    "ONNX Runtime",
)

# Rows that a contender's outputs are compared on: what it computes is not ours to prove, a wrong eps or a
# dropped bias shows in any row.
_ROWS = 64
# Beside the storage type's rounding: float32 sums in whatever order a library likes.
_TOLERANCE = 1e-5
# Roundings to the storage type that a library may put between x and y.
_ROUNDINGS = 4.0


@dataclass(frozen=True)
class Contender:
    """An implementation of a task's op, or of the copy, or the reason why there is none."""

    name: str
    compute: Compute | None = None
    absent: str | None = None
    copies: bool = False

    def op(self, task: Task) -> Op:
        """What it computes."""
        return OPS["copy"] if self.copies else task.op


def beyond_plain(task: Task) -> str | None:
    """Why a contender that was written down for plain float32 does not compute a task; None where it does."""
    if task.problem.dtype != "float32" or task.problem.options.residual:
        return "written down here for float32 without a residual"
    return None


def found_wrong(outputs: Mapping[str, Array], answers: Answers, dtype: str) -> tuple[float, str | None]:
    """The largest error of any output, and what is wrong with it, or None.

    Answers may stop short of the outputs' last rows. `outputs` are compared on up to 64 rows that lie evenly
    among those; a vector (a sum over rows) is compared whole. The bound is looser than webnorm's own: four
    roundings to `dtype` and 1e-5, of what was added up.
    """
    largest = 0.0
    allowed = _TOLERANCE + _ROUNDINGS * float(finfo(dtype).eps)
    for name, answer in answers.items():
        if name not in outputs:
            return largest, f"gives no {name}"
        value = answer.value
        step = 1 if value.ndim == 1 else max(1, len(value) // _ROWS)
        value, unit = value[::step], np.broadcast_to(answer.unit, value.shape)[::step]
        got = outputs[name][: len(answer.value)]
        error = np.abs(got[::step].astype(np.float64) - value)
        limit = allowed * (unit + np.abs(value))
        if answer.summed is not None:
            limit = limit + _TOLERANCE * answer.summed
        # The comparison is the one that NaN cannot pass.
        if not bool(np.all(error <= limit)):
            return float(np.max(error)), f"{name} is off by up to {np.max(error):.2g}"
        largest = max(largest, float(np.max(error, initial=0.0)))
    return largest, None
