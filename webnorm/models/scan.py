"""The scan of a model: which norms it has, without its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from webnorm.errors import WebnormError, counted, shown, unknown
from webnorm.models.config_values import read_config
from webnorm.models.dimensions import Dimensions
from webnorm.models.hf_config import config_norms
from webnorm.models.norm_use import ModelScan, NormUse, merged
from webnorm.models.safetensors_header import TensorHeader, named_norms, read_headers

CONFIG, PIPELINE = "config.json", "model_index.json"
# The parts of a pipeline of diffusers that have norms.
_PARTS = ("transformer", "unet", "vae", "text_encoder", "text_encoder_2", "image_encoder", "prior")
_ARGUMENT = "an ONNX file, a config.json, a safetensors file, or a folder with one of them"


def scan_model(
    path: Path | str, dims: Mapping[str, int] | None = None, dtype: str | None = None
) -> ModelScan:
    """Return the norms of a model. No weights are read, and nothing is run or downloaded.

    Parameters
    ----------
    path
        An ONNX file, a `config.json`, a safetensors file, or a folder with one of them.
    dims
        Sizes of dimensions that the model leaves open, such as {"sequence": 512}.
    dtype
        The storage type of every norm. None for the model's own.

    Raises
    ------
    WebnormError
        The model cannot be read. The message is one line with the file.
    """
    model = _model_file(Path(path))
    sizes = Dimensions(dict(dims or {}))
    if model.name == PIPELINE:
        scan = _scan_pipeline(model, sizes)
    elif model.suffix == ".json":
        scan = _scan_config(model, sizes)
    elif model.suffix == ".safetensors":
        scan = _scan_tensors(model, sizes)
    else:
        scan = _scan_onnx(model, sizes)
    _check_used(sizes)
    found = replace(scan, uses=merged(scan.uses), assumed=dict(sizes.assumed))
    return found if dtype is None else with_dtype(found, dtype)


def with_dtype(scan: ModelScan, dtype: str) -> ModelScan:
    """Return the scan with another storage type of every norm."""
    return replace(scan, uses=merged(_typed(use, dtype) for use in scan.uses))


def _typed(use: NormUse, dtype: str) -> NormUse:
    options = tuple(one for one in use.options if one != f"weight_dtype={dtype}")
    return replace(use, dtype=dtype, options=options)


def _check_used(dims: Dimensions) -> None:
    """Raise WebnormError for a given dimension that the model does not have."""
    for name in dims.given:
        if name in dims.used:
            continue
        names = {*dims.assumed, *dims.used}
        if not names:
            raise WebnormError(f"unknown dimension {shown(name)}; every dimension of the model is fixed")
        raise unknown("dimension", name, names)


def _model_file(path: Path) -> Path:
    """Return the file that describes a model."""
    try:
        if not path.is_dir():
            return path
        found = sorted(one for one in path.iterdir() if one.suffix in (".onnx", ".json", ".safetensors"))
    except (OSError, ValueError) as error:
        raise WebnormError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    for name in (PIPELINE, CONFIG):
        if path / name in found:
            return path / name
    graphs = [one for one in found if one.suffix == ".onnx"]
    if len(graphs) > 1:
        names = ", ".join(one.name for one in graphs[:8])
        raise WebnormError(f"{path}: {counted(len(graphs), 'ONNX file')} ({names}); name one of them")
    weights = [one for one in found if one.suffix == ".safetensors"]
    if not graphs and not weights:
        raise WebnormError(f"{path}: it contains no model; expected {_ARGUMENT}")
    return (graphs or weights)[0]


def _scan_onnx(path: Path, dims: Dimensions) -> ModelScan:
    from webnorm.models.norm_patterns import find_norms
    from webnorm.models.onnx_file import read_onnx

    graph, note = read_onnx(path, dims)
    uses, missing = find_norms(graph)
    notes = (f"shapes could not be inferred: {note}",) if note else ()
    return ModelScan(str(path), "onnx", tuple(uses), {}, notes, tuple(missing))


def _scan_config(path: Path, dims: Dimensions) -> ModelScan:
    """Scan a config; the headers of weights next to it state types that the config does not."""
    config = read_config(path)
    tensors = read_headers(sorted(path.parent.glob("*.safetensors")))
    uses, missing = config_norms(config, dims)
    if not uses and tensors:
        return _named(path, tensors, dims, tuple(missing))
    own = _usual_dtype(tensors)
    typed = [use if use.dtype else replace(use, dtype=own or "float32") for use in uses]
    untyped = not own and any(not use.dtype for use in uses)
    notes = ("the config states no dtype; float32 is assumed",) if untyped else ()
    typed = [*_with_parameters(typed, tensors, dims)] if tensors else typed
    return ModelScan(str(path), "config", tuple(typed), {}, notes, tuple(missing))


def _with_parameters(
    uses: Sequence[NormUse], tensors: Mapping[str, TensorHeader], dims: Dimensions
) -> Iterator[NormUse]:
    """Yield the norms of a config with the names of weights of their op and length."""
    named = [*named_norms(tensors, Dimensions(dims.given))]
    for use in uses:
        own = (one for one in named if (one.op, _length(one)) == (use.op, _length(use)))
        yield replace(use, parameters=tuple(entry for one in own for entry in one.parameters))


def _length(use: NormUse) -> int | None:
    return use.sizes.get("cols", use.sizes.get("dim"))


def _usual_dtype(tensors: Mapping[str, TensorHeader]) -> str:
    """Return the most frequent floating-point type of tensors with two axes or more; "" without tensors."""
    found = Counter(one.dtype for one in tensors.values() if len(one.shape) > 1)
    names = [name for name, _ in found.most_common() if name in ("float32", "float16", "bfloat16")]
    return names[0] if names else ""


def _scan_tensors(path: Path, dims: Dimensions) -> ModelScan:
    if path.with_name(CONFIG).exists():
        return _scan_config(path.with_name(CONFIG), dims)
    return _named(path, read_headers([path]), dims, ())


def _named(
    path: Path, tensors: Mapping[str, TensorHeader], dims: Dimensions, missing: tuple[str, ...]
) -> ModelScan:
    uses = tuple(named_norms(tensors, dims))
    if uses:
        missing = (*missing, "eps: the norms are found by the names and shapes of their weights")
    else:
        missing = (*missing, f"none of the {counted(len(tensors), 'tensor')} has the name of a norm's weight")
    return ModelScan(str(path), "safetensors", uses, {}, (), missing)


def _scan_pipeline(path: Path, dims: Dimensions) -> ModelScan:
    """Scan the parts of a pipeline that are next to its index."""
    read_config(path)
    scans = {
        part: _scan_config(path.parent / part / CONFIG, dims)
        for part in _PARTS
        if (path.parent / part / CONFIG).exists()
    }
    if not scans:
        raise WebnormError(
            f"{path}: none of its parts is there; expected folders such as unet/ with a {CONFIG}"
        )
    uses = [
        replace(use, nodes=tuple(f"{part}: {name}" for name in use.nodes))
        for part, scan in scans.items()
        for use in scan.uses
    ]
    notes = tuple(f"{part}: {note}" for part, scan in scans.items() for note in scan.notes)
    missing = tuple(f"{part}: {line}" for part, scan in scans.items() for line in scan.missing)
    return ModelScan(str(path), "config", tuple(uses), {}, notes, missing)
