"""ONNX Runtime's norms on its CPU provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from bench.contenders import Contender, beyond_plain
from webnorm.op.op import Task
from webnorm.ops.norms.op import has_mean

# RMSNormalization is an op of ONNX since opset 23, LayerNormalization since 17.
_OPSETS = {"layer_norm": ("LayerNormalization", 17), "rms_norm": ("RMSNormalization", 23)}
# The newest version of the file format that all runtimes with these opsets read.
_IR_VERSION = 10


def contenders(task: Task, device: str) -> list[Contender]:
    """Return the op as a model of one node, with a preallocated output."""
    absent = beyond_plain(task) if task.op.name in _OPSETS else "ONNX has no gradient of a norm"
    if absent:
        return [Contender("ONNX Runtime", absent=absent)]
    problem = task.problem
    name, opset = _OPSETS[task.op.name]
    inputs = ["x", "weight"] + (["bias"] if has_mean(task.op) else [])
    shapes = {"x": [problem.rows, problem.cols], "y": [problem.rows, problem.cols]}
    values = {
        tensor: helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shapes.get(tensor, [problem.cols]))
        for tensor in (*inputs, "y")
    }
    node = helper.make_node(name, inputs, ["y"], axis=-1, epsilon=problem.eps)
    graph = helper.make_graph([node], name, [values[tensor] for tensor in inputs], [values["y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y = np.empty(shapes["y"], np.float32)

    def compute(t: Mapping[str, Any]) -> Mapping[str, Any]:
        binding = session.io_binding()
        for tensor in inputs:
            binding.bind_cpu_input(tensor, t[tensor])
        binding.bind_output("y", "cpu", 0, np.float32, shapes["y"], y.ctypes.data)
        session.run_with_iobinding(binding)
        return {"y": y}

    return [Contender("ONNX Runtime", compute)]
