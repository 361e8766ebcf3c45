"""What a kernel's traces say: the values of its variables for each row, beside float64's."""

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

# Elements of the batch that are run at most, and elements of x in them.
_MOST_BATCH, _ELEMENTS = 1024, 1 << 20
_BUFFERS = "max-storage-buffers-per-shader-stage"
Words = npt.NDArray[np.uint32]
_VIEWS = {"f32": np.float32, "f16": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.uint32}
# What a variable's name has behind that of the tensor whose element it seems to be: h3 is one of h.
_SUFFIX = re.compile(r"(_value)?[0-9]*$")


@dataclass(frozen=True)
class TracedExpression:
    """A trace in the text: its expression, where it stands, and the WGSL type of its value."""

    name: str
    place: SourceLocation | None
    type: str = "f32"


@dataclass(frozen=True)
class TraceRecord:
    """A value that an invocation came to. `site` is a number among the trace's sites, `invocation` the
    local_invocation_index; `row` is None where the text does not tell it.

    `values` has a number for each component, 0 and 1 for a bool. Of a step of a row these are the columns
    from `column` on, those that exist. `expected` is float64's for names that are known (see
    ops.norms.row_statistics), and `departs` marks the first record that is beyond its tolerance.
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
    """The records of a run by site, in the order of the text, then by row, workgroup and invocation, each
    invocation's as they came. `count` is how many there were: a record for each that there was room for.
    `filter` picked them, "" all.
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
    """Run a problem's first rows once, 1024 of them at most, with the traces of a kernel's text.

    `filter` says which records to keep, see kernels.rendering.tracing; rows are counted from 0. Raises
    WebnormError for a text without traces, an expression that the compiler refuses (with its place in the
    template), a filter that is none, and where the variant cannot run.
    """
    problem = problem.with_batch(
        min(problem.batch_size, max(1, min(_MOST_BATCH, _ELEMENTS // problem.inner)))
    )
    shader = render_shader(variant, problem, "native", device.traits, roots=roots, tracing=filter)
    found = tracing.trace_tags(shader.text, shader.origins)
    if not found:
        raise WebnormError(
            f"{display_path(str(variant.kernel.path))}: its text has no trace; write {tracing.EXAMPLE} as a "
            "statement where mean is known"
        )
    if max(len(each.bindings) for each in shader.passes) >= device.limits[_BUFFERS]:
        raise WebnormError(
            f"{variant}: a pass binds as many buffers as this device has; none is left to trace"
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
    """How many records there were, and those that are kept, (records, WORDS)."""
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
    """The types of the values by their variables, which the compiler tells one at a time; those of one place
    in the template are likely to be alike.
    """
    kinds = {site.variable: tracing.FLOAT for site in found}
    told = set[str]()
    places = {site.variable: site for site in found}
    while report := refusal(device, tracing.with_types(shader.text, kinds)):
        variable, name = mistyped(report) or ("", "")
        if variable not in places:
            raise _refused(shader, found, report)
        site, kind = places[variable], tracing.TraceType.of(name)
        if variable in told:
            why = f"{_told(site)}: it is of type {kinds[variable]} and of type {name} there"
            raise WebnormError(why, SourceLocation(*site.origin))
        if kind is None:
            why = f"{_told(site)}: it is of type {name}; expected a scalar or a vector"
            raise WebnormError(why, SourceLocation(*site.origin))
        told.add(variable)
        alike = {other.variable for other in found if other.origin == site.origin} - told
        kinds.update(dict.fromkeys({variable, *alike}, kind))
    return kinds


def _told(site: tracing.TraceTag) -> str:
    file, line = site.origin
    return f"{file}:{line}: cannot trace {sentence(site.name, 200)!r}"


def _refused(shader: Shader, found: Sequence[tracing.TraceTag], report: str) -> WebnormError:
    """What the compiler says, of a trace where one stands in the line."""
    line, complaint, *_ = read_report(report)
    lines = shader.text.splitlines()
    text = lines[line - 1] if line is not None and line <= len(lines) else ""
    site = next((site for site in found if f"let {site.variable}:" in text), None)
    if site is None:
        return shader.located_error(report)
    return WebnormError(f"{_told(site)}: {complaint}", SourceLocation(*site.origin))


@dataclass
class _Reading:
    """Records read from words, beside what float64 says of the rows that they are about. `row` and `column`
    are names of filters and of the playground's snapshots.

    `traced` has values by name and element of the batch, for those that are relative to them.
    """

    shader: Shader
    sites: Sequence[tracing.TraceTag]
    kinds: Sequence[tracing.TraceType]
    arrays: Mapping[str, Array]
    traced: dict[tuple[str, int], float] = field(default_factory=dict)
    of_rows: Mapping[str, TraceExpectation] = field(default_factory=dict)
    of_columns: Mapping[str, TraceExpectation] = field(default_factory=dict)

    def records(self, words: Words) -> tuple[TraceRecord, ...]:
        """The records in order, of which the first that departs is marked."""
        site, workgroup, invocation, row = words.T[:4]
        order = np.lexsort((np.arange(len(words)), invocation, workgroup, row, site))
        self._know(np.unique(row[row < self.shader.problem.batch_size]))
        records, departed = [], False
        for record in map(self._read, words[order]):
            beside = self._beside(record)
            if beside is not None:
                expected, tolerances = beside
                departs = any(map(beyond_tolerance, record.values, expected, tolerances))
                record = replace(record, expected=expected, departs=departs and not departed)
                departed = departed or departs
            records.append(record)
        return tuple(records)

    def _know(self, rows: Words) -> None:
        """Ask float64 about these rows, where the op says what values of their names are."""
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
            # Columns before the row's first wrap to numbers past its last.
            live = (column + np.arange(kind.count)) % 2**32 < self.shader.problem.inner
            values, first = values[live], (column + int(live.argmax())) % 2**32
        row = None if row == tracing.NO_ROW else row
        return TraceRecord(site, workgroup, invocation, row, tuple(values.tolist()), column=first)

    def _beside(self, record: TraceRecord) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """What float64 says in the place of a record's values, and how far they may be off."""
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
    """A value in float64 and how far float32 may be off, each with the batch first.

    With `relative_to` the traced value is what is left of this one when the traced one of that name is taken
    off.
    """

    value: Float64Array
    tolerance: Float64Array
    relative_to: str | None = None


def beyond_tolerance(value: float, expected: float, tolerance: float) -> bool:
    """Whether a value is off by more, denormals aside. Past float32's range the order of additions decides
    between an infinity and NaN.
    """
    if not abs(expected) <= LARGEST_FLOAT32:
        return bool(np.isfinite(value))
    # The tolerance of a row past float32's range is none.
    return not (value == expected or abs(value - expected) <= tolerance + DENORMAL)
