"""Cases, which are inputs for problems of an op, and the corpus of `check`: the cases of all ops.

The corpus contains a drawn case if no op has cases.
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

# The seed of cases that must be the same in every process.
_STEADY_SEED = 16
# The device limit that is lowered so that the batch is cut: a storage binding's size, or a dispatch's size.
ForceSplit = Literal["bindings", "dispatches"]


@dataclass(frozen=True)
class Overrides:
    """Replacements for every case's own options (see Options.changed) and scalars."""

    options: tuple[str, ...] | None = None
    scalars: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, float]:
        """The scalars that are not None."""
        return {name: value for name, value in self.scalars.items() if value is not None}


class Case(ABC):
    """One input of a corpus.

    Attributes
    ----------
    name
        The name of the case.
    source
        The origin of the case.
    shape
        The sizes.
    narrow
        "bindings" cuts the batch into slices, and "dispatches" dispatches three or more workgroups in two
        dimensions, although the device does not require it. The grid stays as it is if the header gives each
        direction, or plain WGSL reads no built-in value that counts in such grids.
    for_gpus
        True for a case that is too large for a software adapter.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    narrow: ForceSplit | None = None
    for_gpus: bool = False

    @property
    def watched(self) -> bool:
        """True if checks of a whole corpus look for races on the case, which takes another compilation."""
        return False

    @property
    def varies_constants(self) -> bool:
        """True if kernels also run on the case with constants other than their defaults."""
        return False

    @property
    def shape_text(self) -> str:
        """The sizes, and other properties of the case, as text."""
        return "x".join(map(str, self.shape))

    @property
    def must_fail(self) -> str | None:
        """The kernel that cannot be right on the case in float32, if there is one."""
        return None

    @abstractmethod
    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of an op; None if the op cannot compute it."""

    def other_task(self, task: Task, fits: Callable[[Any], bool], numbers: Sequence[int]) -> Task:
        """Return a task for kernels that reject this one; the same task if there is no other.

        Parameters
        ----------
        task
            The task that the case gave.
        fits
            A function that returns True for a problem that the kernels accept.
        numbers
            The numbers in the rules of the kernels.
        """
        other = task.op.hook("other_problem")
        return task if other is None else Task(task.op, other(task.problem))

    @abstractmethod
    def draw(self, task: Task) -> dict[str, Array]:
        """Return the input arrays of a task whose problem came from `problem`."""


def problems(
    cases: Sequence[Case], op: Op, dtypes: Sequence[str], overrides: Overrides | None = None
) -> Iterator[tuple[Case, Any]]:
    """Yield every case with its problem of the op, in every storage type in which it has one."""
    for case in cases:
        for dtype in dtypes:
            problem = case.problem(op, dtype, overrides)
            if problem is not None:
                yield case, problem


@dataclass(frozen=True)
class ArrayCase(Case):
    """A user's array as a case: it replaces an op's main input, with plain options."""

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
        """Return the array, and draws of the other inputs."""
        rng = np.random.default_rng([0, *self.name.encode()])
        return task.op.draw(task, {task.op.tensors[0].name: self.array}, rng)


@dataclass(frozen=True)
class DrawnCase(Case):
    """Inputs that an op draws, for its smallest default sizes."""

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
        """Return the arrays that the op draws."""
        return make_inputs(task.op, task.problem)


def whole_corpus(seed: int, ops: Iterable[str] = ()) -> tuple[Case, ...]:
    """Return the cases with draws of this seed: of all ops but the packaged ones that are not in `ops`.

    The cases of a packaged op take a tenth of a second, and are of no use to other ops.
    """
    named = {*ops}
    selected = [op for op in OPS.values() if op.source is None or op.is_users or op.name in named]
    hooks = dict.fromkeys(hook for op in selected if (hook := op.hook("cases")) is not None)
    found: tuple[Case, ...] = tuple(case for hook in hooks for case in hook(seed))
    return found or (DrawnCase(seed),)


def cases_of(cases: Sequence[Case], ops: Iterable[str]) -> tuple[Case, ...]:
    """Return the cases that have a problem of one of the named ops, in any storage type."""
    kinds = [(OPS[name], dtype) for name in ops for dtype in STORAGE]
    return tuple(case for case in cases if any(case.problem(*kind) is not None for kind in kinds))


def fixed_cases() -> tuple[Case, ...]:
    """Return the cases of all ops that do not depend on the seed."""
    hooks = [found for op in OPS.values() if (found := op.hook("fixed_cases")) is not None]
    return tuple({case.name: case for cases in hooks for case in cases}.values())


# The number of user ops that are edited at the same time.
@lru_cache(maxsize=8)
def steady_cases(op: Op) -> Mapping[str, Case]:
    """Return the cases of an op by name, the same ones in every call.

    These are the fixed cases of all ops, or the op's drawn cases if it has no fixed ones.
    """
    draw = op.hook("cases") if op.hook("fixed_cases") is None else None
    return {case.name: case for case in (fixed_cases() if draw is None else draw(_STEADY_SEED))}
