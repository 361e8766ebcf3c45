"""bench.engines: its probes of arithmetic, its tables, and the published page."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.engine_page import (
    ARITHMETIC,
    CASES,
    LIMITS,
    EngineRun,
    by_value,
    case_table,
    explanations,
    page,
    reasons,
    verdict_cell,
    verdict_table,
)
from bench.engine_probes import COUNT, PROBES, EngineDescription, evaluate, ulp_error
from bench.engines import PAGE, measure, selected_cases
from testbed import KERNELS
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.results.result import Result
from webnorm.lab.results.tables import time_text
from webnorm.op.dtypes import Array
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS

TRAITS = Traits(frozenset(), max_invocations=256, workgroup_storage=32768, software=True)
PROBLEM = OPS["layer_norm"].problem(5, 199)


def result(kernel: str = "naive", error: float | None = 1e-7, **more: Any) -> Result:
    given = {"op": "layer_norm", "constants": {}, "problem": PROBLEM, "status": "pass", "case": "cols-199"}
    return Result(kernel=kernel, max_rel_error=error, **{**given, **more})


def engine(name: str, *results: Result, times: Sequence[Result] = (), **arithmetic: float) -> EngineRun:
    device = {"adapter": f"GPU of {name}", "backend": "B", "driver": "D", "wgpu": "1.2", "features": []}
    limits = dict.fromkeys(LIMITS, 1024)
    measured = dict.fromkeys(ARITHMETIC, 0.0) | arithmetic
    described = EngineDescription(device, limits, frozenset({"subgroup_id"}), TRAITS)
    return EngineRun(name, described, measured, results, times)


def section(title: str) -> str:
    """Return a section of the published page."""
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def cells_of(title: str) -> list[list[str]]:
    """Return the cells of the table in a section of the published page, with its heading."""
    rows = re.findall(r"^\| (.*) \|$", section(title), re.M)
    return [row.split(" | ") for row in rows if not row.startswith("---")]


# --- probes


def test_an_error_is_in_units_of_the_exact_value() -> None:
    exact = np.array([1.0, 1.5, 2.0**-130])
    values = exact.astype(np.float32)
    assert ulp_error(values, exact) == 0.0
    assert ulp_error(np.nextafter(values, np.float32(2)), exact) == 1.0
    assert ulp_error(values, exact * (1 + 2.0**-25)) == pytest.approx(0.375)
    assert ulp_error(np.array([np.nan, 1], np.float32), np.ones(2)) == np.inf
    assert ulp_error(np.array([2049.0], np.float32), np.array([2050.0]), -14, 10) == 0.5


def nearest(function: Callable[..., Array]) -> Callable[[Array, Array, Array], Array]:
    """Return a function of float32 numbers that rounds the exact value once."""
    return lambda *given: function(*(one.astype(np.float64) for one in given)).astype(np.float32)


def without_subnormals(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-126, np.float32(0), x)


# A key, an implementation, and the least and the largest measure that it may have.
IMPLEMENTATIONS: dict[str, tuple[str, Callable[[Array, Array, Array], Array], float, float]] = {
    "nearest inverse_sqrt": ("inverse_sqrt", nearest(lambda x, y, z: 1 / np.sqrt(x)), 0.49, 0.5),
    "two roundings": ("inverse_sqrt", lambda x, y, z: np.float32(1) / np.sqrt(x), 1.0, 2.0),
    "nearest division": ("division", lambda x, y, z: x / y, 0.49, 0.5),
    "division by a reciprocal": ("division", lambda x, y, z: x * (np.float32(1) / y), 0.9, 2.5),
    "nearest sqrt": ("sqrt", lambda x, y, z: np.sqrt(x), 0.49, 0.5),
    "nearest exp": ("exp", nearest(lambda x, y, z: np.exp(x)), 0.49, 0.5),
    "not contracted": ("contracted", lambda x, y, z: x * y + z, 0.0, 0.001),
    "contracted": ("contracted", nearest(lambda x, y, z: x * y + z), 1.0, 1.0),
    "a true fma": ("contracted_fma", nearest(lambda x, y, z: x * y + z), 1.0, 1.0),
    "kept": ("subnormals_read", lambda x, y, z: x * y, 1.0, 1.0),
    "flushed": ("subnormals_read", lambda x, y, z: without_subnormals(x) * y, 0.0, 0.0),
    "flushed results": ("subnormals_computed", lambda x, y, z: without_subnormals(x * y), 0.0, 0.0),
    "kept results": ("subnormals_computed", lambda x, y, z: x * y, 1.0, 1.0),
    "stored as 0": ("subnormals_stored", lambda x, y, z: without_subnormals(x), 0.0, 0.0),
    "equal to 0": ("subnormals_compared", lambda x, y, z: (without_subnormals(x) != 0) + z * 0, 0.0, 0.0),
    "nearest float16": ("pack_float16", lambda x, y, z: x.astype(np.float16), 0.49, 0.5),
    "cut float16": (
        "quantize_float16",
        lambda x, y, z: (x.view(np.uint32) & 0xFFFFE000).view(np.float32),
        0.99,
        1.0,
    ),
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_probe_separates_implementations(name: str) -> None:
    key, function, least, most = IMPLEMENTATIONS[name]
    operands = PROBES[key].draw(np.random.default_rng(2))
    measured = PROBES[key].measure(function(*operands).astype(np.float32), operands)
    assert least <= measured <= most


def test_every_probe_has_a_row_and_runs(device: Device) -> None:
    assert [*PROBES] == [*ARITHMETIC]
    for probe in PROBES.values():
        operands = probe.draw(np.random.default_rng(2))
        values = evaluate(device, probe, operands)
        assert values.shape == (COUNT,) and 0 <= probe.measure(values, operands) < np.inf


# --- cases and tables


def test_the_cases_are_in_the_corpus_and_fit_every_op() -> None:
    for dtype in CASES:
        for op in NORM_OPS:
            cases = [case for case in selected_cases(dtype) if case.problem(op, dtype) is not None]
            assert len(cases) >= 2, (dtype, op.name)


def test_a_cell_has_the_verdict_and_the_error_in_float32() -> None:
    half = replace(PROBLEM, dtype="float16")
    assert verdict_cell([result(), result(error=2e-7), result(error=1.0, problem=half)]) == "2.0e-07"
    assert verdict_cell([result(error=0.0)]) == "0"
    assert verdict_cell([result(), result(error=0.5, status="fail")]) == "**FAIL 1** 5.0e-01"
    assert verdict_cell([result(error=None, status="error")]) == "**FAIL 1**"
    assert verdict_cell([result(), result(error=0.5, status="fail", expected=True)]) == "unstable 5.0e-01"
    assert verdict_cell([result(), result(error=None, status="skip")]) == "1.0e-07, 1 of 2"
    assert verdict_cell([result(error=None, status="skip")]) == "skip"
    assert verdict_cell([]) == "-"


def test_tables_have_a_column_per_engine() -> None:
    runs = [engine("one", result(), result("one_pass", 0.5)), engine("two", result(error=3e-7))]
    assert verdict_table(runs).splitlines() == [
        "| op | kernel | one | two |",
        "| --- | --- | ---: | ---: |",
        "| `layer_norm` | `naive` | 1.0e-07 | 3.0e-07 |",
        "| `layer_norm` | `one_pass` | 5.0e-01 | - |",
    ]
    assert "| `cols-199`, float32 | 1.0e-07 | 3.0e-07 |" in case_table(runs)


def test_engines_are_grouped_by_value() -> None:
    runs = [engine(name, exp=error) for name, error in (("a", 1.0), ("b", 2.0), ("c", 1.0))]
    assert by_value(runs, lambda one: f"{one.arithmetic['exp']:.0f}") == "1 in a and c; 2 in b"
    assert by_value(runs, lambda one: "x") == "x in all engines"
    assert by_value(runs[:1], lambda one: "x") == "x in a"


def test_the_explanations_have_the_measurements() -> None:
    shifted = result(case="shift-1e4", error=5e-6)
    same = result("two_pass")
    runs = [
        engine("one", result(), shifted, same, contracted=1.0, subnormals_read=0.25),
        engine("two", result(error=3e-7), result(case="shift-1e4"), same),
    ]
    text = explanations(runs)
    assert "`x * y + z` 100% in one; 0% in two" in text and "5.0e-06 in one; 1.0e-07 in two" in text
    assert "operand of `*`: 25% in one; 0% in two" in text
    assert "2 kernels passed in all engines. 1 of them have the same largest error in all engines." in text
    assert "factor between two engines is 17, in `layer_norm/naive`." in text
    failed = engine("three", result(status="fail"), result("two_pass", status="error"))
    assert "No kernel passed in all engines." in explanations([*runs, failed])


def test_the_reasons_name_the_engines() -> None:
    failed = result(status="fail", reason="off by 3")
    skipped = result("welford_subgroup", None, status="skip", reason="needs subgroups")
    runs = [engine("a", failed, skipped), engine("b", result(), skipped), engine("c", failed)]
    assert reasons(runs).splitlines() == [
        "- `layer_norm/naive` in a and c: `cols-199` (float32): off by 3",
        "- `layer_norm/welford_subgroup` in a and b: needs subgroups",
    ]
    unstable = [result(case=case, status="fail", expected=True) for case in ("cols-5", "shift-1e4")]
    assert reasons([engine("a", *unstable)]) == (
        "- `layer_norm/naive` in a: unstable in `cols-5` (float32), `shift-1e4` (float32)"
    )
    assert reasons([engine("a", result())]) == "Every kernel is right in all engines."


def test_times_are_shown_only_if_there_are_some() -> None:
    timed = result(median_ns=12000.0, percent_of_copy=90.4)
    runs = [engine("a", result(), times=[timed]), engine("b", result())]
    shown = page(runs, {}).split("## Times")[1]
    assert (
        "| op | kernel | a |" in shown and f"| `layer_norm` | `naive` | {time_text(12000.0)}, 90 % |" in shown
    )
    assert "## Times" not in page(runs[1:], {})


def test_a_missing_engine_is_named() -> None:
    assert "deno is missing: not installed." in page([engine("a", result())], {"deno": "not installed."})


def test_an_engine_that_does_not_start_becomes_missing() -> None:
    name = shlex.join([sys.executable, "-c", "raise SystemExit(3)", "{url}"])
    missing: dict[str, str] = {}
    assert measure([name], missing) == [] and "exit status 3" in missing[name]


# --- the published page


def test_the_page_has_every_built_in_kernel_and_case() -> None:
    heading, *rows = cells_of("Verdicts")
    assert heading[:2] == ["op", "kernel"] and len(heading) > 2
    assert sorted((op.strip("`"), kernel.strip("`")) for op, kernel, *_ in rows) == sorted(
        (kernel.op.name, kernel.name) for kernel in KERNELS
    ), "stale: python -m bench.engines --write"
    shown = [row[0] for row in cells_of("Errors by case")[1:]]
    assert shown == [f"`{name}`, {dtype}" for dtype, names in CASES.items() for name in names]


def test_the_page_has_every_measure_of_every_engine() -> None:
    engines = cells_of("Engines")[0][1:]
    heading, *rows = cells_of("Why results differ")
    assert heading[2:] == engines == cells_of("Verdicts")[0][2:]
    assert [row[0] for row in rows] == [name for name, _, _ in ARITHMETIC.values()]
    assert all(len(row) == len(heading) and "" not in row[1:] for row in rows)
