"""Results of `check` and `bench`, the JSON they are kept in, and the text they are shown as."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from webnorm import files
from webnorm._version import __version__
from webnorm.errors import WebnormError
from webnorm.gpu.timing import Method, drift
from webnorm.lab import runs
from webnorm.lab.origin import Origin
from webnorm.norms.problem import Array, Problem
from webnorm.printable import one_line, shortened

SCHEMA = 1

Status = Literal["pass", "fail", "skip", "error"]
Cache = Literal["cold", "warm"]
Calls = Literal["one by one", "at once"]
Source = Literal["tuning", "rules"]

# Nanoseconds. What lies beyond is no measurement, and its ratios could leave float64's range.
_SHORTEST_NS, _LONGEST_NS = 1e-9, 1e21
# GB/s that no memory has.
MOST_GBPS = 1e12
# Rows and columns beyond this float64 does not count, and no device has.
_MOST_SIZE = 1 << 53
# Characters of a name, and of a reason or a command.
_MOST_NAME, _MOST_TEXT = 1_000, 50_000


def usable(times: Sequence[float]) -> bool:
    """Whether these are times that can be divided by one another: NaN, infinity, 0 and 1e300 ns are not."""
    return all(_SHORTEST_NS < time < _LONGEST_NS for time in times)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one variant on one problem; None where nothing was measured.

    Times are nanoseconds per dispatch, `gbps` is `bytes` (the op's minimum) over the median.
    `expected` marks the failure of a kernel declared unstable where the corpus says it must fail.
    `worst` names the element nearest to or furthest beyond its tolerance, with what was got and expected.
    `watched` tells whether its use of workgroup memory was watched for races, and could be.
    `flags` holds remarks such as "noisy", "throttled" and "suspicious". `auto` marks the variant that
    kernel="auto" takes for this problem, and says what named it.
    `runs` is how many of the samples each run gave, None for one run. Results of one problem in one run were
    sampled in turn: samples with the same index stand in the same round.
    The first use took `render_ns` for the text, `compile_ns` for wgpu to parse and check it and `pipeline_ns`
    for the driver's compiler. `upload_ns` and `download_ns` are what all inputs took to the device, and all
    outputs back; `call_ns` and `resident_call_ns` a call of the Python interface, on NumPy arrays and on
    GpuArrays.
    """

    op: str
    kernel: str
    constants: Mapping[str, int]
    problem: Problem
    status: Status
    reason: str | None = None
    expected: bool | None = None
    case: str | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: float | None = None
    worst: str | None = None
    non_finite: int | None = None
    deterministic: bool | None = None
    watched: bool | None = None
    median_ns: float | None = None
    p20_ns: float | None = None
    p80_ns: float | None = None
    samples_ns: tuple[float, ...] | None = None
    runs: tuple[int, ...] | None = None
    dispatches_per_sample: int | None = None
    timing_method: Method | None = None
    cache: Cache | None = None
    calls: Calls | None = None
    bytes: int | None = None
    gbps: float | None = None
    percent_of_copy: float | None = None
    flags: tuple[str, ...] = ()
    auto: Source | None = None
    render_ns: float | None = None
    compile_ns: float | None = None
    pipeline_ns: float | None = None
    upload_ns: float | None = None
    download_ns: float | None = None
    upload_bytes: int | None = None
    download_bytes: int | None = None
    call_ns: float | None = None
    resident_call_ns: float | None = None

    @property
    def timed(self) -> bool:
        """Whether this is a right answer with a usable time."""
        return self.status == "pass" and self.median_ns is not None and usable((self.median_ns,))

    @property
    def samples_by_run(self) -> list[Array]:
        """The samples of each run, in nanoseconds."""
        return runs.by_run(self.samples_ns or (), self.runs)

    def beside(self, other: Result) -> bool:
        """Whether the two have samples, all of them usable, of the same rounds of the same runs."""
        mine, others = (
            [len(samples) for samples in one.samples_by_run] if one.samples_ns else []
            for one in (self, other)
        )
        same = mine == others and all(mine) and bool(mine)
        return same and self.sampled and other.sampled

    @cached_property
    def sampled(self) -> bool:
        """Whether there are samples, all of them usable."""
        return bool(self.samples_ns) and usable(self.samples_ns or ())

    @property
    def roofline(self) -> bool:
        """Whether this is a copy, which the other ops are held against."""
        return self.op == "copy"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one run found: the device (name, driver, type...), and the results in order.

    `webnorm` is the version that measured, which a file keeps when a later version rewrites it. `complete` is
    False while a run goes on, and after it was interrupted; that and `origin` are None where a file is older
    than they are.
    """

    device: Mapping[str, Any]
    results: tuple[Result, ...]
    webnorm: str = __version__
    complete: bool | None = None
    origin: Origin | None = None


# --- JSON


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
    _need(data["problem"], _PROBLEM_REQUIRED, f"problem in {where}")
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
_PROBLEM_REQUIRED = ("rows", "cols", "dtype", "eps", "distribution", "seed", "options")
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


# --- Rows of text, the same in the terminal and in Markdown

COLUMNS = (
    "#",
    "kernel",
    "constants",
    "median",
    "+-%",
    "GB/s",
    "% of copy",
    "max abs error",
    "verdict",
    "timing",
)
# The columns of COLUMNS that hold numbers.
NUMERIC = frozenset({"#", "median", "+-%", "GB/s", "% of copy", "max abs error"})
NOTHING = "-"
# Reasons shown per kernel and verdict; the rest is counted.
_MOST_NOTES = 3


def by_problem(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The results of each op and problem with a title, each with the copies of the same shape.

    Copies form a group of their own only where no other op was asked for.
    """
    groups: dict[tuple[str, Problem], list[Result]] = {}
    others = any(not result.roofline for result in results)
    for result in results:
        if not (others and result.roofline):
            groups.setdefault((result.op, result.problem), []).append(result)
    if others:
        for (_, problem), members in groups.items():
            members += (copy for copy in results if copy.roofline and shape(copy.problem) == shape(problem))
    return [(_title(op, problem), members) for (op, problem), members in groups.items()]


def shape(problem: Problem) -> tuple[int, int, str]:
    """What a copy and another op must share to be compared: rows, cols and dtype."""
    return problem.rows, problem.cols, problem.dtype


def best(results: Sequence[Result]) -> Result | None:
    """The fastest right result, by median; None where nothing is both right and timed."""
    return min((result for result in results if result.timed), key=_median, default=None)


def ranked(results: Sequence[Result]) -> list[Result]:
    """The results of one problem in the order of a table: the best copy, then by time, failures last.

    Time is the median of own sample over the copy's sample of the same round. On llvmpipe, of 209 runs on a
    busy machine 7 had two kernels that are over 10 % apart in the wrong order; by medians of times it was 17.
    """
    copies = [result for result in results if result.roofline]
    others = [result for result in results if not result.roofline]
    if not others:
        return sorted(copies, key=_order)
    roofline = [best(copies) or copies[0]] if copies else []
    levels = {id(result): level(result, best(copies)) for result in others}
    return roofline + sorted(others, key=lambda result: (_order(result)[0], levels[id(result)]))


def level(result: Result, copy: Result | None) -> float:
    """A result's time as a multiple of a copy's, round by round where they stand in the same ones; without a
    copy its median.
    """
    if copy is None or copy.median_ns is None or not copy.timed:
        return _median(result)
    if not (result.timed and result.beside(copy)):
        return _median(result) / copy.median_ns
    return float(np.median(np.divide(result.samples_ns or (), copy.samples_ns or ())))


def places(ordered: Sequence[Result]) -> list[str]:
    """The rank of each timed result, "" for others. Those that noise does not part share one: "2=" and "2=".

    A result shares the rank before it unless it is slower than the first of that rank, round by round, with
    95 % confidence.
    """
    ranks: list[int | None] = []
    first: Result | None = None
    rank = 0
    for at, result in enumerate(ordered):
        if result.timed and (first is None or _slower(result, first)):
            first, rank = result, at + 1
        ranks.append(rank if result.timed else None)
    shared = Counter(ranks)
    return ["" if rank is None else f"{rank}=" if shared[rank] > 1 else str(rank) for rank in ranks]


def _slower(result: Result, other: Result) -> bool:
    if not result.beside(other):
        return True
    return runs.ratio_interval(result.samples_by_run, other.samples_by_run)[0] > 1


@dataclass(frozen=True)
class Layout:
    """A table of one problem: `columns` of COLUMNS, a result and its cells per row, `remarks` to go below."""

    columns: tuple[str, ...]
    rows: list[tuple[Result, tuple[str, ...]]]
    remarks: list[str]


def layout(results: Sequence[Result]) -> Layout:
    """`ranked` as cells. How it was timed is said once, below, unless it differs from row to row."""
    hows = {_how(result) for result in results if result.timed}
    rows: list[tuple[Result, tuple[str, ...]]] = []
    mixed = any(not result.roofline for result in results)
    ordered = ranked(results)
    rooflines = sum(mixed and result.roofline for result in ordered)
    for result, place in zip(ordered, [""] * rooflines + places(ordered[rooflines:]), strict=True):
        marked = mixed and result.roofline
        mark = " (roofline)" if marked else " (auto)" if result.auto else ""
        kernel = f"{result.kernel}{mark}"
        rows.append((result, _cells(result, place, kernel, how=len(hows) > 1)))
    remarks = [f"timed by {hows.pop()}"] if len(hows) == 1 else []
    remarks += drift_remarks(results)
    columns: tuple[str, ...] = COLUMNS
    if not any(cells[-1] for _, cells in rows):
        columns, rows = COLUMNS[:-1], [(result, cells[:-1]) for result, cells in rows]
    return Layout(columns, rows, remarks + auto_remarks(results) + notes(results))


def drift_remarks(results: Sequence[Result]) -> list[str]:
    """By how much the best copy became slower while everything was timed, in the worst of its runs."""
    copy = best([result for result in results if result.roofline])
    if copy is None or not copy.sampled:
        return []
    drifts = [drift(own.tolist()) for own in copy.samples_by_run if len(own) > 1]
    if not drifts:
        return []
    most = max(drifts, key=abs)
    return [f"{copy.kernel} at the end of the run: {100 * most:+.1f} % of its time at the beginning"]


def auto_remarks(results: Sequence[Result]) -> list[str]:
    """What auto chose of one problem's variants, and how far it is from the best of them; none unmarked."""
    winner = next((result for result in ranked(results) if result.timed and not result.roofline), None)
    copy = best([result for result in results if result.roofline])
    lines = []
    for result in results:
        if result.auto:
            head = f"auto: {result.kernel} {constants_text(result.constants)}, by {result.auto}"
            if winner is None or not result.timed:
                lines.append(f"{head}: not timed")
            elif winner is result:
                lines.append(f"{head}: the best variant measured")
            else:
                percent = 100 * level(winner, copy) / level(result, copy)
                named = f"{winner.kernel} {constants_text(winner.constants)}"
                lines.append(f"{head}: {percent:.1f} % of the best variant measured, {named}")
    return lines


def notes(results: Sequence[Result]) -> list[str]:
    """Why results failed or were not run, in a line each; equal reasons of one kernel are counted."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in sorted(results, key=_order):
        if result.status != "pass":
            reasons = groups.setdefault((result.kernel, verdict(result)), {})
            reasons.setdefault(result.reason or "no reason was given", []).append(result)
    lines = []
    for (kernel, outcome), reasons in groups.items():
        for reason, members in list(reasons.items())[:_MOST_NOTES]:
            which = f"{len(members)} results" if len(members) > 1 else _which(members[0])
            lines.append(f"{kernel}{f' ({which})' if which else ''}: {outcome}: {reason}")
        rest = sum(map(len, list(reasons.values())[_MOST_NOTES:]))
        if rest:
            lines.append(f"{kernel}: {outcome}: {rest} more, for other reasons")
    return lines


def verdict(result: Result) -> str:
    """The status in words: "pass", "FAIL", "expected failure", "skip" or "error"."""
    if result.status == "fail":
        return "expected failure" if result.expected else "FAIL"
    return result.status


def constants_text(constants: Mapping[str, int]) -> str:
    """The constants as "a=1 b=2"."""
    return " ".join(f"{name}={int(value)}" for name, value in constants.items())


def time_text(nanoseconds: float | None) -> str:
    """A time with three or four digits and its unit."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return NOTHING if nanoseconds is None else str(nanoseconds)
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def _spread_text(result: Result) -> str:
    """Half the distance of the 20th and the 80th percentile, in percent of the median."""
    if not result.timed or result.median_ns is None or result.p20_ns is None or result.p80_ns is None:
        return NOTHING
    return percent_text(50 * (result.p80_ns - result.p20_ns) / result.median_ns)


def percent_text(percent: float | None) -> str:
    """A share in percent, without decimals."""
    if percent is None:
        return NOTHING
    return f"{percent:.0f}" if abs(percent) < 1e6 else f"{percent:.3g}"


def error_text(error: float | None) -> str:
    """An error with two digits."""
    if error is None:
        return NOTHING
    return "0" if error == 0 else f"{error:.1e}"


def device_text(device: Mapping[str, Any]) -> str:
    """One line on the device: its name, backend, type, driver and the wgpu that drove it."""
    details = [str(device[key]) for key in ("backend", "type", "driver") if device.get(key)]
    details += [f"wgpu {device['wgpu']}"] if device.get("wgpu") else []
    name = str(device.get("adapter", "unknown device"))
    return f"{name} ({', '.join(details)})" if details else name


def to_markdown(report: Report) -> str:
    """The device and a table per op and problem, with the columns of the terminal's table."""
    parts = [f"Device: {_escape(device_text(report.device))}. webnorm {_escape(report.webnorm)}."]
    for title, members in by_problem(report.results):
        table = layout(members)
        rules = ("---:" if column in NUMERIC else "---" for column in table.columns)
        lines = [f"| {' | '.join(table.columns)} |", f"| {' | '.join(rules)} |"]
        lines += (f"| {' | '.join(map(_escape, cells))} |" for _, cells in table.rows)
        parts += [f"### {_escape(title)}", "\n".join(lines)]
        if table.remarks:
            parts.append("\n".join(f"- {_escape(remark)}" for remark in table.remarks))
    return "\n\n".join(parts) + "\n"


def to_csv(report: Report) -> str:
    """A line per result without its samples; constants, options and flags are joined by semicolons."""
    names = [field.name for field in fields(Result) if field.name not in ("problem", "samples_ns", "runs")]
    out = io.StringIO()
    writer = csv.DictWriter(out, ["device", *_PROBLEM_REQUIRED, *names], lineterminator="\n")
    writer.writeheader()
    for result in report.results:
        row = result.problem.as_json() | {name: getattr(result, name) for name in names}
        row["device"] = report.device.get("adapter", "")
        row["options"] = str(result.problem.options).replace(", ", ";")
        row["constants"] = _joined(result.constants)
        row["flags"] = ";".join(result.flags)
        writer.writerow({name: row[name] for name in writer.fieldnames})
    return out.getvalue()


def _median(result: Result) -> float:
    return math.inf if result.median_ns is None else result.median_ns


def _order(result: Result) -> tuple[int, float]:
    """Timed ones by median, then the untimed, then from harmless to grave: the last line is read first."""
    grave = ("pass", "skip", "expected failure", "error", "FAIL")
    return (0, _median(result)) if result.timed else (1 + grave.index(verdict(result)), 0.0)


def _which(result: Result) -> str:
    case = f"case {result.case}" if result.case else ""
    return ", ".join(filter(None, (case, constants_text(result.constants))))


def _title(op: str, problem: Problem) -> str:
    drawn = "" if problem.distribution == "normal" else f", {problem.distribution}"
    return f"{op} {problem}{drawn}"


def _how(result: Result) -> str:
    cache = f"{result.cache} cache" if result.cache else ""
    calls = f"calls {result.calls}" if result.calls else ""
    return ", ".join(filter(None, (result.timing_method, cache, calls))) or "unknown means"


def _cells(result: Result, place: str, kernel: str, how: bool) -> tuple[str, ...]:
    remarks = [_how(result)] if how and result.timed else []
    remarks += [*result.flags, *(["not deterministic"] if result.deterministic is False else [])]
    return (
        place,
        kernel,
        constants_text(result.constants) or NOTHING,
        time_text(result.median_ns),
        _spread_text(result),
        NOTHING if result.gbps is None else f"{result.gbps:.4g}",
        percent_text(result.percent_of_copy),
        error_text(result.max_abs_error),
        verdict(result),
        ", ".join(remarks),
    )


def _escape(text: str) -> str:
    text = one_line(" ".join(word for word in re.split("[ \t\n]+", text) if word))
    # An underscore inside a word is plain text in GitHub's Markdown, and names are full of them.
    for special in "\\|*<`":
        text = text.replace(special, "\\" + special)
    # Brackets are plain, too, where no link follows.
    return text.replace("](", "]\\(")


def _joined(values: Mapping[str, Any]) -> str:
    return ";".join(f"{name}={int(value)}" for name, value in values.items())
