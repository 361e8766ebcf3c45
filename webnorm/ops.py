"""What every kernel of an op shares: its tensors, its float64 reference, its least traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from webnorm import reference
from webnorm.problem import Array, Options, Problem


@dataclass(frozen=True)
class Tensor:
    """One storage buffer of an op.

    `per_row` tells (rows, cols) from (cols,). `option` names the field of Options that the tensor
    needs, or is None when it is always there.
    """

    name: str
    access: Literal["read", "read_write"]
    per_row: bool
    option: str | None = None

    def present(self, options: Options) -> bool:
        """Whether the options ask for this tensor."""
        return self.option is None or bool(getattr(options, self.option))


@dataclass(frozen=True)
class Op:
    """An operation: `reference` takes the input arrays by name and eps, and gives y in float64."""

    name: str
    summary: str
    tensors: tuple[Tensor, ...]
    reference: Callable[[Mapping[str, Array], float], reference.Float64Array]
    exact: bool = False

    def present(self, options: Options) -> tuple[Tensor, ...]:
        """The tensors that these options bind, in binding order."""
        return tuple(tensor for tensor in self.tensors if tensor.present(options))

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that any kernel has to move: every (rows, cols) tensor once.

        Weight and bias are left out: they are read once per row but stay in cache.
        """
        tensors = sum(tensor.per_row for tensor in self.present(problem.options))
        return tensors * problem.rows * problem.cols * problem.itemsize


_X = Tensor("x", "read", per_row=True)
_Y = Tensor("y", "read_write", per_row=True)

OPS: Mapping[str, Op] = {
    op.name: op
    for op in (
        Op(
            "copy",
            "y = x: the roofline that every other op is measured against.",
            (_X, _Y),
            lambda arrays, eps: reference.copy(arrays["x"]),
            exact=True,
        ),
        Op(
            "layer_norm",
            "y = (x - mean) / sqrt(var + eps) * weight + bias, row by row.",
            (
                _X,
                Tensor("weight", "read", per_row=False, option="weight"),
                Tensor("bias", "read", per_row=False, option="bias"),
                _Y,
            ),
            lambda arrays, eps: reference.layer_norm(
                arrays["x"], arrays.get("weight"), arrays.get("bias"), eps
            ),
        ),
    )
}
