"""Traces of kernels, compared with float64."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed import needs
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.diagnose.trace import Trace, TraceRecord, beyond_tolerance, trace
from webnorm.lab.run.evaluation import EvaluationJob, TraceJob, trace_file
from webnorm.op.op import make_inputs
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem

TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text()
RSTD = "    let rstd = inverseSqrt(variance + params.eps);\n"
MEAN = "    var distances = Vec();\n"
STEP = "        distances += d;\n"
PROBLEM = NormProblem(rows=7, cols=61)


def tagged(tags: Mapping[str, str], text: str = TWO_PASS) -> str:
    """Return the text with traces after some of its lines."""
    for line, tag in tags.items():
        assert text.count(line) == 1, line
        text = text.replace(line, line + tag + "\n")
    return text


# The columns of an invocation depend on the number of invocations.
EIGHT = {"threads_per_row": 8}


def traced(
    device: Device,
    folder: Path,
    text: str,
    filter: str = "",
    problem: NormProblem = PROBLEM,
    given: Mapping[str, int] | None = None,
) -> Trace:
    path = folder / "layer_norm" / "traced.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    kernel = load(path)
    variant = default_variant(kernel, problem, device.traits)
    variant = replace(variant, constants={**variant.constants, **(given or {})})
    needs(device, variant.features(problem, device.traits))
    return trace(device, variant, problem, make_inputs(kernel.op, problem), (), filter)


def of(found: Trace, name: str) -> list[TraceRecord]:
    """Return the records of all sites with a name."""
    return [record for record in found.records if found.sites[record.site].name == name]


ALL = {
    MEAN: '{{ trace("mean") }}',
    STEP: '        {{ trace("x", "j") }}',
    "    let sums = row_sums(vec2(total(distances), total(squares)), thread);\n": '{{ trace("sums") }}',
    RSTD: '    {{ trace("low") }}\n    {{ trace("variance") }}{{ trace("rstd") }}\n'
    '    {{ trace("place * 3u") }} {{ trace("row_exists") }} {{ trace("-i32(row)") }} {{ trace("2 + 1") }}',
}
# This part of the step is x.
LOADS = (
    "        let d = where_live(load_input(row, j, thread) - mean,",
    "        let x = load_input(row, j, thread);\n        let d = where_live(x - mean,",
)


@pytest.mark.opengl
def test_values_are_shown_with_float64(device: Device, tmp_path: Path) -> None:
    text = tagged(ALL, TWO_PASS.replace(*LOADS))
    found = traced(device, tmp_path, text, "row == 3u && invocation < 2u", given=EIGHT)
    x = make_inputs(load(wgsl_root() / "layer_norm" / "two_pass.wgsl").op, PROBLEM)["x"].astype(np.float64)
    assert all((record.row, record.workgroup) == (3, 3) for record in found.records)
    assert {record.invocation for record in found.records} == {0, 1}
    assert found.count == len(found.records) and not any(record.departs for record in found.records)
    rstd = 1.0 / np.sqrt(x[3].var() + PROBLEM.eps)
    for name, expected in (("mean", x[3].mean()), ("rstd", rstd), ("variance", x[3].var())):
        for record in of(found, name):
            assert record.expected is not None and record.expected[0] == pytest.approx(expected)
            assert record.values[0] == pytest.approx(expected, rel=1e-5)
    (mean, _), lows = of(found, "mean"), of(found, "low")
    assert lows[0].expected is not None
    assert lows[0].expected[0] == pytest.approx(x[3].mean() - mean.values[0], abs=1e-12)
    sums = [record.values for record in of(found, "sums")]
    assert [len(values) for values in sums] == [2, 2] and sums[0][1] == pytest.approx(x[3].var())
    # The first two of eight invocations have these columns.
    columns = {record.column: record.values for record in of(found, "x")}
    assert columns == {column: (x[3, column],) for column in range(61) if column % 8 < 2}
    assert [record.expected for record in of(found, "x")] == [record.values for record in of(found, "x")]
    assert [record.values for record in of(found, "place * 3u")] == [(0.0,), (3.0,)]
    assert {record.values for record in of(found, "row_exists")} == {(1.0,)}
    assert {record.values for record in of(found, "-i32(row)")} == {(-3.0,)}
    assert {record.values for record in of(found, "2 + 1")} == {(3.0,)}
    types = {site.name: site.type for site in found.sites}
    assert types["sums"] == "vec2<f32>" and types["place * 3u"] == "u32" and types["row_exists"] == "bool"
    assert [site.name for site in found.sites][:3] == ["mean", "x", "sums"]
    lines = text.splitlines()
    for site in found.sites:
        assert site.place is not None and f'trace("{site.name}"' in lines[site.place.line - 1]


def test_the_first_that_departs_is_marked(device: Device, tmp_path: Path) -> None:
    text = tagged({MEAN: '{{ trace("mean") }}', RSTD: '{{ trace("variance") }}{{ trace("rstd") }}'})
    wrong = text.replace("squares += d * (d * PER_COLUMN)", "squares += d * (d / f32(COLS - 1u))")
    assert wrong != text
    found = traced(device, tmp_path, wrong, "invocation == 0")
    marked = [(found.sites[record.site].name, record.row) for record in found.records if record.departs]
    assert marked == [("variance", 0)]
    order = [(record.site, record.row) for record in found.records]
    assert order == sorted(order) and len(order) == 21
    assert all(found.sites[record.site].place for record in found.records)


def test_the_columns_of_rows_that_start_anywhere(device: Device, tmp_path: Path) -> None:
    """Each column of every row is traced once, although Vecs also contain columns of neighbouring rows.

    There are no records of rows after the last one, for which the last workgroup has invocations.
    """
    text = (wgsl_root() / "layer_norm" / "registers.wgsl").read_text()
    line = "{{ load_and_park() }}\n"
    tags = "{% for j in range(steps) %}\n    {{ trace('h' ~ j, j) }}\n{% endfor %}"
    found = traced(
        device, tmp_path, tagged({line: tags}, text), given={"rows_per_workgroup": 4, "threads_per_row": 4}
    )
    assert {site.type for site in found.sites} == {"vec4<f32>"} and len(found.sites) == 4
    columns: dict[int | None, list[int]] = {}
    for record in found.records:
        assert record.column is not None and record.expected == record.values
        columns.setdefault(record.row, []).extend(range(record.column, record.column + len(record.values)))
    assert {row: sorted(of_row) for row, of_row in columns.items()} == {row: [*range(61)] for row in range(7)}


LET = re.compile(r"^( *let (mean|low|rstd|variance) = .*;)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("op", "name", "options"),
    [
        ("layer_norm", "split_row", NormOptions(max_workgroups=3)),
        ("layer_norm_backward", "one_dispatch", NormOptions(saved_stats=True, max_workgroups=3)),
        ("layer_norm_backward", "two_dispatch", NormOptions(saved_stats=True, max_workgroups=3)),
        ("rms_norm_backward", "tiles", NormOptions()),
    ],
)
def test_the_librarys_statistics_match_float64(
    op: str, name: str, options: NormOptions, device: Device, tmp_path: Path
) -> None:
    """This includes parts of rows and columns. There a mean may be its high part, which `low` completes."""
    folder = Path(shutil.copytree(wgsl_root(), tmp_path / "wgsl"))
    for path in folder.rglob("*.wgsl"):
        path.write_text(LET.sub(r'\1 {{ trace("\2") }}', path.read_text()))
    kernel = load(folder / op.replace("rms", "layer") / f"{name}.wgsl", op)
    problem = NormProblem(rows=7, cols=64, options=options)
    variant = default_variant(kernel, problem, device.traits)
    found = trace(device, variant, problem, make_inputs(kernel.op, problem))
    known = {site.name for site in found.sites} - ({"mean"} if name == "split_row" else set())
    assert known >= {"rstd"} | ({"low"} if has_mean(kernel.op) else set())
    for record in found.records:
        assert not record.departs and record.row is not None
        assert (record.expected is not None) == (found.sites[record.site].name in known)


def test_no_rows_give_no_records(device: Device, tmp_path: Path) -> None:
    found = traced(
        device, tmp_path, tagged({MEAN: '{{ trace("mean") }}'}), problem=NormProblem(rows=0, cols=61)
    )
    assert (len(found.sites), found.records, found.count) == (1, (), 0)


def test_more_records_than_fit(device: Device, tmp_path: Path) -> None:
    problem = NormProblem(rows=40, cols=128)
    found = traced(device, tmp_path, tagged({STEP: '{{ trace("d") }}'}), problem=problem, given=EIGHT)
    assert found.count == 40 * 128 and len(found.records) == 4096


def test_the_row_is_unknown_if_it_is_not_set(device: Device, tmp_path: Path) -> None:
    """The text uses its own names of parameters, and lacks one."""
    text = """// /// webnorm
// summary = "A test."
// differs = "Nothing."
// [[pass]]
// entry_point = "main"
// workgroup_size = "2"
// workgroup_count = "rows"
// ///
{% include "lib/params.wgsl" %}
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding({{ (buffers | last).index }}) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(2)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    {{ trace("x[group.x]") }}
    y[group.x] = x[group.x] + params.eps;
}
"""
    problem = NormProblem(rows=3, cols=1, options=NormOptions(weight=False, bias=False))
    found = traced(device, tmp_path, text, problem=problem)
    assert [(one.workgroup, one.invocation, one.row) for one in found.records] == [
        (group, invocation, None) for group in range(3) for invocation in range(2)
    ]
    assert not traced(device, tmp_path, text, "row >= 0", problem).records


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ('{{ trace("maen") }}', "cannot trace 'maen': no definition in scope for identifier: `maen`"),
        ('{{ trace("mean +") }}', "cannot trace 'mean +': expected"),
        ('{{ trace("mat2x2<f32>()") }}', "its type is mat2x2<f32>; it must be a scalar or a vector"),
        ('{{ trace("mean", "nothing") }}', "cannot trace 'mean': no definition in scope"),
        (
            '{% for v in ("1u", "1i") %}{ let v = {{ v }}; {{ trace("v") }} }{% endfor %}',
            "its type is both u32 and i32",
        ),
        ("let wrong = vec2(1.0) + vec3(1.0);", "let wrong = "),
    ],
)
def test_invalid_traces_are_errors_with_a_place(
    device: Device, tmp_path: Path, tag: str, message: str
) -> None:
    text = tagged({MEAN: f'    {tag} {{{{ trace("mean") }}}}'})
    line = next(at for at, line in enumerate(text.splitlines(), 1) if tag in line)
    with pytest.raises(WebnormError) as caught:
        traced(device, tmp_path, text)
    assert re.match(rf".*traced\.wgsl:{line}: ", str(caught.value)), caught.value
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_error_for_no_traces_shows_an_example(device: Device, tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=r'traced.wgsl contains no trace; write \{\{ trace\("mean"\) \}\}'):
        traced(device, tmp_path, tagged({MEAN: '// {{ trace("mean") }}'}))


def test_the_workers_task(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "layer_norm" / "traced.wgsl"
    path.parent.mkdir()
    path.write_text(tagged({MEAN: '{{ trace("mean") }}'}))
    # The second problem of the evaluation has seven rows.
    (found,) = trace_file(device, TraceJob(EvaluationJob(path, None, ()), 1, "invocation == 0"))
    assert [record.row for record in found.records] == [*range(7)]


def test_non_finite_values_depart_from_finite_expectations() -> None:
    nan, infinite = float("nan"), float("inf")
    assert (
        beyond_tolerance(nan, 1.0, 1.0)
        and beyond_tolerance(1.0, nan, nan)
        and beyond_tolerance(infinite, 1.0, 1.0)
    )
    assert (
        not beyond_tolerance(nan, nan, nan)
        and not beyond_tolerance(nan, infinite, nan)
        and not beyond_tolerance(1.5, 1.0, 0.5)
    )
    assert (
        not beyond_tolerance(0.0, 2.0**-130, 0.0)
        and not beyond_tolerance(0.0, 0.0, nan)
        and beyond_tolerance(1.5, 1.0, 0.25)
    )
