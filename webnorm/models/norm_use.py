"""The result of a scan: the norms of a model, each as an op with sizes, type, options and scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class NormParameters:
    """The parameters of one node: pairs of the op's tensor and the model's name, such as ("weight", "w3")."""

    node: str
    tensors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NormUse:
    """A norm that a model uses, once or several times.

    Attributes
    ----------
    op : str
        The op's name, such as "rms_norm".
    sizes : Mapping
        The op's sizes by name.
    dtype : str
        The storage type of the input; "" if the model does not state it.
    options : tuple of str
        The options in the form of `--option`, such as "bias=false". Others have their defaults.
    scalars : Mapping
        The op's scalars by name, such as eps.
    count : int
        How often the model contains it.
    nodes : tuple of str
        The names of its nodes, or of its layers.
    form : str
        How the model contains it: "fused" in one node, "decomposed" into several, or "config".
    notes : tuple of str
        Facts that the op does not express, such as a strided axis.
    parameters : tuple of NormParameters
        The names of each node's weights, if they are known.
    """

    op: str
    sizes: Mapping[str, int]
    dtype: str
    options: tuple[str, ...] = ()
    scalars: Mapping[str, float] | None = None
    count: int = 1
    nodes: tuple[str, ...] = ()
    form: str = "fused"
    notes: tuple[str, ...] = ()
    parameters: tuple[NormParameters, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything but the count and the nodes: uses with the same key are one norm."""
        scalars = tuple(sorted((self.scalars or {}).items()))
        return (self.op, *self.sizes.items(), self.dtype, self.options, scalars, self.form, self.notes)

    @property
    def shape_text(self) -> str:
        """The sizes as text, such as "rows=128 cols=768"."""
        return " ".join(f"{name}={size}" for name, size in self.sizes.items())

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of the use."""
        return {
            "op": self.op,
            "sizes": dict(self.sizes),
            "dtype": self.dtype,
            "options": list(self.options),
            "scalars": dict(self.scalars or {}),
            "count": self.count,
            "form": self.form,
            "nodes": list(self.nodes),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ModelScan:
    """The norms of a model.

    Attributes
    ----------
    source : str
        The file that was read.
    kind : str
        The kind of file: "onnx", "config" or "safetensors".
    uses : tuple of NormUse
        The distinct norms, in the order of their first use.
    assumed : Mapping
        Sizes of dimensions that the model leaves open, by name.
    notes : tuple of str
        Remarks, such as an assumed type.
    missing : tuple of str
        What the scan does not know: norms without a known shape, unknown architectures.
    """

    source: str
    kind: str
    uses: tuple[NormUse, ...]
    assumed: Mapping[str, int]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def merged(uses: Iterable[NormUse]) -> tuple[NormUse, ...]:
    """Return the distinct norms with the sums of their counts."""
    found: dict[tuple[Any, ...], NormUse] = {}
    for use in uses:
        before = found.get(use.key)
        if before is not None:
            use = replace(
                before,
                count=before.count + use.count,
                nodes=before.nodes + use.nodes,
                parameters=before.parameters + use.parameters,
            )
        found[use.key] = use
    return tuple(found.values())
