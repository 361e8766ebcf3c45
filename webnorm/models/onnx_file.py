"""Reading of ONNX files without their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from webnorm.errors import WebnormError, counted, shown
from webnorm.files import atomic
from webnorm.models.dimensions import Dimensions
from webnorm.models.onnx_graph import OnnxGraph
from webnorm.models.onnx_inference import inferred
from webnorm.models.onnx_tensors import graph_of
from webnorm.models.wire import without_payload
from webnorm.system import library

_MOST_BYTES = 1 << 40
_MOST_NODES = 1_000_000
# Subgraphs inside each other. Models have two or three.
_DEEPEST = 16
_DEFAULT_DOMAINS = ("", "ai.onnx")


def read_onnx(path: Path, dims: Dimensions) -> tuple[OnnxGraph, str]:
    """Return the graph of an ONNX file with inferred shapes, and why shapes are missing, or "".

    Raises
    ------
    WebnormError
        The file cannot be read, is no ONNX model, or is newer than the onnx library.
    """
    onnx = library("onnx", "webnorm scan", "onnx")
    model = parsed_model(onnx, path)
    _check_version(onnx, model, path)
    _check_calls(model, path)
    for holder in (model.graph, *model.functions):
        _check_nodes(holder, path)
    _set_dimensions(model.graph, dims)
    content, note = inferred(model.SerializeToString(), str(path))
    return graph_of(_message(onnx, content, path).graph), note


def parsed_model(onnx: Any, path: Path) -> Any:
    """Return the onnx library's message of a file without the payload of its weights."""
    try:
        with atomic.opened(path, _MOST_BYTES) as file:
            if not path.stat().st_size:
                raise WebnormError(f"{path}: no valid ONNX model: the file is empty")
            with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                kept = without_payload(data, str(path))
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror}") from error
    model = _message(onnx, kept, path)
    if not model.graph.node:
        raise WebnormError(f"{path}: no valid ONNX model: its graph has no nodes")
    return model


def _message(onnx: Any, content: bytes, path: Path) -> Any:
    from google.protobuf.message import Error

    try:
        return onnx.load_model_from_string(content)
    except (Error, ValueError) as error:
        reason = f"the onnx library cannot parse it ({type(error).__name__})"
        raise WebnormError(f"{path}: no valid ONNX model: {reason}") from error


def _check_version(onnx: Any, model: Any, path: Path) -> None:
    """Raise WebnormError for a file that is newer than the installed library."""
    newer = f"than onnx {onnx.__version__} knows; install a newer onnx"
    if model.ir_version > onnx.IR_VERSION:
        raise WebnormError(
            f"{path}: IR version {model.ir_version} is newer {newer} (up to {onnx.IR_VERSION})"
        )
    known = onnx.defs.onnx_opset_version()
    for one in (entry for holder in (model, *model.functions) for entry in holder.opset_import):
        if one.domain in _DEFAULT_DOMAINS and one.version > known:
            raise WebnormError(f"{path}: opset {one.version} is newer {newer} (up to {known})")


def _check_calls(model: Any, path: Path) -> None:
    """Raise WebnormError for functions that call themselves."""
    calls = {
        (one.domain, one.name): [(node.domain, node.op_type) for node in _nodes(one, path)]
        for one in model.functions
    }
    finished: set[tuple[str, str]] = set()
    for begin in calls:
        # Iterative, because a hostile chain of calls would be deeper than Python's stack.
        pending = [(begin, iter(calls[begin]))]
        open_calls = {begin}
        while pending:
            here, rest = pending[-1]
            called = next((one for one in rest if one in calls and one not in finished), None)
            if called is None:
                pending.pop()
                open_calls.discard(here)
                finished.add(here)
            elif called in open_calls:
                raise WebnormError(f"{path}: function {shown(called[1])} calls itself")
            else:
                open_calls.add(called)
                pending.append((called, iter(calls[called])))


def _nodes(holder: Any, path: Path, depth: int = 0) -> Iterator[Any]:
    """Yield the nodes of a graph or function and of its subgraphs."""
    if depth > _DEEPEST:
        raise WebnormError(f"{path}: subgraphs are nested more than {_DEEPEST} deep")
    for node in holder.node:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph, path, depth + 1)


def _check_nodes(holder: Any, path: Path) -> None:
    """Raise WebnormError for cycles, too many nodes and weights outside the model's folder."""
    if sum(1 for _ in _nodes(holder, path)) > _MOST_NODES:
        raise WebnormError(f"{path}: a graph has more than {counted(_MOST_NODES, 'node')}")
    graphs = [holder, *(g for node in _nodes(holder, path) for a in node.attribute for g in (a.g, *a.graphs))]
    for graph in graphs:
        _check_order(graph, path)
        for tensor in getattr(graph, "initializer", ()):
            _check_location(tensor, path)


def _check_order(graph: Any, path: Path) -> None:
    """Raise WebnormError if a node reads a value that a later node computes: ONNX demands this order."""
    later = {name: node for node in graph.node for name in node.output if name}
    for node in graph.node:
        for name in node.input:
            if name in later:
                raise WebnormError(
                    f"{path}: the graph has a cycle or a wrong order: {node.op_type} {shown(node.name)} "
                    f"reads {shown(name)} before it is computed"
                )
        for name in node.output:
            later.pop(name, None)


def _check_location(tensor: Any, path: Path) -> None:
    """Raise WebnormError if a tensor's data lie outside the model's folder; the data are not read."""
    for entry in tensor.external_data:
        if entry.key != "location":
            continue
        place = entry.value
        pure = PurePosixPath(place), PureWindowsPath(place)
        if any(one.is_absolute() or one.drive or ".." in one.parts for one in pure):
            raise WebnormError(
                f"{path}: tensor {shown(tensor.name)} has its data in {shown(place)}; expected a file below "
                "the model's folder"
            )


def _set_dimensions(graph: Any, dims: Dimensions) -> None:
    """Replace the symbolic dimensions of inputs by sizes, and forget other dimensions that depend on them."""
    weights = {tensor.name for tensor in graph.initializer}
    names: dict[str, int] = {}
    for one in graph.input:
        if one.name in weights or not one.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value > 0:
                continue
            name = dim.dim_param or f"{one.name}.{axis}"
            names[name] = dim.dim_value = dims.size(name, axis)
    for one in (*graph.value_info, *graph.output):
        if one.type.HasField("tensor_type"):
            _replace_symbols(one.type.tensor_type.shape.dim, names)


def _replace_symbols(shape: Any, names: Mapping[str, int]) -> None:
    for dim in shape:
        if dim.HasField("dim_param"):
            known = names.get(dim.dim_param)
            if known is None:
                dim.ClearField("dim_param")
            else:
                dim.dim_value = known
