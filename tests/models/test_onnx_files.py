"""ONNX files that are large, broken, hostile or newer: one line with the file, and no weights in memory."""

from __future__ import annotations

import re
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import examples
from onnx_graphs import FLOAT, Graph, line, onnx, scanned
from webnorm.errors import WebnormError
from webnorm.models import onnx_inference, wire
from webnorm.models.scan import scan_model

D = 16
SPARSE = 3 << 30


def model_of(build: Any = None) -> Any:
    g = Graph(x=(2, 8, D))
    y = g.node("LayerNormalization", "x", g.random(D), epsilon=1e-5)
    return g.model(y if build is None else build(g, y))


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def field(number: int, content: bytes, length: int | None = None) -> bytes:
    return varint(number << 3 | 2) + varint(len(content) if length is None else length) + content


GOOD: bytes = model_of().SerializeToString()


def refused(content: Any, folder: Path) -> str:
    """Return the message of an error, which is one line with the file's name; nothing is written."""
    with pytest.raises(WebnormError) as caught:
        scanned(content, folder)
    message = str(caught.value)
    assert "\n" not in message and "model.onnx" in message
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
    return message.replace(str(folder / "model.onnx"), "FILE")


# --- large


def test_weights_are_not_read(tmp_path: Path) -> None:
    """A file with gigabytes of weights takes a few megabytes of memory: the file here is sparse."""
    model = model_of()
    large = onnx.TensorProto(name="large", data_type=FLOAT, dims=[SPARSE // 4])
    header = large.SerializeToString()
    graph = model.graph.SerializeToString()
    raw = varint(9 << 3 | 2) + varint(SPARSE)
    tensor_length = len(header) + len(raw) + SPARSE
    before = graph + varint(5 << 3 | 2) + varint(tensor_length) + header + raw
    model.ClearField("graph")
    start = model.SerializeToString() + varint(7 << 3 | 2) + varint(len(before) + SPARSE) + before
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + SPARSE)
    tracemalloc.start()
    try:
        found = scan_model(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [use.op for use in found.uses] == ["layer_norm"] and most < 64 << 20


@pytest.mark.parametrize("kind", ["raw_data", "float_data"])
def test_payload_is_dropped(kind: str) -> None:
    count = wire.SMALL_BYTES
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[count])
    if kind == "raw_data":
        tensor.raw_data = bytes(4 * count)
    else:
        tensor.float_data.extend([0.5] * count)
    model = model_of()
    model.graph.initializer.append(tensor)
    kept = onnx.load_model_from_string(wire.without_payload(model.SerializeToString(), "m"))
    (before, after) = kept.graph.initializer
    assert (after.name, [*after.dims], after.data_type) == ("w", [count], FLOAT)
    assert not after.raw_data and not after.float_data and len(before.raw_data) == 4 * D
    assert kept.graph.node == model.graph.node


def test_external_weights_need_not_exist(tmp_path: Path) -> None:
    model = model_of()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights/all.bin")
    (use,) = scanned(model, tmp_path).uses
    assert line(use) == "1 layer_norm rows=16 cols=16 float32 fused bias=false eps=1e-05"


# --- broken and hostile


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/passwd", "a/../../b", "C:\\weights", "..\\x"])
def test_external_weights_stay_in_the_folder(place: str, tmp_path: Path) -> None:
    model = model_of()
    model.graph.initializer[0].external_data.add(key="location", value=place)
    assert refused(model, tmp_path).startswith("FILE: tensor 'w0' has its data in ")


BROKEN = {
    "empty": (b"", "the file is empty"),
    "text": (b'{"model_type": "llama"}\n', "no valid ONNX model"),
    "zeros": (bytes(100), "a field has the number 0"),
    "a length beyond the end": (field(7, b"abc", 1 << 40), "needs 1099511627773 bytes more than there are"),
    "a length of 64 bits": (varint(7 << 3 | 2) + b"\xff" * 9 + b"\x01", "bytes more than there are"),
    "an endless number": (b"\x08" + b"\xff" * 20, "a number has too many bytes"),
    "a number cut off": (b"\x08\xff", "the message ends within a number"),
    "a group": (b"\x3b\x3c", "wire type 3"),
    "a graph that is a number": (b"\x38\x05" + GOOD, "field 7 of a model is no message"),
    "no graph": (GOOD[:2], "its graph has no nodes"),
    "a graph of noise": (field(7, b"\xff" * 40), "cannot parse it"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str, tmp_path: Path) -> None:
    content, expected = BROKEN[name]
    assert expected in refused(content, tmp_path)


def nested(depth: int) -> bytes:
    """Return a model with graphs inside each other, each too large to be copied as a whole."""
    graph = field(10, bytes(wire.SMALL_BYTES))
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph) + field(1, b"then_branch")))
    return field(7, graph)


def test_deep_subgraphs(tmp_path: Path) -> None:
    assert "nested more than 32 deep" in refused(nested(50), tmp_path)


def small_nested(depth: int) -> Any:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    for _ in range(depth):
        graph = onnx.helper.make_graph([node], "g", [], [])
        node = onnx.helper.make_node("If", ["x"], ["y"], then_branch=graph)
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], []))


def test_deep_small_subgraphs(tmp_path: Path) -> None:
    assert "nested more than 16 deep" in refused(small_nested(20), tmp_path)


def test_cycle(tmp_path: Path) -> None:
    def build(g: Graph, y: str) -> str:
        g.nodes += [
            onnx.helper.make_node("Add", [y, "b"], ["a"], name="first"),
            onnx.helper.make_node("Relu", ["a"], ["b"], name="second"),
        ]
        return "b"

    message = refused(model_of(build), tmp_path)
    assert (
        message == "FILE: the graph has a cycle or a wrong order: Add 'first' reads 'b' before it is computed"
    )


def with_functions(calls: dict[str, list[str]]) -> Any:
    g = Graph(x=(2, 8, D))
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    for name, called in calls.items():
        nodes = [onnx.helper.make_node(one, ["x"], [f"y{at}"], domain="own") for at, one in enumerate(called)]
        nodes = nodes or [onnx.helper.make_node("Relu", ["x"], ["y0"])]
        g.functions.append(onnx.helper.make_function("own", name, ["x"], ["y0"], nodes, opsets))
    return g.model(g.node(next(iter(calls)), "x", domain="own"))


@pytest.mark.parametrize(
    "calls", [{"f": ["f"]}, {"f": ["g"], "g": ["h"], "h": ["g"]}], ids=["itself", "circle"]
)
def test_functions_that_call_themselves(calls: dict[str, list[str]], tmp_path: Path) -> None:
    assert refused(with_functions(calls), tmp_path) in (
        "FILE: function 'f' calls itself",
        "FILE: function 'g' calls itself",
    )


@pytest.mark.slow
def test_functions_that_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that call the next one many times would become 10^10 nodes."""
    monkeypatch.setattr(onnx_inference, "WAIT_LIMIT_S", 5)
    calls = {f"f{at}": [f"f{at + 1}"] * 10 for at in range(10)}
    message = refused(with_functions({**calls, "f10": []}), tmp_path)
    assert message.startswith("FILE: ") and re.search("functions|shape inference", message)


@pytest.mark.parametrize("what", ["ir", "opset", "function"])
def test_newer_than_the_library(what: str, tmp_path: Path) -> None:
    model = with_functions({"f": []}) if what == "function" else model_of()
    if what == "ir":
        model.ir_version = 1000
    else:
        opsets = (model.functions[0] if what == "function" else model).opset_import
        next(one for one in opsets if not one.domain).version = 1000
    kind = "IR version" if what == "ir" else "opset"
    assert refused(model, tmp_path).startswith(
        f"FILE: {kind} 1000 is newer than onnx {onnx.__version__} knows"
    )


def test_child_process_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert refused(GOOD, tmp_path) == "FILE: shape inference failed: its process ended with status 1"


def test_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(GOOD)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(WebnormError, match=r"^webnorm scan needs onnx, which is not installed"):
        scan_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("dims", [[-5, 3], [1 << 62, 1 << 62], [0], []], ids=str)
def test_shapes_that_lie(dims: list[int], tmp_path: Path) -> None:
    """A weight with a wrong shape gives a result or an error; nothing else."""
    model = model_of()
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    try:
        scanned(model, tmp_path)
    except WebnormError as error:
        assert "\n" not in str(error)


def test_huge_inputs(tmp_path: Path) -> None:
    g = Graph(x=(1 << 40, 1 << 22, D))
    (use,) = scanned(g.model(g.node("Softmax", "x")), tmp_path).uses
    assert use.sizes == {"batch": 1 << 40, "queries": 1 << 22, "cols": D}


# --- fuzzed


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def seeds() -> list[bytes]:
    """Return models with everything that the reader distinguishes."""
    large = model_of()
    values = np.zeros(wire.SMALL_BYTES, np.float32)
    large.graph.initializer.append(onnx.numpy_helper.from_array(values, "large"))
    small = [GOOD, with_functions({"f": ["g"], "g": []}).SerializeToString()]
    files = Path(__file__).parent / "files"
    return [
        *small,
        (files / "no_norms_script.onnx").read_bytes(),
        (files / "vit_dynamo.onnx").read_bytes(),
        nested(3),
    ]


SEEDS = seeds()


@examples(300)
@given(data=damaged())
def test_fuzzed_copies(data: bytes) -> None:
    """The reader returns a message or raises an error of one line."""
    with pytest.MonkeyPatch.context() as patch:
        # Small messages are walked through as well.
        patch.setattr(wire, "SMALL_BYTES", 0)
        try:
            wire.without_payload(data, "m")
        except WebnormError as error:
            assert str(error).startswith("m: no valid ONNX model: byte ")


@pytest.mark.slow
@examples(40)
@given(data=damaged())
def test_fuzzed_models(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A damaged model is read, or refused in one line."""
    path = tmp_path_factory.mktemp("fuzzed") / "model.onnx"
    path.write_bytes(data)
    try:
        scan_model(path)
    except WebnormError as error:
        assert "\n" not in str(error) and str(error).startswith(str(path))
