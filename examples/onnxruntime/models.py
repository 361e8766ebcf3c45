"""Writes a model with one norm, and the parts of that model before and after the norm."""

from pathlib import Path

from onnx import NodeProto, TensorProto, checker, helper

COLS = 768
ROWS = ("rows", COLS)


def model(
    inputs: dict[str, tuple[str | int, ...]], output: str, *nodes: NodeProto, **constants: float
) -> bytes:
    """Return a model of float32 tensors; each constant is a single number."""
    graph = helper.make_graph(
        nodes,
        "example",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ROWS)],
        [helper.make_tensor(name, TensorProto.FLOAT, [1], [value]) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    checker.check_model(made, full_check=True)
    written: bytes = made.SerializeToString()
    return written


before = helper.make_node("Add", ["x", "mean"], ["h"])
norm = helper.make_node("LayerNormalization", ["h", "weight", "bias"], ["y"], axis=-1, epsilon=1e-5)
behind = helper.make_node("Mul", ["y", "two"], ["out"])
x: dict[str, tuple[str | int, ...]] = {"x": ROWS, "mean": (1,)}

folder = Path(__file__).parent / "models"
folder.mkdir(exist_ok=True)
(folder / "before.onnx").write_bytes(model(x, "h", before))
(folder / "behind.onnx").write_bytes(model({"y": ROWS}, "out", behind, two=2.0))
whole = model({**x, "weight": (COLS,), "bias": (COLS,)}, "out", before, norm, behind, two=2.0)
(folder / "whole.onnx").write_bytes(whole)
