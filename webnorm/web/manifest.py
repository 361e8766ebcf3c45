"""What is used of a package's manifest and of its page's report, and may be relied on once it is checked."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from webnorm import forms
from webnorm.errors import WebnormError

AGAIN = "export again"
# JSON has no infinity; webnorm writes such a number as a string.
_Number = float | str | None


class _Problem(TypedDict):
    dtype: str
    eps: _Number
    options: dict[str, Any]


class _Tensor(TypedDict):
    name: str
    access: str
    dtype: str
    shape: list[Any]


class _Binding(TypedDict):
    binding: int
    type: str


class _Pass(TypedDict):
    entry_point: str
    bindings: list[int]


class _NativeVector(TypedDict):
    verdict: str


class Native(TypedDict, total=False):
    """How a shader did where it was exported, or the reason why it was not run."""

    verdict: Literal["pass", "fail", "skip"]
    reason: str
    max_abs_error: _Number
    vectors: dict[str, _NativeVector]


class Shader(TypedDict):
    """A shader and how it is run."""

    name: str
    file: str
    sha256: str
    embedded_sha256: str
    cols: int
    features: list[str]
    limits: dict[str, Any]
    bindings: list[_Binding]
    overrides: dict[str, Any]
    passes: list[_Pass]
    native: Native


class Vector(TypedDict):
    """A file of inputs and answers."""

    name: str
    file: str
    sha256: str
    cols: int
    rows: int


class Manifest(TypedDict):
    """The manifest, of the one schema that there is."""

    schema: Literal[1]
    op: str
    has_mean: bool
    problem: _Problem
    tensors: list[_Tensor]
    files: dict[str, str]
    cols: list[int]
    shaders: list[Shader]
    vectors: list[Vector]


class _ReportedVector(TypedDict):
    name: str
    verdict: str
    reason: str | None


class ReportedShader(TypedDict):
    """What a page says of a shader."""

    name: str
    skipped: str | None
    max_abs_error: _Number
    vectors: list[_ReportedVector]
    timing: dict[str, Any] | None


class Report(TypedDict):
    """What a page reports."""

    adapter: dict[str, Any]
    features: list[str]
    chosen: dict[str, str | None]
    reasons: dict[str, Any]
    shaders: list[ReportedShader]


def checked(data: Any, form: type[forms.Form], file: str) -> forms.Form:
    """The data as far as it is of the form; WebnormError where something of it is missing or else."""
    try:
        return forms.read(data, form)
    except WebnormError as error:
        raise WebnormError(f"{file}: {error}; {AGAIN}") from error
