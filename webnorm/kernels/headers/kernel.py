"""Kernels: template files with a header that says what they are and which constants they admit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from webnorm.errors import WebnormError, one_line
from webnorm.kernels.headers import expression
from webnorm.kernels.headers.expression import Tree
from webnorm.norms.ops import Op

Per = Literal["rows", "call"]


@dataclass(frozen=True)
class Requirement:
    """A rule that a variant has to meet, and the reason a reader is told when it does not."""

    rule: Tree
    why: str


@dataclass(frozen=True)
class KernelPass:
    """One dispatch. With `per` "rows" it is repeated for each slice of the rows and `workgroup_count` counts
    workgroups for one slice; with "call" it runs once. `bindings` names the tensors and scratch buffers it
    uses, None all of them. A pass whose `when` is 0 is left out. `iterations` counts those of an invocation's
    loops, where they depend on the rows.
    """

    entry_point: str
    workgroup_size: Tree
    workgroup_count: Tree
    per: Per = "rows"
    bindings: tuple[str, ...] | None = None
    when: Tree = 1
    iterations: Tree = 0


@dataclass(frozen=True)
class ScratchBuffer:
    """A float32 buffer between passes: `records` of `words` floats, which every slice of the rows adds to.

    `per_row` tells a buffer whose records are the rows.
    """

    name: str
    per_row: bool
    records: Tree
    words: Tree


@dataclass(frozen=True)
class AccuracyRules:
    """What the tolerance depends on: float32 terms added one after another into one accumulator, of a row
    and of a column, and whether the mean is rounded to float32 before x - mean (no hi/lo mean): 1, or more
    where roundings add up.
    """

    serial_terms: Tree
    column_terms: Tree
    rounded_mean: Tree


@dataclass(frozen=True, repr=False)
class Kernel:
    """One template file. `rung` orders the ladder: higher means later and usually faster.

    Of the kernels that can run a problem on an adapter, the one of the highest `preference` is chosen where
    nobody named one.
    """

    op: Op
    name: str
    path: Path
    summary: str
    differs: str
    rung: int
    preference: Tree
    unstable: str | None
    features: Mapping[str, Tree]
    tune: Mapping[str, tuple[int, ...]]
    default: Mapping[str, Tree]
    derive: Mapping[str, Tree]
    require: tuple[Requirement, ...]
    passes: tuple[KernelPass, ...]
    scratch: tuple[ScratchBuffer, ...]
    accuracy: AccuracyRules

    def __repr__(self) -> str:
        return f"<Kernel {one_line(self.label)} of {one_line(str(self.path))}>"

    @property
    def label(self) -> str:
        """The kernel as a person names it: `op/kernel`, or just the op when both are the same."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"

    @property
    def compiles_rows_in(self) -> bool:
        """Whether anything but a count of workgroups or records depends on the rows."""
        trees = [*self.derive.values(), *self.features.values(), *(scratch.words for scratch in self.scratch)]
        trees += [tree for each in self.passes for tree in (each.workgroup_size, each.when)]
        return any("rows" in expression.names(tree) for tree in trees)

    @property
    def takes_slices(self) -> bool:
        """Whether rows can be cut where they do not fit a binding: no pass of the whole call reads or writes
        rows.
        """
        rows = {tensor.name for tensor in self.op.tensors if tensor.per_row}
        whole = (each for each in self.passes if each.per == "call")
        return all(each.bindings is not None and rows.isdisjoint(each.bindings) for each in whole)

    def mistake(self, what: str, message: object) -> WebnormError:
        """The error for what a part of the header comes to."""
        return WebnormError(f"{self.path}: {what}: {message}")

    def value(
        self, what: str, tree: Tree, values: Mapping[str, int], least: int = -expression.LARGEST
    ) -> int:
        """What an expression of the header comes to; raises WebnormError that names the header and `what`,
        for less than `least` too.
        """
        try:
            value = expression.evaluate(tree, values)
        except WebnormError as error:
            raise self.mistake(what, error) from error
        if value < least:
            raise self.mistake(what, f"{expression.shown(tree)} is {value}; expected {least} or more")
        return value
