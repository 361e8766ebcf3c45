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
    subgroup_size
        The invocations per subgroup that the text fixes with `@subgroup_size`; 0 if the driver chooses.
    """

    entry_point: str
    workgroup_size: Tree
    workgroup_count: Tree
    per: Per = "slice"
    bindings: tuple[str, ...] | None = None
    when: Tree = 1
    iterations: Tree = 0
    grid: tuple[Tree, ...] = ()
    subgroup_size: Tree = 0


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
    """A kernel file: its header and its path.

    Attributes
    ----------
    op : Op
        The op that the kernel computes.
    name : str
        The name, such as "naive".
    path : pathlib.Path
        The file.
    summary : str
        The description in the header.
    differs : str
        The difference from the kernel on the rung below.
    rung : int
        The position on the ladder: a higher rung is later and usually faster.
    preference : Tree
        The rank for `auto`, which picks the highest preference among the kernels that can run a problem.
    unstable : str or None
        The reason why wrong results are expected; None for a stable kernel.
    features : mapping of str to Tree
        The WebGPU features and WGSL language features, and the conditions under which they are needed.
    tune : mapping of str to tuple of int
        The values of each tune axis.
    default : mapping of str to Tree
        The default of each tune axis.
    derive : mapping of str to Tree
        Constants that are computed from the others.
    require : tuple of Requirement
        The rules that a variant must satisfy.
    passes : tuple of KernelPass
        The dispatches.
    scratch : tuple of ScratchBuffer
        The buffers between the passes.
    accuracy : AccuracyRules
        The inputs of the tolerance.
    plain : PlainText or None
        The parsed text of a file of plain WGSL; None for a template.
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
        """The numbers in the kernel's requirements that may be sizes."""
        return sizes_in(one.rule for one in self.require)

    @property
    def required_features(self) -> frozenset[str]:
        """The features that every variant uses on every adapter, since their conditions are constant."""
        return frozenset(name for name, tree in self.features.items() if expression.constant(tree))

    @property
    def label(self) -> str:
        """The display name, which is `op/kernel`, or the op alone if both are the same."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"

    @property
    def compiles_batch_in(self) -> bool:
        """True if more than the number of workgroups or records depends on the size of the batch."""
        if self.plain is not None:
            # Constants of plain WGSL may depend on any size.
            return True
        trees = [*self.derive.values(), *self.features.values(), *(scratch.words for scratch in self.scratch)]
        trees += [tree for each in self.passes for tree in (each.workgroup_size, each.when)]
        return any(self.op.problem_type.BATCH in expression.names(tree) for tree in trees)

    @property
    def takes_slices(self) -> bool:
        """True if the batch can be cut into slices, since no pass of the whole call uses a batched tensor."""
        batched = {tensor.name for tensor in self.op.tensors if tensor.batched}
        if self.plain is not None:
            # Plain WGSL has no parameter for the begin of a slice.
            return False
        whole = (each for each in self.passes if each.per == "call")
        return all(each.bindings is not None and batched.isdisjoint(each.bindings) for each in whole)

    def mistake(self, what: str, message: object) -> WebnormError:
        """Return the error for a part of the header."""
        return WebnormError(f"{self.path}: {what}: {message}")

    def value(
        self, what: str, tree: Tree, values: Mapping[str, int], least: int = -expression.LARGEST
    ) -> int:
        """Evaluate an expression of the header.

        Parameters
        ----------
        what : str
            The name of the expression, for the error.
        tree : Tree
            The expression.
        values : mapping of str to int
            The values of the names in it.
        least : int, optional
            The smallest valid value.

        Returns
        -------
        int
            The value.

        Raises
        ------
        WebnormError
            The expression cannot be evaluated, or its value is less than `least`.
        """
        try:
            value = expression.evaluate(tree, values)
        except WebnormError as error:
            raise self.mistake(what, error) from error
        if value < least:
            raise self.mistake(what, f"{expression.shown(tree)} is {value}; expected {least} or more")
        return value
