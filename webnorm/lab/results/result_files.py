"""Results in JSON: written strictly, read with every value held against what it can be."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from webnorm import signals
from webnorm.errors import WebnormError, shortened
from webnorm.files import atomic, forms
from webnorm.files.forms import MOST_TEXT, Name
from webnorm.lab.results.result import PROBLEM_KEYS, Origin, Report, Result
from webnorm.op.registry import OPS, problem_from_json

SCHEMA = 1
# What may be "inf", "-inf" or "nan".
_NUMBERS = {field.name for field in fields(Result) if "float" in str(field.type)}


def to_json(report: Report) -> str:
    """The report as strict JSON, a result per line; a number that is not finite is a string: "inf"."""
    head = {"schema": SCHEMA, "webnorm": report.webnorm, "complete": report.complete}
    head |= {**(asdict(report.origin) if report.origin else {}), "device": _strict(report.device)}
    text = json_lines(head, "results", map(result_as_json, report.results)) + "\n"
    # The one control character that the library leaves as it is.
    return text.replace("\x7f", r"\u007f")


def json_lines(head: Mapping[str, Any], name: str, entries: Iterable[Mapping[str, Any]]) -> str:
    """An object with what is `known` of a head and, under a name, of a list of entries, one per line."""
    lines = ",\n".join(json.dumps(known(one), allow_nan=False) for one in entries)
    return f'{json.dumps(known(head), allow_nan=False)[:-1]}, "{name}": [\n{lines}\n]}}'


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that there are, without numbers that are not finite."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


@signals.deferring
def read(path: Path) -> Report:
    """The report kept in a JSON file; WebnormError where that cannot be read or understood."""
    return read_with_data(path)[1]


@signals.deferring
def read_with_data(path: Path) -> tuple[Any, Report]:
    """A JSON file's data, and the report that they are; WebnormError as `read` has it."""
    try:
        data = atomic.read_json(path)
    except OSError as error:
        raise WebnormError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WebnormError(f"{path} is not JSON: {error}") from error
    with forms.at(f"{path}"):
        return data, report_from_json(data)


def make_folder(folder: Path) -> None:
    """Make a folder of results where there is none; WebnormError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise WebnormError(f"cannot make {folder}: {getattr(error, 'strerror', None) or error}") from error


def report_from_json(data: Any) -> Report:
    """The report that JSON's data are; WebnormError for what does not fit."""
    head = forms.read(data, ReportHead)
    _refuse_null(data)
    forms.read(head.device, _Shown, "device")
    # Older files call the moment `time`.
    older = {"recorded": data["time"]} if "time" in data else {}
    return Report(
        device=head.device,
        results=tuple(_result(entry, f"results[{at}]") for at, entry in enumerate(head.results)),
        webnorm=head.webnorm,
        complete=head.complete,
        origin=forms.read({**older, **data}, Origin) if "run" in data else None,
    )


# An op of the user's has sizes and scalars of its own.
_KEYS_OF_EVERY_PROBLEM = ("dtype", "distribution", "seed", "options")


class ReportHead(Struct):
    """What stands before the results."""

    schema: Literal[1]
    webnorm: Name
    device: dict[str, Any]
    results: list[dict[str, Any]]
    complete: bool | None = None


# Of what a file is made: its own keys are those of the first two.
FORMS = (ReportHead, Origin, Result)


class _Shown(Struct):
    """What is shown of a device, where the file has it."""

    adapter: Name = ""
    vendor: Name = ""
    backend: Name = ""
    type: Name = ""
    driver: Name = ""
    wgpu: Name = ""


def result_as_json(result: Result) -> dict[str, Any]:
    """A result as it stands in a file: what is not known has no key."""
    given = {field.name: getattr(result, field.name) for field in fields(Result)}
    given["problem"] = result.problem.as_json()
    given["constants"] = {name: int(value) for name, value in result.constants.items()}
    given["flags"] = result.flags or None
    given["place"] = result.place and asdict(result.place)
    return {name: _strict(value) for name, value in given.items() if value is not None}


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return shortened(value, MOST_TEXT)
    if isinstance(value, Mapping):
        return {name: _strict(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return value


def _result(entry: dict[str, Any], place: str) -> Result:
    """A result. Keys that are not known here are passed over: a later webnorm may add some without a new
    schema.
    """
    _refuse_null(entry, place)
    values = {name: _number(value) if name in _NUMBERS else value for name, value in entry.items()}
    if "problem" in entry:
        data = forms.read(entry["problem"], dict[str, Any], f"{place}.problem")
        known = OPS.get(str(entry.get("op")))
        # A copy has the problem of the op that it was timed next to.
        own = known is not None and known.source is None and not known.is_copy
        keys = PROBLEM_KEYS if own else _KEYS_OF_EVERY_PROBLEM
        for key in keys:
            if key not in data:
                raise WebnormError(f"{place}.problem.{key} is missing")
        with forms.at(f"{place}.problem"):
            values["problem"] = problem_from_json(entry.get("op"), data)
    result = forms.read(values, Result, place)
    if result.runs is not None and sum(result.runs) != len(result.samples_ns or ()):
        raise WebnormError(f"{place}.runs is {result.runs}; expected them to add up to samples_ns")
    return result


def _refuse_null(data: Mapping[str, Any], place: str = "") -> None:
    for name, value in data.items():
        if value is None:
            raise WebnormError(f"{place}.{name} is null; expected a value, or no such key".removeprefix("."))


def _number(value: Any) -> Any:
    """A number, or several, as it was before it was written."""
    if isinstance(value, list):
        return [_number(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value
