"""The op doubled: y = 2 x, over channels of pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Expected, ExpectedOutputs, Op, Task, Tensor, ToleranceFactors
from webnorm.op.problem import Problem


@dataclass(frozen=True, kw_only=True)
class ImageProblem(Problem):
    """`images` of `channels` channels of `pixels` pixels."""

    images: int
    channels: int
    pixels: int

    SIZES: ClassVar[Mapping[str, int]] = {"images": 1, "channels": 1, "pixels": 1}
    BATCH: ClassVar[str] = "images"
    AXIS: ClassVar[str] = "pixels"
    DISTRIBUTIONS: ClassVar[Mapping[str, Any]] = {
        "normal": lambda rng, p: rng.standard_normal((p.images, p.channels * p.pixels))
    }

    @classmethod
    def default_sizes(cls, software: bool, quick: bool) -> tuple[tuple[int, ...], ...]:
        """Return one small problem."""
        return ((5, 3, 70),)


def _draw(task: Task, given: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    p = task.problem
    x = ImageProblem.DISTRIBUTIONS["normal"](rng, p).astype(DTYPES[p.dtype])
    return {"x": x, **given}


def _reference(arrays: Mapping[str, Array], problem: Any) -> ExpectedOutputs:
    y = 2.0 * arrays["x"].astype(np.float64)
    return {"y": Expected(y, np.abs(y), np.zeros(1))}


def _tolerance(terms: Any, problem: Any) -> ToleranceFactors:
    return ToleranceFactors(2.0**-22, 0.0, 0.0, 0.0, "one product")


OPS = (
    Op(
        "doubled",
        "y = 2 x.",
        (
            Tensor("x", "read", ("images", "channels * pixels"), batched=True),
            Tensor("y", "read_write", ("images", "channels * pixels"), batched=True),
        ),
        _reference,
        ImageProblem,
        _draw,
        hooks={"tolerance": _tolerance, "other_version": lambda task, arrays: {"x": -arrays["x"]}},
    ),
)
