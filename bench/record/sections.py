"""The sections of a record: their shapes, device limits and goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from webnorm.kernels.headers.traits import BROWSER
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS
from webnorm.ops.norms.measured import measured_cols

# The default bytes of x. They exceed the last-level cache of all GPUs except AMD's largest.
X_BYTES = 64 << 20
_COLS = (256, 768, 1024, 2048, 4096, 5120, 8192, 16384)
_ODD = (1023, 4095, 5119)
_LONG = ((8, 131072), (32, 131072), (64, 65536), (16, 262144), (256, 32768))
_SMALL = ((1024, 1024), (512, 1024), (256, 1024), (512, 512), (128, 768))
_CPU = ((4096, 256), (1024, 1024), (256, 4096), (64, 16384))
# The default seed of the drawn columns.
HELD_OUT_SEED = 20261126
_FORWARD = ("layer_norm", "rms_norm")
_BACKWARD = ("layer_norm_backward", "rms_norm_backward")
# WebGPU's names of the limits in kernels.headers.traits.BROWSER.
_PAGE: Mapping[str, int] = {
    "max-compute-invocations-per-workgroup": BROWSER.max_invocations,
    "max-compute-workgroup-size-x": BROWSER.max_invocations,
    "max-compute-workgroup-size-y": BROWSER.max_invocations,
    "max-compute-workgroup-storage-size": BROWSER.workgroup_storage,
}


@dataclass(frozen=True)
class Goal:
    """A goal for webnorm's own choice; a part is None if there is no such goal.

    `percent_of_copy` is the speed in percent of the best copy. `ahead` is the ratio of the fastest other's
    time to webnorm's. `of_tuned` is the speed in percent of the fastest variant that tuning found. `cols` is
    the largest number of columns to which the goal applies.
    """

    percent_of_copy: float | None = None
    ahead: float | None = None
    of_tuned: float | None = None
    cols: int | None = None

    def __str__(self) -> str:
        words = []
        if self.percent_of_copy is not None:
            words.append(f"{self.percent_of_copy:g} % of the best copy")
        if self.ahead is not None:
            words.append(f"{self.ahead:g} times as fast as the fastest other")
        if self.of_tuned is not None:
            words.append(f"{self.of_tuned:g} % of the tuned best")
        *but_last, last = words or [""]
        together = f"{', '.join(but_last)} and {last}" if but_last else last
        return f"up to {self.cols} columns {together}" if self.cols else together


# Returns a section's rows and columns, given the bytes of an element, the bytes of x, and a seed.
Shapes = Callable[[int, int, int], Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Section:
    """A part of the record. `goals` are in the order of their columns; beyond the last one there is no goal.

    `alone` measures no contenders. `software` sections run only on software adapters. `drawn` sections have
    randomly drawn columns, and are compared with the results of tuning.
    """

    title: str
    ops: Sequence[str]
    dtypes: Sequence[str]
    shapes: Shapes
    goals: Sequence[Goal] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False
    software: bool = False
    drawn: bool = False

    def tasks(self, x_bytes: int = X_BYTES, seed: int = HELD_OUT_SEED) -> Iterator[Task]:
        """Yield the problems; x has about `x_bytes` unless the section sets the rows."""
        for op in self.ops:
            options = replace(OPS[op].defaults, **self.options)
            for dtype in self.dtypes:
                shapes = self.shapes(DTYPES[dtype].itemsize, x_bytes, seed)
                yield from tasks(op, shapes, options, dtype=dtype)

    def goal(self, cols: int) -> Goal:
        """Return the goal of a problem with this number of columns."""
        return next((goal for goal in self.goals if goal.cols is None or cols <= goal.cols), Goal())


def filling(cols: Sequence[int], itemsize: int, x_bytes: int) -> list[tuple[int, int]]:
    """Return rows and columns with at least `x_bytes` of x; rows are multiples of 64."""
    return [(-(-x_bytes // (64 * n * itemsize)) * 64, n) for n in cols]


def _filling(cols: Sequence[int]) -> Shapes:
    return lambda itemsize, x_bytes, seed: filling(cols, itemsize, x_bytes)


def _given(shapes: Sequence[tuple[int, int]]) -> Shapes:
    return lambda itemsize, x_bytes, seed: shapes


def _held_out(*ranges: tuple[int, int, int, int]) -> Shapes:
    """Return shapes with columns drawn from each range; each range starts with its count."""
    return lambda itemsize, x_bytes, seed: filling(
        [n for one in ranges for n in drawn_cols(seed, *one)], itemsize, x_bytes
    )


def drawn_cols(seed: int, count: int, least: int, most: int, step: int) -> list[int]:
    """Draw `count` different columns: `least` plus multiples of `step`, uniform in the logarithm.

    Columns of the data behind webnorm's choice are excluded.
    """
    rng = np.random.default_rng([seed, least, most, step])
    found: set[int] = set()
    while len(found) < count:
        drawn = math.exp(rng.uniform(math.log(least), math.log(most)))
        found |= {least + int((drawn - least) / step) * step} - measured_cols()
    return sorted(found)


_ALL = ("float32", "float16", "bfloat16")
_TWO = ("float32", "float16")
# Percent of the tuned best. A lower value means that the choice needs work.
_TUNED = 97.0
_FORWARD_GOALS = (Goal(97.0, 0.99, _TUNED, cols=16384), Goal(95.0, None, _TUNED, cols=32768))
_BACKWARD_GOALS = (Goal(92.0, 1.0, _TUNED, cols=8192), Goal(88.0, 1.0, _TUNED, cols=16384))
_ODD_GOALS = (Goal(93.0, None, _TUNED),)
# Multiples of eight, wide rows that exceed a workgroup's registers, and odd columns.
_EIGHTS, _WIDE, _ODDS = (6, 256, 16384, 8), (2, 16392, 32768, 8), (2, 257, 8191, 2)

SECTIONS: Mapping[str, Section] = {
    "forward": Section("Forward", _FORWARD, _ALL, _filling((*_COLS, 32768)), _FORWARD_GOALS),
    "residual": Section(
        "Forward with a residual",
        _FORWARD,
        _TWO,
        _filling((1024, 4096, 8192)),
        (Goal(95.0),),
        options={"residual": True},
    ),
    "odd": Section("Rows that no vector divides", _FORWARD, _TWO, _filling(_ODD), _ODD_GOALS),
    "backward": Section("Backward", _BACKWARD, _ALL, _filling(_COLS), _BACKWARD_GOALS),
    "long": Section(
        "Few long rows", (*_FORWARD, *_BACKWARD), _TWO, _given(_LONG), (Goal(None, 1.0, _TUNED),)
    ),
    "small": Section("Small problems, forward", _FORWARD, _TWO, _given(_SMALL), (Goal(None, 0.95, _TUNED),)),
    "small_backward": Section(
        "Small problems, backward", _BACKWARD, _TWO, _given(_SMALL), (Goal(None, 1.0, _TUNED),)
    ),
    "held_out": Section(
        "Held out, forward", _FORWARD, _ALL, _held_out(_EIGHTS, _WIDE), _FORWARD_GOALS, drawn=True
    ),
    "held_out_odd": Section("Held out, odd", _FORWARD, _TWO, _held_out(_ODDS), _ODD_GOALS, drawn=True),
    "held_out_backward": Section(
        "Held out, backward", _BACKWARD, _ALL, _held_out(_EIGHTS), _BACKWARD_GOALS, drawn=True
    ),
    "page": Section(
        "Within a page's default limits",
        _FORWARD,
        _TWO,
        _filling([n for n in _COLS if n <= 8192]),
        (Goal(95.0),),
        limits=_PAGE,
        alone=True,
    ),
    "cpu": Section("On the CPU", (*_FORWARD, *_BACKWARD), ("float32",), _given(_CPU), software=True),
}
