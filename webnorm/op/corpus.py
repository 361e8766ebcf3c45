"""Cases, which are inputs that problems of an op are made of, and the corpus of `check`: those of all ops,
and one of their own draws where no op has any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.op import Op, Task, UnsupportedProblem, make_inputs
from webnorm.op.registry import OPS, options_of

# What cases are drawn from that are to be the same each time.
_STEADY_SEED = 16
# What of a device is made small, so that the batch is cut: a storage binding, or a dispatch's dimensions.
ForceSplit = Literal["bindings", "dispatches"]


@dataclass(frozen=True)
class Overrides:
    """What takes the place of every case's own options (see Options.changed) and scalars."""

    options: tuple[str, ...] | None = None
    scalars: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, float]:
        """The scalars that are not None."""
        return {name: value for name, value in self.scalars.items() if value is not None}


class Case(ABC):
    """One input of a corpus.

    `name` is what it is called, `source` where it comes from, `shape` its sizes. `narrow` says how the batch
    is to be cut where the device would not need it. A case `for_gpus` is too large for a program on the CPU.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    narrow: ForceSplit | None = None
    for_gpus: bool = False

    @property
    def watched(self) -> bool:
        """Whether races are looked for on it when a whole corpus is tried: that takes another compilation."""
        return False

    @property
    def varies_constants(self) -> bool:
        """Whether kernels run on it with other constants than their default ones, too."""
        return False

    @property
    def shape_text(self) -> str:
        """The sizes and what else describes the case, as text."""
        return "x".join(map(str, self.shape))

    @property
    def must_fail(self) -> str | None:
        """The kernel that cannot be right here in float32."""
        return None

    @abstractmethod
    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of an op; None where it has none."""

    def other_task(self, task: Task, fits: Callable[[Any], bool], numbers: Sequence[int]) -> Task:
        """Return the task for kernels that refuse this one, which is the same where there is none.

        `fits` says whether they take a problem, `numbers` are those of their rules.
        """
        other = task.op.hook("other_problem")
        return task if other is None else Task(task.op, other(task.problem))

    @abstractmethod
    def draw(self, task: Task) -> dict[str, Array]:
        """Return the input arrays of a problem that `problem` gave for its op."""


def problems(
    cases: Sequence[Case], op: Op, dtypes: Sequence[str], overrides: Overrides | None = None
) -> Iterator[tuple[Case, Any]]:
    """Yield every case in every storage type, where there is such a problem of the op."""
    for case in cases:
        for dtype in dtypes:
            problem = case.problem(op, dtype, overrides)
            if problem is not None:
                yield case, problem


@dataclass(frozen=True)
class ArrayCase(Case):
    """A case of the user's own: an array in the place of an op's main input, with plain options."""

    name: str
    source: str
    array: Array
    dtype: str
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.array.shape)

    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of an op; None for another storage type."""
        overrides = overrides or Overrides()
        options = overrides.options
        try:
            problem = op.problem(
                *self.shape,
                dtype=dtype,
                options=type(op.defaults).plain() if options is None else options_of(op, options),
                distribution="given",
                **overrides.given,
            )
        except UnsupportedProblem:
            return None
        return problem if dtype == self.dtype else None

    def draw(self, task: Task) -> dict[str, Array]:
        """Return the array, and what else the op reads."""
        rng = np.random.default_rng([0, *self.name.encode()])
        return task.op.draw(task, {task.op.tensors[0].name: self.array}, rng)


@dataclass(frozen=True)
class DrawnCase(Case):
    """Inputs as an op draws them, for its smallest default sizes."""

    seed: int
    name = "drawn"
    source = "drawn: --seed repeats it"
    shape_text = "small"
    shape = ()

    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of an op; None for options that it lacks."""
        overrides = overrides or Overrides()
        try:
            options = options_of(op, overrides.options or ())
            return op.problem(
                *op.sizes_of({}), dtype=dtype, options=options, seed=self.seed, **overrides.given
            )
        except UnsupportedProblem:
            return None

    def draw(self, task: Task) -> dict[str, Array]:
        """Return what the op draws."""
        return make_inputs(task.op, task.problem)


def whole_corpus(seed: int) -> tuple[Case, ...]:
    """Return the fixed cases of all ops, with draws of this seed, and those that are drawn as a whole."""
    hooks = dict.fromkeys(hook for op in OPS.values() if (hook := op.hook("cases")) is not None)
    found: tuple[Case, ...] = tuple(case for hook in hooks for case in hook(seed))
    return found or (DrawnCase(seed),)


def cases_of(cases: Sequence[Case], ops: Iterable[str]) -> tuple[Case, ...]:
    """Return the cases that have a problem of one of the ops, given by name, in any storage type."""
    kinds = [(OPS[name], dtype) for name in ops for dtype in STORAGE]
    return tuple(case for case in cases if any(case.problem(*kind) is not None for kind in kinds))


def fixed_cases() -> tuple[Case, ...]:
    """Return the cases of all ops that are the same for every seed."""
    hooks = [found for op in OPS.values() if (found := op.hook("fixed_cases")) is not None]
    return tuple({case.name: case for cases in hooks for case in cases}.values())


# Ops of the user's that are worked on at a time.
@lru_cache(maxsize=8)
def steady_cases(op: Op) -> Mapping[str, Case]:
    """Return the cases of an op by name, the same ones each time: the fixed ones of all ops, or, of an op
    that has none of its own, those that it draws.
    """
    draw = op.hook("cases") if op.hook("fixed_cases") is None else None
    return {case.name: case for case in (fixed_cases() if draw is None else draw(_STEADY_SEED))}
