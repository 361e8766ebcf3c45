"""Expected outputs in float64, with the sizes that errors scale with, and the factors of a tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from webnorm.op.dtypes import Array

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """One output in float64, before it is rounded to its storage type, with the sizes that errors scale with.

    A float32 computation may be off by its tolerance times `error_scale`: the size of what was added up to
    make the element. A mean that was rounded to float32 adds its relative error times `mean_error_scale`. For
    a sum over the batch, `abs_sum` is the sum of the absolute terms. All broadcast to `value`.
    """

    value: Float64Array
    error_scale: Array
    mean_error_scale: Array
    abs_sum: Array | None = None


ExpectedOutputs = dict[str, Expected]


@dataclass(frozen=True)
class ToleranceFactors:
    """Allowed error of an element: base * error_scale + slope * mean_error_scale + adding * abs_sum (see
    Expected).

    `equal_share` of a rounded output's elements must be equal to the rounded answer. `reason` says in a
    sentence where the numbers come from. `best` is the base that the best kernels of the op are held to.
    """

    base: float
    slope: float
    adding: float
    equal_share: float
    reason: str
    best: float = 0.0
