"""Traces of kernels: the values of variables for each row, with the float64 values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from webnorm.errors import SourceLocation, WebnormError, sentence
from webnorm.gpu.buffers import Inputs, Outputs, write
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader, refusal
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering import tracing
from webnorm.kernels.rendering.render import Shader, display_path, render_shader
from webnorm.kernels.wgsl.diagnostics import mistyped, read_report
from webnorm.lab.verify.accuracy import tolerance
from webnorm.lab.verify.deviations import DENORMAL, batch_part
from webnorm.op.dtypes import LARGEST_FLOAT32, Array
from webnorm.op.op import Float64Array, Task
from webnorm.op.problem import Problem

# The largest batch of a traced run, and its largest number of elements of x.
_MOST_BATCH, _ELEMENTS = 1024, 1 << 20
_BUFFERS = "max-storage-buffers-per-shader-stage"
Words = npt.NDArray[np.uint32]
_VIEWS = {"f32": np.float32, "f16": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.uint32}
# The suffix of a variable whose name starts with a tensor's name: h3 is taken for an element of h.
_SUFFIX = re.compile(r"(_value)?[0-9]*$")


@dataclass(frozen=True)
class TracedExpression:
    """A trace in the text: its expression, its place, and the WGSL type of its value."""

    name: str
    place: SourceLocation | None
    type: str = "f32"


@dataclass(frozen=True)
class TraceRecord:
    """A value that an invocation computed.

    `site` is an index into the trace's sites and `invocation` the local_invocation_index. `row` is None if
    the text does not give it. `values` contains one number per component, 0 or 1 for a bool. For a step of a
    row these are the existing columns from `column` on. `expected` contains the float64 values of known names
    (see ops.norms.row_statistics). `departs` marks the first record beyond its tolerance.
    """

    site: int
    workgroup: int
    invocation: int
    row: int | None
    values: tuple[float, ...]
    expected: tuple[float, ...] | None = None
    departs: bool = False
    column: int | None = None


@dataclass(frozen=True)
class Trace:
    """The records of a run, sorted by site, row, workgroup and invocation, and otherwise by time.

    Sites are in the order of the text. `count` is the number of records that the kernel made; `records`
    contains as many as fit. `filter` selected them; "" selects all.
    """

    sites: tuple[TracedExpression, ...]
    records: tuple[TraceRecord, ...]
    count: int
    filter: str = ""


def trace(
    device: Device,
    variant: Variant,
    problem: Problem,
    arrays: Mapping[str, Array],
    roots: Sequence[Path] = (),
    filter: str = "",
) -> Trace:
    """Run a problem's first rows once, at most 1024, with the traces in a kernel's text.

    `filter` selects the records to keep, see kernels.rendering.tracing; rows count from 0. Raises
    WebnormError for a text without traces, an expression that the compiler rejects (with its place in the
    template), an invalid filter, and if the variant cannot run.
    """
    problem = problem.with_batch(
        min(problem.batch_size, max(1, min(_MOST_BATCH, _ELEMENTS // problem.inner)))
    )
    shader = render_shader(variant, problem, device.target, device.traits, roots=roots, tracing=filter)
    found = tracing.trace_tags(shader.text, shader.origins)
    if not found:
        raise WebnormError(
            f"{display_path(str(variant.kernel.path))} contains no trace; write {tracing.EXAMPLE} as a "
            "statement after mean is computed"
        )
    if max(len(each.bindings) for each in shader.passes) >= device.limits[_BUFFERS]:
        raise WebnormError(
            f"{variant}: a pass binds all buffers that this device allows, so that none is left for traces; "
            "trace a variant or a device with a free binding"
        )
    kinds = _kinds(device, shader, found)
    shader = replace(shader, text=tracing.with_types(shader.text, kinds))
    given = batch_part(variant.kernel.op, arrays, slice(problem.batch_size))
    count, words = _run(device, shader, given, tracing.parse_filter(filter).numbers)
    read = [kinds[site.variable] for site in found]
    return Trace(
        tuple(
            TracedExpression(site.name, SourceLocation(*site.origin), str(kind))
            for site, kind in zip(found, read, strict=True)
        ),
        _Reading(shader, found, read, given).records(words),
        count,
        filter,
    )


def _run(
    device: Device, shader: Shader, arrays: Mapping[str, Array], numbers: Sequence[int]
) -> tuple[int, Words]:
    """Return the number of records that the kernel made, and the kept ones, of shape (records, WORDS)."""
    written = device.create_buffer(4 * (tracing.HEAD + tracing.WORDS * tracing.MOST_RECORDS))
    write(device, written, np.array((0, *numbers), np.int32).view(np.uint8))
    outputs = Outputs(device, shader.problem, shader.variant.kernel.op.outputs(shader.problem))
    pipelines = compile_shader(device, shader, extra_bindings=1)
    plan = Plan(device, shader, Inputs(device, arrays).buffers, outputs.buffers, pipelines, [written])
    plan.run()
    words = np.frombuffer(device.handle.queue.read_buffer(written), np.uint32)
    count = int(words[0])
    return count, words[tracing.HEAD :].reshape(-1, tracing.WORDS)[:count]


def _kinds(device: Device, shader: Shader, found: Sequence[tracing.TraceTag]) -> dict[str, tracing.TraceType]:
    """Return the types of the values by variable.

    The compiler's errors reveal one type at a time. Traces from one place in the template are assumed to have
    the same type until an error shows otherwise.
    """
    kinds = {site.variable: tracing.FLOAT for site in found}
    known = set[str]()
    places = {site.variable: site for site in found}
    while report := refusal(device, text := tracing.with_types(shader.text, kinds)):
        variable, name = mistyped(report, text.splitlines()) or ("", "")
        if variable not in places:
            raise _refused(shader, found, report)
        site, kind = places[variable], tracing.TraceType.of(name)
        if variable in known:
            reason = f"{_cannot_trace(site)}: its type is both {kinds[variable]} and {name} there"
            raise WebnormError(reason, SourceLocation(*site.origin))
        if kind is None:
            reason = f"{_cannot_trace(site)}: its type is {name}; it must be a scalar or a vector"
            raise WebnormError(reason, SourceLocation(*site.origin))
        known.add(variable)
        siblings = {other.variable for other in found if other.origin == site.origin} - known
        kinds.update(dict.fromkeys({variable, *siblings}, kind))
    return kinds


def _cannot_trace(site: tracing.TraceTag) -> str:
    file, line = site.origin
    return f"{file}:{line}: cannot trace {sentence(site.name, 200)!r}"


def _refused(shader: Shader, found: Sequence[tracing.TraceTag], report: str) -> WebnormError:
    """Return the compiler's error, located at a trace if the line contains one."""
    line, complaint, *_ = read_report(report)
    lines = shader.text.splitlines()
    text = lines[line - 1] if line is not None and line <= len(lines) else ""
    site = next((site for site in found if f"let {site.variable}:" in text), None)
    if site is None:
        return shader.located_error(report)
    return WebnormError(f"{_cannot_trace(site)}: {complaint}", SourceLocation(*site.origin))


@dataclass
class _Reading:
    """Records decoded from words, with the float64 values of their rows.

    `row` and `column` are names of filters and of the playground's snapshots. `traced` contains values by
    name and element of the batch, for expectations that are relative to them.
    """

    shader: Shader
    sites: Sequence[tracing.TraceTag]
    kinds: Sequence[tracing.TraceType]
    arrays: Mapping[str, Array]
    traced: dict[tuple[str, int], float] = field(default_factory=dict)
    of_rows: Mapping[str, TraceExpectation] = field(default_factory=dict)
    of_columns: Mapping[str, TraceExpectation] = field(default_factory=dict)

    def records(self, words: Words) -> tuple[TraceRecord, ...]:
        """Return the records in order; the first one beyond its tolerance is marked."""
        site, workgroup, invocation, row = words.T[:4]
        order = np.lexsort((np.arange(len(words)), invocation, workgroup, row, site))
        self._compute_expectations(np.unique(row[row < self.shader.problem.batch_size]))
        records, departed = [], False
        for record in map(self._read, words[order]):
            expectation = self._expectation(record)
            if expectation is not None:
                expected, tolerances = expectation
                departs = any(map(beyond_tolerance, record.values, expected, tolerances))
                record = replace(record, expected=expected, departs=departs and not departed)
                departed = departed or departs
            records.append(record)
        return tuple(records)

    def _compute_expectations(self, rows: Words) -> None:
        """Compute the float64 values of these rows, if the op defines values of names."""
        op, problem = self.shader.variant.kernel.op, self.shader.problem
        self.at = {row: at for at, row in enumerate(rows.tolist())}
        known = op.hook("trace_expectations")
        if known is None:
            return
        given = batch_part(op, self.arrays, rows)
        task, allowed = Task(op, problem.with_batch(len(rows))), tolerance(self.shader)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            self.of_rows = known.row_expectations(task, given, allowed, self.shader.names)
            self.of_columns = known.column_expectations(task, given, allowed)

    def _read(self, words: Words) -> TraceRecord:
        site, workgroup, invocation, row, column = words[:5].tolist()
        kind = self.kinds[site]
        values = words[5 : 5 + kind.count].view(_VIEWS[kind.scalar]).astype(np.float64)
        first = None
        if self.sites[site].step:
            # Columns before the row's first one wrap around to numbers past its last one.
            live = (column + np.arange(kind.count)) % 2**32 < self.shader.problem.inner
            values, first = values[live], (column + int(live.argmax())) % 2**32
        row = None if row == tracing.NO_ROW else row
        return TraceRecord(site, workgroup, invocation, row, tuple(values.tolist()), column=first)

    def _expectation(self, record: TraceRecord) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Return the float64 values of a record and their tolerances, None for unknown names."""
        name = self.sites[record.site].name
        at = None if record.row is None else self.at.get(record.row)
        if at is None or record.row is None:
            return None
        self.traced.setdefault((name, record.row), record.values[0] if record.values else 0.0)
        if record.column is not None:
            found, begin = self.of_columns.get(_SUFFIX.sub("", name)), record.column
        else:
            found, begin = self.of_rows.get(name), 0
        if found is None or (record.column is None and len(record.values) > 1):
            return None
        part = slice(begin, begin + len(record.values))
        values, off = found.value[at, part].tolist(), found.tolerance[at, part].tolist()
        if found.relative_to is not None:
            base = self.traced.get((found.relative_to, record.row))
            if base is None:
                return None
            values = [value - base for value in values]
        return tuple(values), tuple(off)


@dataclass(frozen=True)
class TraceExpectation:
    """A float64 value and the tolerance of float32, each with the batch first.

    With `relative_to` the traced value is this one minus the traced value of that name.
    """

    value: Float64Array
    tolerance: Float64Array
    relative_to: str | None = None


def beyond_tolerance(value: float, expected: float, tolerance: float) -> bool:
    """Return true if a value is off by more than its tolerance, apart from denormals.

    Beyond float32's range any non-finite value is accepted, because the order of additions decides between
    infinity and NaN.
    """
    if not abs(expected) <= LARGEST_FLOAT32:
        return bool(np.isfinite(value))
    # The tolerance of a row beyond float32's range can be NaN.
    return not (value == expected or abs(value - expected) <= tolerance + DENORMAL)
