"""Models of one node for onnxruntime-web."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from webnorm.web.folder import Files

_LAYER_NORM, _RMS_NORM = "LayerNormalization", "RMSNormalization"
# The first versions of ONNX with these nodes.
_OPSETS = {_LAYER_NORM: 17, _RMS_NORM: 23}
_DTYPES = {"float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}


def available() -> str | None:
    """Return None if models can be made, or what is missing."""
    return None if find_spec("onnx") else "no models for it: the Python package onnx is not installed"


def models(eps: float) -> Files:
    """Return models by path: norms in every storage type, with a float8 output, and with a residual."""
    found = {}
    for dtype in _DTYPES:
        found[f"layer_norm-{dtype}"] = _model(_LAYER_NORM, ["x", "weight", "bias"], dtype, eps)
        found[f"rms_norm-{dtype}"] = _model(_RMS_NORM, ["x", "weight"], dtype, eps)
    found["float8"] = _model(_LAYER_NORM, ["x", "weight", "bias"], "float32", eps, to_float8=True)
    found["skip"] = _skip(eps)
    return {f"models/{name}.onnx": content for name, content in found.items()}


def _model(node: str, inputs: list[str], dtype: str, eps: float, *, to_float8: bool = False) -> bytes:
    from onnx import TensorProto, helper

    kind = getattr(TensorProto, _DTYPES[dtype])
    nodes = [helper.make_node(node, inputs, ["z" if to_float8 else "y"], axis=-1, epsilon=eps)]
    out = kind
    if to_float8:
        out = TensorProto.FLOAT8E4M3FN
        nodes.append(helper.make_node("Cast", ["z"], ["y"], to=out))
    opset = 19 if to_float8 else _OPSETS[node]
    return _encoded(nodes, {name: kind for name in inputs}, out, [("", opset)])


def _skip(eps: float) -> bytes:
    from onnx import TensorProto, helper

    inputs = ["x", "skip", "weight", "bias"]
    domain = "com.microsoft"
    node = helper.make_node("SkipLayerNormalization", inputs, ["y"], domain=domain, epsilon=eps)
    kinds = dict.fromkeys(inputs, TensorProto.FLOAT)
    return _encoded([node], kinds, TensorProto.FLOAT, [("", 17), (domain, 1)])


def _encoded(
    nodes: Sequence[Any], inputs: Mapping[str, int], out: int, opsets: Sequence[tuple[str, int]]
) -> bytes:
    from onnx import helper

    def tensor(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, ["c"] if name in ("weight", "bias") else ["r", "c"])

    graph = helper.make_graph(nodes, "norm", [tensor(*one) for one in inputs.items()], [tensor("y", out)])
    imports = [helper.make_opsetid(*one) for one in opsets]
    encoded: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return encoded
