"""The graph of an ONNX model as the patterns read it: nodes, shapes, types and small constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# ONNX's numbers of element types, and names of storage types.
ELEMENT_TYPES = {
    1: "float32",
    10: "float16",
    11: "float64",
    16: "bfloat16",
    6: "int32",
    7: "int64",
    9: "bool",
}
FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
# Tensors with more elements are weights.
MOST_VALUES = 1 << 14
# Nodes that pass values on. Dropout does nothing in inference.
_SAME_VALUES = frozenset({"Identity", "Cast", "CastLike", "Dropout"})
_VIEWS = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand"})
# Nodes whose result is a parameter if all their inputs are.
_FOLDABLE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Transpose", "Slice", "DequantizeLinear", "Concat", "Neg", "Exp"}
)
_MOST_STEPS = 64


@dataclass(frozen=True)
class ValueType:
    """The element type of a value ("" if unknown), and its shape; None if unknown."""

    dtype: str = ""
    shape: tuple[int | None, ...] | None = None

    @property
    def elements(self) -> int | None:
        """The number of elements, or None if a dimension is unknown."""
        known = [size for size in self.shape or () if size is not None]
        return None if self.shape is None or len(known) < len(self.shape) else math.prod(known)

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """The shape, or None if a dimension is unknown."""
        return None if self.elements is None else tuple(size or 0 for size in self.shape or ())


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A node with its attributes (numbers, texts and lists of numbers)."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def input(self, index: int) -> str:
        """Return the name of an input, or "" if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def output(self, index: int) -> str:
        """Return the name of an output, or "" if it is left out."""
        return self.outputs[index] if index < len(self.outputs) else ""


@dataclass(eq=False)
class OnnxGraph:
    """A graph or subgraph. Names that it lacks are looked up in the graph around it."""

    nodes: list[OnnxNode] = field(default_factory=list)
    types: dict[str, ValueType] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()
    outer: OnnxGraph | None = None
    subgraphs: list[OnnxGraph] = field(default_factory=list)
    makers: dict[str, OnnxNode] = field(default_factory=dict)
    readers: dict[str, list[OnnxNode]] = field(default_factory=dict)
    _values: dict[str, tuple[float, ...] | None] = field(default_factory=dict)

    def link(self) -> None:
        """Fill `makers` and `readers` from the nodes."""
        for node in self.nodes:
            self.makers.update((name, node) for name in node.outputs if name)
            for name in dict.fromkeys(node.inputs):
                self._owner(name).readers.setdefault(name, []).append(node)

    def all_graphs(self) -> Iterator[OnnxGraph]:
        """Yield the graph and the subgraphs of its nodes."""
        yield self
        for one in self.subgraphs:
            yield from one.all_graphs()

    def _scopes(self) -> Iterator[OnnxGraph]:
        scope: OnnxGraph | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def _owner(self, value: str) -> OnnxGraph:
        for scope in self._scopes():
            if value in scope.makers or value in scope.tensors:
                return scope
        return self

    def maker(self, value: str) -> OnnxNode | None:
        """Return the node that computes a value; None for inputs and parameters."""
        return next((scope.makers[value] for scope in self._scopes() if value in scope.makers), None)

    def readers_of(self, value: str) -> list[OnnxNode]:
        """Return the nodes that read a value."""
        return self.readers.get(value, [])

    def type_of(self, value: str) -> ValueType:
        """Return the type of a value."""
        return next((scope.types[value] for scope in self._scopes() if value in scope.types), ValueType())

    # --- constants

    def constant(self, value: str) -> tuple[float, ...] | None:
        """Return the elements of a small constant, or None."""
        root = self.source(value, views=True)
        if root not in self._values:
            self._values[root] = self._read(root)
        return self._values[root]

    def _read(self, value: str) -> tuple[float, ...] | None:
        from webnorm.models.onnx_tensors import elements

        for scope in self._scopes():
            if value in scope.tensors:
                return elements(scope.tensors[value])
        node = self.maker(value)
        if node is None:
            return None
        if node.op == "Constant":
            numbers = next((one for name, one in node.attributes.items() if name.startswith("value_")), None)
            return None if numbers is None else tuple(numbers) if isinstance(numbers, tuple) else (numbers,)
        return None

    def scalar(self, value: str) -> float | None:
        """Return the number in a constant of one element, or None."""
        found = self.constant(value) if value else None
        return found[0] if found is not None and len(found) == 1 else None

    def is_parameter(self, value: str, steps: int = 8) -> bool:
        """Return whether a value depends on nothing but weights and constants."""
        if any(value in scope.tensors for scope in self._scopes()):
            return True
        node = self.maker(value)
        if node is None or not steps:
            return False
        if node.op == "Constant":
            return True
        inputs = [name for name in node.inputs if name]
        if node.op in _SAME_VALUES | _VIEWS:
            return self.is_parameter(inputs[0], steps - 1) if inputs else False
        return node.op in _FOLDABLE and all(self.is_parameter(one, steps - 1) for one in inputs)

    # --- walking

    def source(self, value: str, *, views: bool = False) -> str:
        """Return the value that this one is a copy or a cast of; with `views` also through reshapes."""
        passed = _SAME_VALUES | _VIEWS if views else _SAME_VALUES
        for _ in range(_MOST_STEPS):
            node = self.maker(value)
            if node is None or not node.inputs or value != node.outputs[0]:
                break
            if node.op not in passed and not self._times_one(node):
                break
            value = node.inputs[0]
        return value

    def _times_one(self, node: OnnxNode) -> bool:
        """Return whether a node multiplies or divides by the constant 1, as scaled sums of residuals do."""
        if node.op not in ("Mul", "Div") or len(node.inputs) != 2:
            return False
        tensor = next(
            (scope.tensors[node.inputs[1]] for scope in self._scopes() if node.inputs[1] in scope.tensors),
            None,
        )
        return tensor is not None and not [*tensor.dims] and self._read(node.inputs[1]) == (1.0,)

    def made_by(self, value: str, *ops: str, views: bool = False) -> OnnxNode | None:
        """Return the node that made a value if it is one of these ops; casts in between do not matter."""
        node = self.maker(self.source(value, views=views))
        return node if node is not None and node.op in ops else None

    def only_reader(self, value: str) -> tuple[OnnxNode, str] | None:
        """Return the only node that reads a value through casts, and the name under which it does."""
        for _ in range(_MOST_STEPS):
            readers = self.readers_of(value)
            if len(readers) != 1 or value in self.outputs:
                return None
            node = readers[0]
            if node.op not in _SAME_VALUES or not node.outputs or node.input(0) != value:
                return node, value
            value = node.outputs[0]
        return None

    def final_readers(self, value: str, steps: int = 8) -> list[tuple[OnnxNode, str]]:
        """Return all nodes that read a value through casts, and the names under which they do."""
        found = []
        for node in self.readers_of(value):
            if node.op in _SAME_VALUES and node.outputs and node.input(0) == value and steps:
                found += self.final_readers(node.outputs[0], steps - 1)
            else:
                found.append((node, value))
        return found


def other_input(node: OnnxNode, values: Iterable[str]) -> str:
    """Return the input of a node with two inputs that is none of `values`; "" if there is none."""
    known = {*values}
    rest = [name for name in node.inputs[:2] if name not in known]
    return rest[0] if len(rest) == 1 else ""
