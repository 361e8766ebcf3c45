"""The report names requested parts without a check, so nothing passes because it was skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webnorm.cli.terminal.screen import Screen
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG, MeasuringJob
from webnorm.lab.report.findings import Findings
from webnorm.lab.results.result import Report, Result
from webnorm.lab.run.requests import Coverage, first_names
from webnorm.ops.norms.problem import NormProblem

PASS = Result(
    op="layer_norm",
    kernel="naive",
    constants={},
    problem=NormProblem(rows=4, cols=8),
    status="pass",
    case="rows-4",
    median_ns=100.0,
)
SKIP = replace(PASS, status="skip", median_ns=None)
COPY = replace(PASS, op="copy", kernel="copy")


def of(result: Result, kernel: str = "naive", dtype: str = "float32", case: str = "rows-4") -> Result:
    return replace(result, kernel=kernel, problem=replace(result.problem, dtype=dtype), case=case)


@pytest.mark.parametrize("results", [[], [SKIP], [SKIP, COPY]])
def test_nothing_was_checked_if_all_but_the_copies_were_skipped(results: list[Result]) -> None:
    assert Coverage().unchecked(results) == ["every kernel"]
    assert Coverage(timed=True).unchecked(results) == ["every kernel"]


def test_copies_count_if_nothing_else_was_requested() -> None:
    assert Coverage().unchecked([COPY]) == [] and Coverage(timed=True).unchecked([COPY]) == []


def test_a_kernel_that_was_named_has_to_be_checked() -> None:
    found = [PASS, of(SKIP, "registers")]
    paths = (["mine/layer_norm/registers.wgsl"], ["mine/layer_norm/registers.WGSL"])
    for kernels in (["naive,registers"], ["layer_norm/registers"], *paths):
        names = [name for text in kernels for name in text.split(",")]
        assert Coverage.of(kernels=names).unchecked(found) == ["registers (layer_norm, float32)"]
    assert Coverage.of(kernels=["*"]).unchecked(found) == Coverage.of().unchecked(found) == []
    # The check may refuse a single case of a corpus.
    assert Coverage.of(kernels=["registers"]).unchecked([*found, of(PASS, "registers", case="b")]) == []


def test_every_op_and_storage_type_has_to_be_checked() -> None:
    found = [PASS, of(SKIP, dtype="float16"), replace(SKIP, op="rms_norm")]
    assert Coverage.of("all", "all").unchecked(found) == ["layer_norm, float16", "rms_norm, float32"]


def test_a_name_without_results_was_not_checked() -> None:
    coverage = Coverage.of("layer_norm,rms_norm", ["float32", "float16"], None, ["rows-4", "rows-5"])
    assert coverage.unchecked([PASS]) == ["rms_norm", "float16", "rows-5"]
    assert Coverage.of("rms*,layer_norm", "*16", None, "rows-4,cols-*").unchecked([PASS]) == []


def test_a_case_that_was_named_has_to_be_checked() -> None:
    found = [PASS, of(SKIP, case="large")]
    assert Coverage.of(cases="rows-4,large").unchecked(found) == ["layer_norm, float32, case large"]
    assert Coverage.of(cases="*").unchecked(found) == []


def test_every_timed_problem_needs_a_time() -> None:
    untimed = replace(PASS, median_ns=None, problem=NormProblem(rows=9, cols=8))
    assert Coverage(timed=True).unchecked([PASS, untimed]) == ["layer_norm, 9x8 float32"]
    assert Coverage().unchecked([PASS, untimed]) == []


def test_a_declared_failure_is_no_gap_and_has_no_time() -> None:
    unstable = replace(PASS, kernel="one_pass", status="fail", expected=True, median_ns=None)
    coverage = Coverage.of(kernels=["one_pass", "naive"], timed=True)
    assert coverage.unchecked([PASS, unstable]) == []
    assert coverage.unchecked([unstable]) == ["every kernel"]
    assert Coverage.of(kernels=["one_pass"]).unchecked([unstable]) == []


def test_long_lists_are_shortened() -> None:
    assert first_names(["a", "b", "c"]) == "a; b; c"
    assert first_names([*"abcde"]) == "a; b; c; and 2 more"


def test_findings_are_ok_only_if_everything_was_checked() -> None:
    def ok(*results: Result, unchecked: tuple[str, ...] = ()) -> bool:
        return Findings(Report(device={}, results=results), unchecked=unchecked).ok

    assert ok(PASS) and not ok() and not ok(PASS, unchecked=("float16",))
    assert not ok(PASS, replace(PASS, status="fail"))


class _Known(MeasuringJob):
    """A job with these results."""

    found: list[Result]
    named: Coverage
    done = "checked"
    begin = work_items = record = record_missing = work = show_results = None  # type: ignore[assignment]

    @property
    def coverage(self) -> Coverage:
        return self.named

    def results(self) -> list[Result]:
        return self.found


@pytest.mark.parametrize(
    ("found", "lost", "allow", "status", "said"),
    [
        ([PASS], 0, False, OK, ""),
        ([PASS, of(SKIP, "registers")], 0, False, INCONCLUSIVE, "registers (layer_norm, float32) (--allow-"),
        ([PASS, of(SKIP, "registers")], 0, True, OK, ""),
        ([PASS, of(replace(SKIP, status="fail"), "registers")], 0, False, WRONG, ""),
        ([PASS, of(PASS, "registers")], 2, True, INCONCLUSIVE, "2 problems, because no worker was left"),
    ],
)
def test_the_exit_status_shows_unchecked_parts(
    found: list[Result],
    lost: int,
    allow: bool,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    coverage = Coverage.of(kernels=["naive", "registers"][: len(found)])
    job = _Known(outputs={}, console=Screen(), seed=None, allow_skipped=allow)
    job.found, job.lost, job.named = found, lost, coverage
    assert job.status() == status
    errors = capsys.readouterr().err
    assert (f"not checked: {said}" in errors) if said else errors == ""
    assert job.report(complete=True).complete is not bool(lost)
