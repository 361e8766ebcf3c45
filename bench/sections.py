"""What a record has: sections of shapes, on which limits, and the goals that they are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webnorm.kernels.traits import BROWSER
from webnorm.norms.ops import OPS, Task
from webnorm.norms.presets import tasks
from webnorm.norms.problem import DTYPES

# Bytes of x, unless the command asks for others: more than the last-level cache of any GPU that is not AMD's
# largest.
X_BYTES = 64 << 20
_COLS = (256, 768, 1024, 2048, 4096, 5120, 8192, 16384)
_ODD = (1023, 4095, 5119)
_LONG = ((64, 65536), (16, 262144))
_SMALL = ((1024, 1024), (256, 1024), (512, 512))
_CPU = ((4096, 256), (1024, 1024), (256, 4096), (64, 16384))
_FORWARD = ("layer_norm", "rms_norm")
_BACKWARD = ("layer_norm_backward", "rms_norm_backward")
# WebGPU's names of the limits that kernels.traits.BROWSER stands for.
_PAGE: Mapping[str, int] = {
    "max-compute-invocations-per-workgroup": BROWSER.max_invocations,
    "max-compute-workgroup-size-x": BROWSER.max_invocations,
    "max-compute-workgroup-size-y": BROWSER.max_invocations,
    "max-compute-workgroup-storage-size": BROWSER.workgroup_storage,
}


@dataclass(frozen=True)
class Goal:
    """What webnorm's own choice is to reach: a share of the best copy in percent, and a ratio of the fastest
    other's time to its own, each None where the section has no such goal.
    """

    percent_of_copy: float | None = None
    ahead: float | None = None

    def __str__(self) -> str:
        words = []
        if self.percent_of_copy is not None:
            words.append(f"{self.percent_of_copy:g} % of the best copy")
        if self.ahead is not None:
            words.append(f"{self.ahead:g} times as fast as the fastest other")
        return " and ".join(words)


@dataclass(frozen=True)
class Section:
    """A part of the record. `shapes` gives rows and columns for the bytes of an element and those of x.

    `alone` measures no contenders. `software` is for software adapters, and only for them.
    """

    title: str
    ops: Sequence[str]
    dtypes: Sequence[str]
    shapes: Callable[[int, int], Sequence[tuple[int, int]]]
    goal: Goal
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False
    software: bool = False

    def tasks(self, x_bytes: int = X_BYTES) -> Iterator[Task]:
        """The problems, x of about `x_bytes` where the section does not name the rows."""
        for op in self.ops:
            options = replace(OPS[op].defaults, **self.options)
            for dtype in self.dtypes:
                shapes = self.shapes(DTYPES[dtype].itemsize, x_bytes)
                yield from tasks(op, shapes, options, dtype=dtype)


def _filling(cols: Sequence[int]) -> Callable[[int, int], Sequence[tuple[int, int]]]:
    """As many rows of each length, in multiples of 64, as make x as large as asked or a little larger."""
    return lambda itemsize, x_bytes: [(-(-x_bytes // (64 * n * itemsize)) * 64, n) for n in cols]


def _given(shapes: Sequence[tuple[int, int]]) -> Callable[[int, int], Sequence[tuple[int, int]]]:
    return lambda itemsize, x_bytes: shapes


_ALL = ("float32", "float16", "bfloat16")
_TWO = ("float32", "float16")

SECTIONS: Mapping[str, Section] = {
    "forward": Section("Forward", _FORWARD, _ALL, _filling(_COLS), Goal(98.0, 0.99)),
    "residual": Section(
        "Forward with a residual",
        _FORWARD,
        _TWO,
        _filling((1024, 4096, 8192)),
        Goal(95.0),
        options={"residual": True},
    ),
    "odd": Section("Rows that no vector divides", _FORWARD, _TWO, _filling(_ODD), Goal(90.0)),
    "backward": Section("Backward", _BACKWARD, _TWO, _filling(_COLS), Goal(90.0, 1.0)),
    "long": Section("Few long rows", (*_FORWARD, *_BACKWARD), _TWO, _given(_LONG), Goal(ahead=1.0)),
    "small": Section("Small problems, forward", _FORWARD, _TWO, _given(_SMALL), Goal(ahead=0.9)),
    "small_backward": Section("Small problems, backward", _BACKWARD, _TWO, _given(_SMALL), Goal(ahead=1.0)),
    "page": Section(
        "Within a page's default limits",
        _FORWARD,
        _TWO,
        _filling([n for n in _COLS if n <= 8192]),
        Goal(95.0),
        limits=_PAGE,
        alone=True,
    ),
    "cpu": Section(
        "On the CPU",
        (*_FORWARD, *_BACKWARD),
        ("float32",),
        _given(_CPU),
        Goal(),
        software=True,
    ),
}
