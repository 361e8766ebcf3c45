"""The elements of norms' own weights and biases, which are a small part of a model's weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from webnorm.errors import WebnormError, shown
from webnorm.files import atomic
from webnorm.models.norm_use import ModelScan
from webnorm.models.onnx_file import parsed_model
from webnorm.models.onnx_graph import ELEMENT_TYPES
from webnorm.models.safetensors_header import TensorHeader, read_headers
from webnorm.system import library

Parameter = npt.NDArray[np.float64]
_KINDS: Mapping[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
# More elements than any norm's weight has.
_MOST_ELEMENTS = 1 << 20
_MOST_BYTES = 1 << 40
_EXTERNAL = 1


def read_parameters(scan: ModelScan) -> dict[str, Parameter]:
    """Return the weights and biases of a scan's norms in float64, by name.

    Parameters that the model computes, or whose data are missing in an ONNX file, are left out.

    Raises
    ------
    WebnormError
        A file cannot be read, or has fewer bytes than its header states.
    """
    names = {name for use in scan.uses for one in use.parameters for _, name in one.tensors}
    path = Path(scan.source)
    if not names:
        return {}
    if path.suffix in (".json", ".safetensors"):
        paths = [path] if path.suffix == ".safetensors" else sorted(path.parent.glob("*.safetensors"))
        headers = read_headers(paths)
        return {name: _from_safetensors(name, headers[name]) for name in sorted(names & headers.keys())}
    return dict(_from_onnx(path, names))


def _from_safetensors(name: str, header: TensorHeader) -> Parameter:
    if header.place is None or header.dtype not in _KINDS:
        raise WebnormError(f"tensor {shown(name)} has the type {header.dtype}; expected float32 or narrower")
    path, start, end = header.place
    return _elements(path, name, header.dtype, math.prod(header.shape), start, end - start)


def _elements(path: Path, name: str, dtype: str, count: int, start: int, length: int) -> Parameter:
    """Return the elements of a tensor at its place in a file."""
    kind = np.dtype(_KINDS[dtype])
    if count > _MOST_ELEMENTS or length != count * kind.itemsize or start < 0:
        raise WebnormError(
            f"{path}: tensor {shown(name)} has {length} bytes at {start}; expected {count * kind.itemsize}"
        )
    try:
        with atomic.opened(path, _MOST_BYTES) as file:
            file.seek(start)
            content = file.read(length)
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) != length:
        raise WebnormError(f"{path}: it ends within the tensor {shown(name)}")
    return np.frombuffer(content, kind).astype(np.float64)


def _from_onnx(path: Path, names: Collection[str]) -> Iterator[tuple[str, Parameter]]:
    onnx = library("onnx", "webnorm scan", "onnx")
    for name, tensor in _tensors(parsed_model(onnx, path).graph):
        dtype = ELEMENT_TYPES.get(tensor.data_type, "")
        if name not in names or dtype not in _KINDS or any(size < 0 for size in tensor.dims):
            continue
        if tensor.data_location == _EXTERNAL:
            yield name, _external(path, name, dtype, tensor)
        elif tensor.raw_data or tensor.float_data or tensor.int32_data:
            try:
                yield name, onnx.numpy_helper.to_array(tensor).astype(np.float64).ravel()
            except (ArithmeticError, TypeError, ValueError) as error:
                raise WebnormError(f"{path}: tensor {shown(name)} has no valid data ({error})") from error


def _tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a graph by name, also in its subgraphs."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and node.output:
                yield node.output[0], attribute.t
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _tensors(inner)


def _external(path: Path, name: str, dtype: str, tensor: Any) -> Parameter:
    """Return a tensor whose data are in another file of the model's folder."""
    entries = {one.key: one.value for one in tensor.external_data}
    place = path.parent / entries.get("location", "")
    count = math.prod(tensor.dims)
    try:
        start, length = (
            int(entries.get("offset", 0)),
            int(entries.get("length", count * np.dtype(_KINDS[dtype]).itemsize)),
        )
    except ValueError as error:
        raise WebnormError(f"{path}: tensor {shown(name)} has no valid place in {place.name}") from error
    if not atomic.lies_in(place, path.parent):
        raise WebnormError(f"{path}: tensor {shown(name)} has its data outside of the model's folder")
    return _elements(place, name, dtype, count, start, length)
