"""The summary of a store of visits: medians and verdicts per device, problem and kernel.

A page of any size stays usable, because its data grow with the number of devices, not of visits.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from webnorm._version import __version__
from webnorm.errors import WebnormError, sentence
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Op
from webnorm.op.problem import Problem
from webnorm.op.registry import op_named, problem_from_json
from webnorm.web.collection.collector import VisitForm, VisitResult
from webnorm.web.collection.visit_store import StoredVisit

# rows and cols are names of the results' file format.

SCHEMA = 1
# The values of a kernel, in the order of its list in the JSON. `expected` counts failures that the kernel's
# header declares, `timed` the results with a share of the copy, and `flagged` the timed results with a
# remark such as "noisy". The shares and GB/s are medians, and the error is the largest.
COLUMNS = (
    "kernel",
    "pass",
    "fail",
    "expected",
    "skip",
    "error",
    "timed",
    "flagged",
    "percent_of_copy",
    "gbps",
    "max_abs_error",
)
_VERDICTS = COLUMNS[1:6]
_NAME_AND_VERSION = re.compile(r"(.*\S) +(\d[\d.]*)")

_Device = tuple[str, str, str, str, bool]
_ProblemKey = tuple[str, int, int, str, str, str]


@dataclass
class _KernelResults:
    """The results of one kernel on one problem and device, one from each visit."""

    verdicts: Counter[str] = field(default_factory=Counter)
    flagged: int = 0
    percent: list[float] = field(default_factory=list)
    gbps: list[float] = field(default_factory=list)
    # NaN is worse than infinity.
    error: float | None = None

    def add(self, result: VisitResult) -> None:
        """Count a result, and add its time if it is right."""
        failed_as_declared = result.status == "fail" and result.expected
        self.verdicts["expected" if failed_as_declared else result.status] += 1
        if result.max_abs_error is not None:
            found = [float(result.max_abs_error), *([] if self.error is None else [self.error])]
            self.error = math.nan if any(map(math.isnan, found)) else max(found)
        if result.status == "pass" and result.percent_of_copy is not None:
            self.percent.append(result.percent_of_copy)
            self.flagged += bool(result.flags)
            if result.gbps is not None:
                self.gbps.append(result.gbps)

    def values(self) -> list[Any]:
        """Return the values of COLUMNS after the kernel's name."""
        medians = [median(one) if one else None for one in (self.percent, self.gbps)]
        counts = [self.verdicts[verdict] for verdict in _VERDICTS]
        return [*counts, len(self.percent), self.flagged, *map(_number, (*medians, self.error))]


def _number(value: float | None) -> float | str | None:
    """Return a number with the digits that the page shows and two more; not-finite numbers become strings."""
    if value is None:
        return None
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


@dataclass
class VisitSummary:
    """The visits of a store, added one after the other."""

    visits: int = 0
    left_out: list[str] = field(default_factory=list)
    """For each visit that cannot be read, its number and the reason."""
    received: tuple[str, str] | None = None
    _devices: Counter[_Device] = field(default_factory=Counter)
    _problems: Counter[_ProblemKey] = field(default_factory=Counter)
    _groups: Counter[tuple[_Device, _ProblemKey]] = field(default_factory=Counter)
    _kernels: dict[tuple[_Device, _ProblemKey], dict[str, _KernelResults]] = field(default_factory=dict)
    _keys: dict[bytes, _ProblemKey | None] = field(default_factory=dict)

    def add(self, visit: StoredVisit) -> None:
        """Add a visit; one that does not match the schema is left out."""
        try:
            form = msgspec.json.decode(visit.content, type=VisitForm)
            found = self._first_results(form)
        except (msgspec.DecodeError, UnicodeError, WebnormError) as error:
            self.left_out.append(f"visit {visit.number}: {sentence(str(error))}")
            return
        self.visits += 1
        first, last = self.received or (visit.received, visit.received)
        self.received = min(first, visit.received), max(last, visit.received)
        device = _device_of(form)
        self._devices[device] += 1
        for problem, results in found.items():
            self._problems[problem] += 1
            self._groups[device, problem] += 1
            kernels = self._kernels.setdefault((device, problem), {})
            for kernel, result in results.items():
                kernels.setdefault(kernel, _KernelResults()).add(result)

    def _first_results(self, visit: VisitForm) -> dict[_ProblemKey, dict[str, VisitResult]]:
        """Return a visit's results by problem and kernel, without the copies.

        A page reports each kernel of a problem once. Of repeated results only the first one counts, so that
        one visit has one vote.
        """
        found: dict[_ProblemKey, dict[str, VisitResult]] = {}
        for result in visit.results:
            problem = self._problem_key(result)
            if problem is not None:
                found.setdefault(problem, {}).setdefault(result.kernel, result)
        return found

    def _problem_key(self, result: VisitResult) -> _ProblemKey | None:
        """Return the problem of a result, or None for a copy. Seeds are not distinguished."""
        text = msgspec.json.encode([result.op, result.problem])
        if text not in self._keys:
            op, data = op_named(result.op), msgspec.to_builtins(result.problem)
            self._keys[text] = None if op.is_copy else _key(op, problem_from_json(op.name, data))
        return self._keys[text]

    def as_json(self) -> dict[str, Any]:
        """Return the data of the page; problems with many visits come first."""
        devices = sorted(self._devices, key=lambda device: (-self._devices[device], device))
        problems = sorted(self._problems, key=lambda problem: (-self._problems[problem], *_order(problem)))
        places = {key: at for at, key in enumerate(devices)}, {key: at for at, key in enumerate(problems)}
        groups: list[dict[str, Any]] = [
            {
                "device": places[0][device],
                "problem": places[1][problem],
                "visits": count,
                "kernels": [[name, *one.values()] for name, one in self._kernels[device, problem].items()],
            }
            for (device, problem), count in self._groups.items()
        ]
        groups.sort(key=lambda one: (one["problem"], -one["visits"], one["device"]))
        return {
            "schema": SCHEMA,
            "webnorm": __version__,
            "visits": self.visits,
            "left_out": len(self.left_out),
            "received": list(self.received or ()),
            "devices": [_device_as_json(device, self._devices[device]) for device in devices],
            "problems": [dict(zip(_PROBLEM_NAMES, problem, strict=True)) for problem in problems],
            "ladders": _ladders(dict.fromkeys(op for op, *_ in problems)),
            "columns": COLUMNS,
            "groups": groups,
        }


_PROBLEM_NAMES = ("op", "rows", "cols", "dtype", "options", "distribution")


def summarized(visits: Iterable[StoredVisit]) -> VisitSummary:
    """Return the summary of visits."""
    summary = VisitSummary()
    for visit in visits:
        summary.add(visit)
    return summary


def _key(op: Op, problem: Problem) -> _ProblemKey:
    """Return what the page distinguishes of a problem.

    Options and scalars are in words, as differences from the problem that the lab runs without options.
    """
    rows, cols = (problem.sizes[name] for name in ("rows", "cols"))
    usual = op.problem(rows, cols, dtype=problem.dtype)
    changed = [f"{name}={value:g}" for name, value in problem.scalars.items() if value != usual.scalars[name]]
    options = ", ".join(filter(None, [problem.options.differences(vars(usual.options)), *changed]))
    return op.name, rows, cols, problem.dtype, options, problem.distribution


def _order(problem: _ProblemKey) -> tuple[Any, ...]:
    """Order problems by what people look for first."""
    op, rows, cols, dtype, options, distribution = problem
    return op, options, distribution, cols, [*STORAGE].index(dtype), rows


def _device_of(visit: VisitForm) -> _Device:
    device = visit.device
    named = _NAME_AND_VERSION.fullmatch(device.driver)
    engine, version = named.groups() if named else (device.driver, "")
    return device.adapter, device.vendor, engine, version, device.type == "CPU"


def _device_as_json(device: _Device, visits: int) -> dict[str, Any]:
    names = ("adapter", "vendor", "engine", "version", "software")
    return {**dict(zip(names, device, strict=True)), "visits": visits}


def _ladders(ops: Iterable[str]) -> list[dict[str, Any]]:
    """Return webnorm's kernels of each op in the order of the ladder, which the page's columns follow."""
    kernels = sorted(discover(), key=lambda kernel: kernel.rung)
    return [{"op": op, "kernels": [kernel.name for kernel in kernels if kernel.op.name == op]} for op in ops]
