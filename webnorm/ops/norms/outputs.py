"""What calls give, and their arguments that do not decide it: for type checkers, an array is of x's kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

import numpy as np

from webnorm.calls.arrays import GpuArray
from webnorm.calls.call import AnyArray
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op.dtypes import Array
from webnorm.op.op import Op
from webnorm.ops.norms.op import has_mean

# Of which kind x is; what a call gives is of the same.
A = TypeVar("A", Array, GpuArray)
# What y can be stored as by itself, and what has a scale beside it.
Plain = Literal["float32", "float16", "bfloat16"]
Scaled = Literal["float8_e4m3fn", "float8_e5m2", "int8"]
# One of these names, or what NumPy makes a dtype of; None for x's.
DtypeLike = str | np.dtype[Any] | type[Any] | None


class ForwardArguments(TypedDict, total=False):
    """Arguments of the forward functions that change no kind of result."""

    residual_bias: AnyArray | None
    zero_centered_weight: bool
    scale: float
    max_workgroups: int
    kernel: str | Path | None
    device: Device | None


class BackwardArguments(TypedDict, total=False):
    """The same of the gradients."""

    stats: AnyArray | None
    dh: AnyArray | None
    zero_centered_weight: bool
    max_workgroups: int
    kernel: str | Path | None
    device: Device | None


@dataclass(frozen=True)
class NormOutput(Generic[A]):
    """What a forward pass gives beside y; None for what was not asked for.

    `leading` below are x's dimensions before the normalised ones. All are NumPy arrays, or GpuArrays where x
    is one.

    Attributes:
        y: the normalised array, of x's shape.
        h: x + residual + residual_bias, of x's shape and dtype: what was normalised, and what the next
            residual connection takes.
        stats: float32 of shape (*leading, 3): mean, mean_low and rstd of every row; for RMSNorm
            (*leading, 1), rstd alone. The backward pass takes them as they are.
        y_scale: float32 of shape `leading`, with an int8 y: y * y_scale[..., None] is about the norm.
        amax: float32 of shape (1,), with a float8 y: the largest |y| before `scale` was applied.
        scale_inv: float32 of shape (1,), with a float8 y: 1 / scale, so that y * scale_inv is about the norm.
    """

    y: A
    h: A | None = None
    stats: A | None = None
    y_scale: A | None = None
    amax: A | None = None
    scale_inv: A | None = None

    @property
    def mean(self) -> Array | None:
        """The rows' means rounded to float32, of shape `leading`; None without stats, and for RMSNorm."""
        return self._statistic(-3)

    @property
    def mean_low(self) -> Array | None:
        """What the means lost in rounding: mean + mean_low has twice float32's digits."""
        return self._statistic(-2)

    @property
    def rstd(self) -> Array | None:
        """1 / sqrt(var + eps) of the rows, of shape `leading`; None without stats."""
        return self._statistic(-1)

    def _statistic(self, place: int) -> Array | None:
        if self.stats is None or self.stats.shape[-1] < -place:
            return None
        if isinstance(self.stats, GpuArray):
            raise WebnormError("the statistics are on the device; expected stats.numpy() to bring them here")
        return self.stats[..., place]


def forward_result(found: dict[str, Any]) -> Any:
    """What a forward function gives, from its op's outputs by name: y, or a NormOutput of several."""
    if len(found) == 1:
        return found["y"]
    if "y_scale" in found:
        one = found["y_scale"]
        found["y_scale"] = one.reshape(one.shape[:-1]) if isinstance(one, GpuArray) else one[..., 0]
    if "amax" in found:
        both = found["amax"]
        parts = both.split((1, 1)) if isinstance(both, GpuArray) else (both[:1], both[1:])
        found["amax"], found["scale_inv"] = parts
    return NormOutput(**found)


def backward_result(op: Op, found: dict[str, Any]) -> tuple[Any, ...]:
    """What a gradient gives, from its op's outputs by name: torch's have a place, None where not asked for,
    and the others follow.
    """
    always = ("dx", "dweight", "dbias") if has_mean(op) else ("dx", "dweight")
    return (*map(found.get, always), *(array for name, array in found.items() if name not in always))
