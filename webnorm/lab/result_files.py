"""Results in JSON: written strictly, read with every value held against what it can be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from webnorm import files
from webnorm.errors import WebnormError, shortened
from webnorm.gpu.timing import Method
from webnorm.lab.origin import Origin
from webnorm.lab.results import Cache, Calls, Report, Result, Source, Status
from webnorm.norms.problem import Problem

SCHEMA = 1
# Rows and columns beyond this float64 does not count, and no device has.
_MOST_SIZE = 1 << 53
# Characters of a name, and of a reason or a command.
_MOST_NAME, _MOST_TEXT = 1_000, 50_000


def to_json(report: Report) -> str:
    """The report as strict JSON, a result per line; a number that is not finite is a string: "inf"."""
    about = {"complete": report.complete, **(asdict(report.origin) if report.origin else {})}
    head = {"schema": SCHEMA, "webnorm": report.webnorm}
    head |= {name: value for name, value in about.items() if value is not None}
    head["device"] = _strict(report.device)
    lines = ",\n".join(json.dumps(_as_json(result), allow_nan=False) for result in report.results)
    text = f'{json.dumps(head, allow_nan=False)[:-1]}, "results": [\n{lines}\n]}}\n'
    # The one control character that the library leaves as it is.
    return text.replace("\x7f", r"\u007f")


def read(path: Path) -> Report:
    """The report kept in a JSON file; WebnormError where that cannot be read or understood."""
    try:
        data = files.read_json(path)
    except OSError as error:
        raise WebnormError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WebnormError(f"{path} is not JSON: {error}") from error
    _need(data, ("schema",), f"{path}")
    if data["schema"] != SCHEMA:
        raise WebnormError(f"schema is {data['schema']!r}; this webnorm reads {SCHEMA}: {path}")
    _need(data, ("webnorm", "device", "results"), f"{path}")
    if not isinstance(data["device"], dict) or not isinstance(data["results"], list):
        raise WebnormError(f"device is not an object or results is not a list: {path}")
    for key in _SHOWN_OF_DEVICE:
        _known(data["device"], key, _name, f"device of {path}")
    results = (_from_json(entry, f"results[{at}] of {path}") for at, entry in enumerate(data["results"]))
    return Report(
        device=data["device"],
        results=tuple(results),
        webnorm=_known(data, "webnorm", _name, f"{path}"),
        complete=_known(data, "complete", _flag, f"{path}"),
        origin=_origin(data, f"{path}"),
    )


def _as_json(result: Result) -> dict[str, Any]:
    given = {field.name: getattr(result, field.name) for field in fields(Result)}
    given["problem"] = result.problem.as_json()
    given["constants"] = {name: int(value) for name, value in result.constants.items()}
    given["flags"] = result.flags or None
    return {name: _strict(value) for name, value in given.items() if value is not None}


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return shortened(value, _MOST_TEXT)
    if isinstance(value, Mapping):
        return {name: _strict(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return value


def _need(data: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(data, dict):
        raise WebnormError(f"expected an object: {where}")
    for key in keys:
        if key not in data:
            raise WebnormError(f"key {key!r} is missing: {where}")


def _from_json(data: Any, where: str) -> Result:
    _need(data, _REQUIRED, where)
    _need(data["problem"], PROBLEM_KEYS, f"problem in {where}")
    # Keys that are not known here are passed over: a later webnorm may add some without a new schema.
    values = {name: _known(data, name, convert, where) for name, convert in _CONVERT.items() if name in data}
    result = Result(**values)
    if result.runs is not None and sum(result.runs) != len(result.samples_ns or ()):
        raise WebnormError(f"runs is not understood: they are not as many as samples_ns: {where}")
    return result


def _known(data: Mapping[str, Any], name: str, convert: Callable[[Any], Any], where: str) -> Any:
    """The value of a key, None where the file does not have it."""
    try:
        return convert(data[name]) if name in data else None
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, WebnormError) as error:
        raise WebnormError(f"{name} is not understood: {shortened(str(error), 500)}: {where}") from error


def _origin(data: Mapping[str, Any], where: str) -> Origin | None:
    if "run" not in data:
        return None
    _need(data, ("time", "command", "host"), where)
    return Origin(**{field.name: _known(data, field.name, _text, where) for field in fields(Origin)})


def _exactly(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        # bool is a subclass of int, but true is no count.
        if type(value) is not kind:
            raise TypeError(f"{value!r}; expected {kind.__name__}")
        return value

    return convert


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{value!r}; expected one of {', '.join(choices)}")
        return str(value)

    return convert


def _number(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in ("inf", "-inf", "nan")):
        raise TypeError(f"{value!r}; expected a number")
    return float(value)


def _count(value: Any) -> int:
    if _integer(value) < 1:
        raise ValueError(f"{value}; expected 1 or more")
    return int(value)


def _size(value: Any) -> int:
    if not 0 <= _integer(value) <= _MOST_SIZE:
        raise ValueError(f"{value}; expected 0 to 2^53")
    return int(value)


def _problem(value: Any) -> Problem:
    problem = Problem.from_json(value)
    _size(problem.rows)
    _size(problem.cols)
    _size(problem.options.max_workgroups)
    return problem


def _no_longer_than(most: int) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if len(_string(value)) > most:
            raise ValueError(f"{len(value)} characters; expected {most} at most")
        return str(value)

    return convert


_string, _integer, _flag = _exactly(str), _exactly(int), _exactly(bool)
# Files written before shortened texts had their length have a few words more.
_name, _text = _no_longer_than(_MOST_NAME), _no_longer_than(_MOST_TEXT + 100)
_SHOWN_OF_DEVICE = ("adapter", "vendor", "backend", "type", "driver", "wgpu")
_REQUIRED = ("op", "kernel", "constants", "problem", "status")
PROBLEM_KEYS = ("rows", "cols", "dtype", "eps", "distribution", "seed", "options")


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "op": _name,
    "kernel": _name,
    "constants": lambda value: {_name(name): _integer(constant) for name, constant in value.items()},
    "problem": _problem,
    "status": _one_of(get_args(Status)),
    "reason": _text,
    "expected": _flag,
    "case": _name,
    "max_abs_error": _number,
    "max_rel_error": _number,
    "tolerance": _number,
    "worst": _text,
    "non_finite": _size,
    "deterministic": _flag,
    "watched": _flag,
    "median_ns": _number,
    "p20_ns": _number,
    "p80_ns": _number,
    "samples_ns": lambda value: tuple(map(_number, value)),
    "runs": lambda value: tuple(map(_count, value)),
    "dispatches_per_sample": _size,
    "timing_method": _one_of(get_args(Method)),
    "cache": _one_of(get_args(Cache)),
    "calls": _one_of(get_args(Calls)),
    "bytes": _size,
    "gbps": _number,
    "percent_of_copy": _number,
    "flags": lambda value: tuple(map(_name, value)),
    "auto": _one_of(get_args(Source)),
    "render_ns": _number,
    "compile_ns": _number,
    "pipeline_ns": _number,
    "upload_ns": _number,
    "download_ns": _number,
    "upload_bytes": _size,
    "download_bytes": _size,
    "call_ns": _number,
    "resident_call_ns": _number,
}
