"""Cases of a corpus: inputs with a source, which an op makes problems of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task

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


class Case(Protocol):
    """One input of a corpus.

    `narrow` says how the batch is to be cut where the device would not need it. A case `for_gpus` is too
    large for a program on the CPU. `must_fail` names the kernel that cannot be right here in float32.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def source(self) -> str:
        """Where it comes from."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def shape_text(self) -> str:
        """The sizes and what else tells of the case, as text."""

    @property
    def narrow(self) -> ForceSplit | None:
        """See above."""

    @property
    def must_fail(self) -> str | None:
        """See above."""

    @property
    def for_gpus(self) -> bool:
        """See above."""

    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of an op; None where it has none."""

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
