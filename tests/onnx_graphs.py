"""Small ONNX graphs, built node by node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webnorm.models.norm_use import ModelScan, NormUse
from webnorm.models.scan import scan_model

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

FLOAT = 1
Shape = Sequence[int | str | None]


class Graph:
    """A graph under construction; methods return the names of values."""

    def __init__(self, **inputs: Shape) -> None:
        self.inputs, self.nodes, self.weights, self.functions = inputs, list[Any](), list[Any](), list[Any]()
        self.types: dict[str, int] = {}
        self.metadata: dict[str, Any] = {}

    def node(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Add a node, and return its first output."""
        names = [f"v{len(self.nodes)}{'' if index == 0 else f'_{index}'}" for index in range(outputs)]
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, names, name=name, domain=domain, **attributes))
        return names[0]

    def weight(self, values: Any, dtype: Any = np.float32, name: str = "") -> str:
        """Add an initializer."""
        name = name or f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        """Add an initializer of integers."""
        return self.weight(list(values), np.int64)

    def random(self, *shape: int, name: str = "", dtype: Any = np.float32) -> str:
        """Add a weight of random numbers."""
        return self.weight(np.random.default_rng(len(self.weights)).normal(size=shape), dtype, name)

    def model(self, *outputs: str, opset: int = 18) -> Any:
        """Return the model."""
        infos = [
            onnx.helper.make_tensor_value_info(name, self.types.get(name, FLOAT), shape)
            for name, shape in self.inputs.items()
        ]
        results = [onnx.helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
        graph = onnx.helper.make_graph(self.nodes, "g", infos, results, self.weights)
        domains = {node.domain for node in self.nodes if node.domain}
        opsets = [onnx.helper.make_opsetid("", opset), *(onnx.helper.make_opsetid(one, 1) for one in domains)]
        return onnx.helper.make_model(graph, opset_imports=opsets, functions=self.functions, **self.metadata)


def scanned(model: Any, folder: Path, **dims: int) -> ModelScan:
    """Write a model and scan it."""
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return scan_model(path, dims)


def line(use: NormUse) -> str:
    """Return a use in one line."""
    scalars = (f"{name}={value:g}" for name, value in (use.scalars or {}).items())
    notes = (f"({note})" for note in use.notes)
    words = (str(use.count), use.op, use.shape_text, use.dtype, use.form, *use.options, *scalars, *notes)
    return " ".join(filter(None, words))


def lines(text: str) -> list[str]:
    """Return the lines of an expected result."""
    return [one.strip() for one in text.strip().splitlines()]
