"""Kernels: template files with a header that describes them and their tunable constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from webnorm.errors import WebnormError, one_line
from webnorm.kernels.headers.plain import PlainText
from webnorm.op import expression
from webnorm.op.expression import Tree
from webnorm.op.fitting_problem import sizes_in
from webnorm.op.op import Op

Per = Literal["slice", "call"]


@dataclass(frozen=True)
class Requirement:
    """A rule that a variant has to meet, and the reason to show if it does not."""

    rule: Tree
    why: str


@dataclass(frozen=True)
class KernelPass:
    """One dispatch of a kernel.

    Attributes
    ----------
    per
        "slice" repeats the pass for each slice of the batch; "call" runs it once.
    workgroup_count
        The workgroups of one slice, or of the call.
    bindings
        The names of the tensors and scratch buffers it uses; None for all of them.
    when
        A pass whose `when` is 0 is left out.
    iterations
        The iterations of an invocation's loops, if they depend on the batch.
    grid
        The workgroups in each direction; empty if the plan chooses them.
    """

    entry_point: str
    workgroup_size: Tree
    workgroup_count: Tree
    per: Per = "slice"
    bindings: tuple[str, ...] | None = None
    when: Tree = 1
    iterations: Tree = 0
    grid: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class ScratchBuffer:
    """A float32 buffer between passes with `records` of `words` floats, to which all slices add.

    A `batched` buffer has a record for each element of the batch.
    """

    name: str
    batched: bool
    records: Tree
    words: Tree


@dataclass(frozen=True)
class AccuracyRules:
    """The properties of a kernel that its tolerance depends on (see HeaderTerms).

    `serial_terms` and `column_terms` count the float32 terms added one by one into one accumulator, for an
    element of the batch and for a sum over the batch. `rounded_mean` counts the roundings of a mean to
    float32.
    """

    serial_terms: Tree
    column_terms: Tree
    rounded_mean: Tree


@dataclass(frozen=True, repr=False)
class Kernel:
    """One template file. `rung` orders the ladder: a higher rung comes later and is usually faster.

    If the user names no kernel, webnorm chooses the one with the highest `preference` that can run the
    problem on the adapter.
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
    # Set for a file with plain WGSL instead of a template.
    plain: PlainText | None = None

    def __repr__(self) -> str:
        return f"<Kernel {one_line(self.label)} of {one_line(str(self.path))}>"

    @property
    def rule_numbers(self) -> list[int]:
        """The numbers in its requirements, which may be sizes."""
        return sizes_in(one.rule for one in self.require)

    @property
    def label(self) -> str:
        """The kernel's name for users: `op/kernel`, or only the op if both are equal."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"

    @property
    def compiles_batch_in(self) -> bool:
        """Return whether anything except counts of workgroups or records depends on the batch size."""
        if self.plain is not None:
            # Constants of plain WGSL may depend on any size.
            return True
        trees = [*self.derive.values(), *self.features.values(), *(scratch.words for scratch in self.scratch)]
        trees += [tree for each in self.passes for tree in (each.workgroup_size, each.when)]
        return any(self.op.problem_type.BATCH in expression.names(tree) for tree in trees)

    @property
    def takes_slices(self) -> bool:
        """Return whether a batch that does not fit a binding can be cut into slices.

        It can if no pass over the whole call uses a batched tensor.
        """
        batched = {tensor.name for tensor in self.op.tensors if tensor.batched}
        if self.plain is not None:
            # Plain WGSL has no parameter for the begin of a slice.
            return False
        whole = (each for each in self.passes if each.per == "call")
        return all(each.bindings is not None and batched.isdisjoint(each.bindings) for each in whole)

    def mistake(self, what: str, message: object) -> WebnormError:
        """Return the error for the value of a part of the header."""
        return WebnormError(f"{self.path}: {what}: {message}")

    def value(
        self, what: str, tree: Tree, values: Mapping[str, int], least: int = -expression.LARGEST
    ) -> int:
        """Evaluate an expression of the header.

        Raises WebnormError with the header's path and `what` if that fails or the value is below `least`.
        """
        try:
            value = expression.evaluate(tree, values)
        except WebnormError as error:
            raise self.mistake(what, error) from error
        if value < least:
            raise self.mistake(what, f"{expression.shown(tree)} is {value}; expected {least} or more")
        return value
