"""`webnorm scan`: list the norms of a model."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from webnorm.cli.options import shared, values
from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.cli.terminal.streams import emit, say
from webnorm.cli.work.jobs import INCONCLUSIVE
from webnorm.cli.work.model_norms import dimensions, norm_task
from webnorm.cli.work.norm_accuracy import INPUTS, NormAccuracy, norm_accuracies
from webnorm.errors import WebnormError, counted, unknown

if TYPE_CHECKING:
    from webnorm.choice.tuning import Tuning
    from webnorm.gpu.device import AdapterInfo
    from webnorm.models.norm_use import ModelScan, NormUse

# The same draws in every run.
_SEED = 0


def scan(
    model: Annotated[
        Path,
        Argument(
            help="The model: an ONNX file, a config.json, a safetensors file, or a folder with one of them."
        ),
    ],
    dim: shared.Dims = None,
    dtype: Annotated[
        str | None,
        Option(help="Set the storage type: float32, float16 or bfloat16. Default: the model's own type."),
    ] = None,
    accuracy: Annotated[
        bool,
        Option(
            "--accuracy",
            help="Read the norms' own weights, run each norm on draws, and compare it with float64. Also "
            "name the nodes where float16 arithmetic would be wrong.",
        ),
    ] = False,
    json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
) -> None:
    """It needs no network, and without --accuracy it reads no weights. Each norm has the kernel that auto
    chooses for it.
    """
    from webnorm.models.scan import scan_model
    from webnorm.op.dtypes import DTYPES_ELSEWHERE, STORAGE

    if dtype is not None and dtype not in STORAGE:
        raise unknown("dtype", dtype, STORAGE, DTYPES_ELSEWHERE.get(dtype))
    found = scan_model(model, dimensions(dim), dtype)
    info = values.adapter_or_none(adapter)
    tuning = None if info is None else values.recorded_tuning(info.description())
    choices = [_choice(use, info, tuning) for use in found.uses]
    errors = norm_accuracies(found, adapter, _SEED) if accuracy else []
    if json:
        emit(json_format.dumps(_as_json(found, choices, errors), indent=1))
    else:
        _show(found, choices, errors)
    if found.missing:
        raise Exit(INCONCLUSIVE)


@dataclass(frozen=True)
class _Choice:
    """The kernel and constants that auto chooses for a norm, or why there is none."""

    kernel: str = ""
    constants: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


def _choice(use: NormUse, info: AdapterInfo | None, tuning: Tuning | None) -> _Choice:
    """Return the kernel for a norm on an adapter."""
    from webnorm.choice.defaults import choose_own

    try:
        task = norm_task(use)
        if info is None:
            return _Choice(reason="there is no adapter")
        chosen = choose_own(task, info.traits, tuning).variant
        return _Choice(chosen.kernel.name, chosen.constants)
    except WebnormError as error:
        return _Choice(reason=str(error))


def _as_json(found: ModelScan, choices: Sequence[_Choice], errors: Sequence[NormAccuracy]) -> dict[str, Any]:
    return {
        "model": found.source,
        "kind": found.kind,
        "assumed": dict(found.assumed),
        "notes": list(found.notes),
        "missing": list(found.missing),
        "norms": [
            {
                **use.as_json(),
                "kernel": choice.kernel or None,
                "constants": dict(choice.constants),
                "reason": choice.reason or None,
                **({"accuracy": errors[at].as_json()} if errors else {}),
            }
            for at, (use, choice) in enumerate(zip(found.uses, choices, strict=True))
        ],
    }


def _show(found: ModelScan, choices: Sequence[_Choice], errors: Sequence[NormAccuracy]) -> None:
    """Print one line per norm, and below what the scan assumed and does not know."""
    total = sum(use.count for use in found.uses)
    say(f"{found.source}: {counted(total, 'norm')}, {counted(len(found.uses), 'distinct norm')}")
    if found.uses:
        Screen().print(FittedTable([*_columns(found.uses, choices), *_error_columns(errors)]))
    console = Screen()
    for line in (*_remarks(found, choices), *_error_remarks(found, errors)):
        console.print(escaped_line(line, "dim"), soft_wrap=True)


def _columns(uses: Sequence[NormUse], choices: Sequence[_Choice]) -> list[Column]:
    texts: Mapping[str, list[str]] = {
        "op": [use.op for use in uses],
        "shape": [use.shape_text for use in uses],
        "type": [use.dtype or "-" for use in uses],
        "options": [" ".join((*use.options, *_scalar_texts(use))) or "-" for use in uses],
        "form": [use.form for use in uses],
        "kernel": [choice.kernel or "-" for choice in choices],
    }
    ranks = {"options": 2, "form": 1, "kernel": 3}
    columns = [
        Column(
            name, [escaped_line(text, "cyan" if name == "op" else "") for text in cells], rank=ranks.get(name)
        )
        for name, cells in texts.items()
    ]
    counts = Column("count", [escaped_line(str(use.count)) for use in uses], right=True)
    return [counts, *columns]


def _error_columns(errors: Sequence[NormAccuracy]) -> Iterator[Column]:
    from webnorm.lab.results.tables import error_text

    if errors:
        texts = {
            "error": [error_text(one.error) for one in errors],
            "float16 error": [error_text(one.float16_error) for one in errors],
        }
        yield from (Column(name, [*map(escaped_line, cells)], right=True) for name, cells in texts.items())


def _error_remarks(found: ModelScan, errors: Sequence[NormAccuracy]) -> Iterator[str]:
    if not errors:
        return
    yield INPUTS
    for use, one in zip(found.uses, errors, strict=True):
        if one.error is not None and one.known < max(1, len(use.parameters)):
            yield f"{use.op} of {use.shape_text}: {one.known} of {use.count} nodes have known weights"
        for node, why in one.wrong.items():
            yield f"float16 arithmetic would be wrong at {node or use.op}: {why}"


def _scalar_texts(use: NormUse) -> Iterator[str]:
    return (f"{name}={value:g}" for name, value in (use.scalars or {}).items())


def _remarks(found: ModelScan, choices: Sequence[_Choice]) -> Iterator[str]:
    if found.assumed:
        pairs = ", ".join(f"{name}={size}" for name, size in found.assumed.items())
        yield f"assumed: {pairs} (--dim NAME=N changes them)"
    reasons: dict[str, None] = {}
    for use, choice in zip(found.uses, choices, strict=True):
        reasons |= dict.fromkeys(f"{use.op}: {note}" for note in use.notes)
        if choice.reason:
            reasons[f"no kernel: {choice.reason}"] = None
    yield from reasons
    yield from found.notes
    yield from (f"not known: {line}" for line in found.missing)
