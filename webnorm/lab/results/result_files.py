"""Report files: strict JSON on writing, validation of every value on reading."""

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
_EXPECTED = "expected a file that `webnorm bench --json FILE` or `webnorm check --json FILE` wrote"
# Fields that may be "inf", "-inf" or "nan".
_NUMBERS = {field.name for field in fields(Result) if "float" in str(field.type)}


def to_json(report: Report) -> str:
    """Return the report as strict JSON, one result per line; non-finite numbers are strings such as "inf"."""
    head = {"schema": SCHEMA, "webnorm": report.webnorm, "complete": report.complete}
    head |= {**(asdict(report.origin) if report.origin else {}), "device": _strict(report.device)}
    text = json_lines(head, "results", map(result_as_json, report.results)) + "\n"
    # DEL is the one control character that the json module does not escape.
    return text.replace("\x7f", r"\u007f")


def json_lines(head: Mapping[str, Any], name: str, entries: Iterable[Mapping[str, Any]]) -> str:
    """Return a JSON object with the `known` values of a head and, under `name`, of entries, one per line."""
    lines = ",\n".join(json.dumps(known(one), allow_nan=False) for one in entries)
    return f'{json.dumps(known(head), allow_nan=False)[:-1]}, "{name}": [\n{lines}\n]}}'


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None, without non-finite numbers."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


@signals.deferring
def read(path: Path) -> Report:
    """Return the report in a JSON file; raise WebnormError if the file cannot be read or is invalid."""
    return read_with_data(path)[1]


@signals.deferring
def read_with_data(path: Path) -> tuple[Any, Report]:
    """Return a JSON file's data and the report in it; raise WebnormError as `read` does."""
    try:
        data = atomic.read_json(path)
    except OSError as error:
        raise WebnormError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WebnormError(f"{path} is not JSON; {_EXPECTED}") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise WebnormError(f"{path} is not a results file: it has no key 'schema'; {_EXPECTED}")
    with forms.at(f"{path}"):
        return data, report_from_json(data)


def make_folder(folder: Path) -> None:
    """Create a folder for results if it does not exist; raise WebnormError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise WebnormError(f"cannot create {folder}: {getattr(error, 'strerror', None) or error}") from error


def report_from_json(data: Any) -> Report:
    """Return the report in JSON data; raise WebnormError if the data are invalid."""
    head = forms.read(data, ReportHead)
    _refuse_null(data)
    forms.read(head.device, _DeviceText, "device")
    # Older files use the key `time`.
    older = {"recorded": data["time"]} if "time" in data else {}
    return Report(
        device=head.device,
        results=tuple(_result(entry, f"results[{at}]") for at, entry in enumerate(head.results)),
        webnorm=head.webnorm,
        complete=head.complete,
        origin=forms.read({**older, **data}, Origin) if "run" in data else None,
    )


# Other keys depend on the op.
_KEYS_OF_EVERY_PROBLEM = ("dtype", "distribution", "seed", "options")


class ReportHead(Struct):
    """The head of a report file, before the results."""

    schema: Literal[1]
    webnorm: Name
    device: dict[str, Any]
    results: list[dict[str, Any]]
    complete: bool | None = None


# The parts of a file. The keys of its top level are the fields of the first two.
FORMS = (ReportHead, Origin, Result)


class _DeviceText(Struct):
    """The parts of a device's description that messages and tables show."""

    adapter: Name = ""
    vendor: Name = ""
    backend: Name = ""
    type: Name = ""
    driver: Name = ""
    wgpu: Name = ""


def result_as_json(result: Result) -> dict[str, Any]:
    """Return a result as stored in a file; unknown values have no key."""
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
    """Return a result. Unknown keys are ignored: a later webnorm may add keys without a new schema."""
    _refuse_null(entry, place)
    values = {name: _number(value) if name in _NUMBERS else value for name, value in entry.items()}
    if "problem" in entry:
        data = forms.read(entry["problem"], dict[str, Any], f"{place}.problem")
        known = OPS.get(str(entry.get("op")))
        # A copy has the problem of the op that it was timed with.
        own = known is not None and known.source is None and not known.is_copy
        keys = PROBLEM_KEYS if own else _KEYS_OF_EVERY_PROBLEM
        for key in keys:
            if key not in data:
                raise WebnormError(f"{place}.problem.{key} is missing")
        with forms.at(f"{place}.problem"):
            values["problem"] = problem_from_json(entry.get("op"), data)
    result = forms.read(values, Result, place)
    if result.runs is not None and sum(result.runs) != len(result.samples_ns or ()):
        raise WebnormError(
            f"{place}.runs is {result.runs}; the sum must be the number of samples_ns, "
            f"{len(result.samples_ns or ())}"
        )
    return result


def _refuse_null(data: Mapping[str, Any], place: str = "") -> None:
    for name, value in data.items():
        if value is None:
            raise WebnormError(f"{place}.{name} is null; set a value or remove the key".removeprefix("."))


def _number(value: Any) -> Any:
    """Return one or several numbers, with strings such as "inf" converted back."""
    if isinstance(value, list):
        return [_number(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value
