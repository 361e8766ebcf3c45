"""Names, types and shapes of the tensors in safetensors files, and the norms that names suggest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from webnorm.errors import WebnormError, counted, shown
from webnorm.files import atomic
from webnorm.models.dimensions import Dimensions
from webnorm.models.norm_use import NormParameters, NormUse

# safetensors' own limit of a header, and more files than any model has.
_MOST_HEADER = 100_000_000
_MOST_FILES = 1000
_MOST_BYTES = 1 << 40
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Names of norms: a word such as norm, layernorm, rms_norm_1 or ln_f behind the last dot.
_NORM = re.compile(r"(^|[._])(ln|\w*norm\w*|layernorm\w*)(_?\w{0,12})\.weight$", re.IGNORECASE)
_QUERY = re.compile(r"\bq_norm\b|\bquery_norm\b|\bnorm_q\b|\bq_layernorm\b")
_KEY = re.compile(r"\bk_norm\b|\bkey_norm\b|\bnorm_k\b|\bk_layernorm\b")


@dataclass(frozen=True)
class TensorHeader:
    """The type and the shape of a tensor, and its place: the file, its first byte and the byte behind."""

    dtype: str
    shape: tuple[int, ...]
    place: tuple[Path, int, int] | None = None


def read_headers(paths: list[Path]) -> dict[str, TensorHeader]:
    """Return the tensors of safetensors files by name; no element is read."""
    if len(paths) > _MOST_FILES:
        raise WebnormError(
            f"{paths[0].parent}: {counted(len(paths), 'safetensors file')}; expected at most {_MOST_FILES}"
        )
    found: dict[str, TensorHeader] = {}
    for path in paths:
        found |= _read_header(path)
    return found


def _read_header(path: Path) -> dict[str, TensorHeader]:
    try:
        with atomic.opened(path, _MOST_BYTES) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MOST_HEADER:
                raise WebnormError(f"{path}: its header has {length} bytes; expected at most {_MOST_HEADER}")
            content = file.read(length)
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) < max(length, 2):
        raise WebnormError(f"{path}: no valid safetensors file: it ends within its header")
    try:
        header = atomic.parse_json(content)
    except ValueError as error:
        raise WebnormError(f"{path}: no valid safetensors file: its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise WebnormError(
            f"{path}: no valid safetensors file: its header is {shown(header)}; expected an object"
        )
    begin = 8 + length
    return {name: _tensor(path, name, one, begin) for name, one in header.items() if name != "__metadata__"}


def _tensor(path: Path, name: str, entry: object, begin: int) -> TensorHeader:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or not isinstance(dtype, str):
        raise WebnormError(f"{path}: tensor {shown(name)} is {shown(entry)}; expected a dtype and a shape")
    if any(type(size) is not int or size < 0 for size in shape):
        raise WebnormError(
            f"{path}: tensor {shown(name)} has the shape {shown(shape)}; expected whole numbers"
        )
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    known = isinstance(offsets, list) and [type(one) for one in offsets] == [int, int]
    place = (path, begin + offsets[0], begin + offsets[1]) if known and offsets else None
    return TensorHeader(_DTYPES.get(dtype, dtype), tuple(shape), place)


def norm_weights(tensors: Mapping[str, TensorHeader]) -> dict[str, TensorHeader]:
    """Return the tensors that are weights of norms by their names and shapes; BatchNorms are none."""
    return {
        name: one
        for name, one in tensors.items()
        if len(one.shape) == 1
        and one.shape[0]
        and _NORM.search(name)
        and name.removesuffix("weight") + "running_mean" not in tensors
    }


def named_norms(tensors: Mapping[str, TensorHeader], dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms that the names of weights suggest: LayerNorm with a bias, else RMSNorm."""
    for name, one in norm_weights(tensors).items():
        op = "layer_norm" if name.removesuffix("weight") + "bias" in tensors else "rms_norm"
        layer = name.removesuffix(".weight")
        batch, tokens = dims.size("batch"), dims.size("sequence")
        if _KEY.search(name):
            continue
        if _QUERY.search(name):
            heads = _heads(tensors, name, one.shape[0])
            if heads is not None:
                sizes = {"batch": batch, "tokens": tokens, "q_heads": heads[0], "k_heads": heads[1]}
                sizes["dim"] = one.shape[0]
                pair = NormParameters(layer, (("weight_q", name), ("weight_k", _of_keys(name))))
                options = (f"norm={op}",)
                yield NormUse("qk_norm", sizes, one.dtype, options, {}, 1, (layer,), "config", (), (pair,))
            continue
        biases = [("bias", f"{layer}.bias")] if op == "layer_norm" else []
        own = NormParameters(layer, (("weight", name), *biases))
        rows = {"rows": batch * tokens, "cols": one.shape[0]}
        yield NormUse(op, rows, one.dtype, (), {}, 1, (layer,), "config", (), (own,))


def _of_keys(name: str) -> str:
    """Return the name of the keys' weight next to the queries' weight."""
    words = (("q_norm", "k_norm"), ("query_norm", "key_norm"), ("norm_q", "norm_k"), ("q_layer", "k_layer"))
    return next((name.replace(*pair) for pair in words if pair[0] in name), "")


def _heads(tensors: Mapping[str, TensorHeader], name: str, dim: int) -> tuple[int, int] | None:
    """Return the heads of queries and keys, from the sizes of the projections next to a norm."""
    block = name.rpartition(".")[0].rpartition(".")[0]
    rows = [tensors.get(f"{block}.{part}_proj.weight") for part in "qk"]
    if any(one is None or len(one.shape) != 2 or one.shape[0] < dim for one in rows):
        return None
    queries, keys = (one.shape[0] // dim for one in rows if one is not None)
    return queries, keys
