"""A norm found in a graph, and the arithmetic that several patterns share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from webnorm.models.onnx_graph import FLOATS, OnnxGraph, OnnxNode

# Ends of the names that models give to weights and biases.
_PARAMETERS = ("weight", "bias", "gamma", "beta", "scale")


@dataclass(eq=False)
class NormMatch:
    """A norm in a graph, with everything that belongs to it.

    Attributes
    ----------
    graph : OnnxGraph
        The graph that contains it.
    op : str
        The op's name.
    node : OnnxNode
        The node that names it.
    x, y : str
        The input and the result so far; a norm's weight moves y behind the multiplication.
    form : str
        "fused" or "decomposed".
    shape : tuple of int or None
        The shape of x; None if it is unknown.
    axes : tuple of int
        The normalized axes, counted from 0.
    sizes : dict
        The op's sizes, for patterns that know them.
    weight, bias : str
        The parameters; "" without one.
    keys_weight : str
        The weight of the keys, if the norm is a pair of queries and keys.
    """

    graph: OnnxGraph
    op: str
    node: OnnxNode
    x: str
    y: str
    form: str
    shape: tuple[int, ...] | None = None
    axes: tuple[int, ...] = ()
    eps: float | None = None
    weight: str = ""
    bias: str = ""
    weight_dtype: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    scalars: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    groups: int = 0
    keys_weight: str = ""

    @property
    def dtype(self) -> str:
        """The storage type of x before casts."""
        dtype = self.graph.type_of(self.graph.source(self.x)).dtype
        return dtype if dtype in FLOATS else self.graph.type_of(self.x).dtype

    @property
    def cols(self) -> int | None:
        """The number of elements along the normalized axes; the weight states it where the shape does not."""
        if self.shape is not None:
            return math.prod(self.shape[axis] for axis in self.axes)
        return self.graph.type_of(self.weight).elements if self.weight else None

    @property
    def rows(self) -> int | None:
        """The number of rows, or None if the shape is unknown."""
        if self.shape is None:
            return None
        return math.prod(size for axis, size in enumerate(self.shape) if axis not in self.axes)


def normal_axes(axes: tuple[float, ...] | None, rank: int) -> tuple[int, ...] | None:
    """Return axes counted from 0 and in order, or None for invalid ones."""
    if axes is None:
        return None
    found = sorted({int(axis) + rank * (axis < 0) for axis in axes})
    return tuple(found) if found and found[0] >= 0 and found[-1] < rank else None


def without_ones(graph: OnnxGraph, value: str, filling: float) -> str:
    """Return a weight or bias, or "" for a constant that an exporter made for a norm without one.

    Such a constant has nothing but ones or zeros, and no name of a parameter.
    """
    if not value or graph.source(value).casefold().endswith(_PARAMETERS):
        return value
    return "" if {*(graph.constant(value) or ())} == {filling} else value


def square_of(graph: OnnxGraph, value: str) -> str:
    """Return u if a value is u * u, else ""."""
    node = graph.made_by(value, "Pow", "Mul", "Square")
    if node is None:
        return ""
    if node.op == "Square":
        return node.input(0)
    if node.op == "Pow":
        return node.input(0) if graph.scalar(node.input(1)) == 2 else ""
    same = graph.source(node.input(0)) == graph.source(node.input(1))
    return node.input(0) if same and node.input(0) else ""


def silu_input(graph: OnnxGraph, value: str) -> str:
    """Return z if a value is z * sigmoid(z), else ""."""
    node = graph.made_by(value, "Mul", "Swish", "Silu", views=True)
    if node is None:
        return ""
    if node.op != "Mul":
        return node.input(0)
    for one, other in (node.inputs[:2], node.inputs[1::-1]):
        gate = graph.made_by(one, "Sigmoid")
        if gate is not None and graph.source(gate.input(0)) == graph.source(other):
            return other
    return ""
