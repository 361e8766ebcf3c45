from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from samples import MIXED, MIXED_PROBLEM, result
from shown import line_of, text
from webnorm.cli.report import BarChart, bench_table, check_table, compare_table
from webnorm.lab.compare import Comparison, Drift, Verdicts
from webnorm.norms.problem import Problem


def test_rows_are_ranked_with_one_roofline_and_failures_last() -> None:
    shown = text(bench_table(MIXED, "title"), 160)
    words = ["copy (roofline)", "1 registers", "2 welford_subgroup", "3 registers"]
    words += ["naive", "one_pass", "split_row"]
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
    assert shown.count("copy (roofline)") == 1
    assert "200" in line_of(shown, "copy (roofline)")


def test_reasons_are_told_as_they_are_written() -> None:
    shown = text(bench_table(MIXED, "title"), 160)
    assert "skip: [red]too long[/red]" in shown
    assert "expected failure: [0, 3] is nan" in shown
    assert "FAIL: [1, 2] is 3, expected 4" in shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_number_is_cut_short_at_80_columns(encoding: str) -> None:
    shown = text(bench_table(MIXED, "title"), 80, encoding=encoding)
    assert max(map(len, shown.splitlines())) <= 80
    # Without unicode, rich draws lines between the columns.
    shown = shown.replace("|", " ")
    first = line_of(shown, "1 registers")
    assert first.split()[:9] == ["1", "registers", "176.6", "us", "15", "190", "95", "1.2e-06", "pass"]
    assert "noisy" in first
    for constant in ("threads_per_row=256", "rows_per_workgroup=4", "vector_width=4"):
        assert constant in shown


def test_verdicts_are_coloured_but_do_not_need_it() -> None:
    plain, coloured = (text(bench_table(MIXED, "title"), 160, colour=colour) for colour in (False, True))
    assert "\x1b[1;31mFAIL" in coloured
    assert "\x1b" not in plain and "FAIL" in plain


def test_bars_are_as_long_as_the_throughput() -> None:
    shown = text(BarChart(MIXED))
    copy, registers, welford, foot = shown.splitlines()
    assert max(map(len, shown.splitlines())) <= 80
    mark = foot.index("│")
    assert "copy = 100 %" in foot
    for line in (copy, registers, welford):
        assert line[mark] == "│"
    assert copy.count("█") + 1 == pytest.approx(registers.count("█") / 0.95, abs=1)
    assert welford.count("█") == pytest.approx((copy.count("█") + 1) * 0.75, abs=1)
    assert registers.startswith("registers") and registers.endswith("190 GB/s   95 %")


def test_a_kernel_above_the_copy_reaches_beyond_its_mark() -> None:
    copy, registers, foot = text(BarChart([result("copy", 100.0), result("registers", 200.0)])).splitlines()
    mark = foot.index("│")
    assert "█" in registers[mark + 1 :] and "█" not in copy[mark + 1 :]
    assert registers.endswith("200 %")


def test_bars_are_plain_without_unicode() -> None:
    shown = text(BarChart(MIXED), encoding="ascii")
    assert shown.isascii() and "####" in shown and "|" in shown


def test_bars_without_a_copy_have_no_mark() -> None:
    shown = text(BarChart([result("registers", 190.0)]))
    assert "100 %" not in shown and "│" not in shown and "190 GB/s" in shown


@pytest.mark.parametrize("gbps", [math.nan, math.inf])
def test_a_throughput_that_is_no_number_draws_no_bar(gbps: float) -> None:
    broken = replace(result("naive", 100.0), gbps=gbps)
    assert "naive" not in text(BarChart([broken, result("registers", 190.0)]))
    assert text(BarChart([broken])).strip() == "no kernel was timed"


def test_several_problems_have_a_chart_each() -> None:
    wide = result("registers", 100.0, problem=Problem(rows=1, cols=2048))
    shown = text(BarChart([result("registers", 190.0), wide]))
    assert "layer_norm 4096x1024 float32" in shown and "layer_norm 1x2048 float32" in shown


def test_check_counts_and_names_the_worst_case() -> None:
    results = [
        result("registers", case="normal", max_rel_error=1e-6),
        result("registers", case="outlier", max_rel_error=1.5e-6),
        result("registers", case="empty", status="skip", max_rel_error=None, reason="no columns"),
        result("one_pass", case="normal", max_rel_error=1e-7),
        result("one_pass", case="mean1e6", status="fail", expected=True, max_rel_error=math.inf),
        result("naive", case="normal", max_rel_error=1.9e-6),
        result("naive", case="mean100", status="fail", max_rel_error=0.5, reason="off by a half"),
        result("naive", case="uniform", status="fail", max_rel_error=math.nan, reason="[0, 0] is nan"),
        result("naive", case="mean1000", status="fail", max_rel_error=0.7, reason="off by more"),
        result("naive", case="triton", status="error", max_rel_error=None, reason="does not compile"),
    ]
    shown = text(check_table(results))
    assert line_of(shown, "  registers").split()[1:] == ["2", "0", "0", "1", "outlier,", "float32", "1.5e-06"]
    # An unstable kernel shows how wrong it is, which is what it is kept for.
    assert line_of(shown, "  one_pass").split()[1:] == ["1", "0", "1", "0", "mean1e6,", "float32", "inf"]
    assert line_of(shown, "  naive").split()[1:] == ["1", "4", "0", "0", "uniform,", "float32", "nan"]
    assert "case uniform" in shown and "off by a half" in shown and "does not compile" in shown
    assert "(case empty" in shown and "skip: no columns" in shown


def test_check_of_what_never_ran_has_no_worst() -> None:
    shown = text(check_table([result("naive", status="skip", max_rel_error=None)]))
    assert line_of(shown, "  naive").split()[1:] == ["0", "0", "0", "1", "-", "-"]


def comparison(kernel: str, **changes: Any) -> Comparison:
    return Comparison(result=result(kernel, constants={}, problem=MIXED_PROBLEM, case=None), **changes)


def test_comparisons_show_ratio_interval_and_reasons() -> None:
    reason = {"verdict": "UNCLEAR", "reason": "the new result is throttled"}
    found = (
        comparison("registers", verdict="SLOWER", ratio=1.1, low=1.05, high=1.15),
        comparison("naive", **reason),
        comparison("welford", **reason),
    )
    shown = text(compare_table(Verdicts(found, None, remarks=("no copy here",))))
    assert shown.startswith("copies: none is in both\n")
    assert line_of(shown, "registers").split()[-5:] == ["1.100", "1.050", "to", "1.150", "SLOWER"]
    assert "UNCLEAR: the new result is throttled (2x)" in shown and "no copy here" in shown


@pytest.mark.parametrize(
    ("drift", "line"),
    [
        (
            Drift(problems=1, ratio=1.02, old_gbps=6.45, new_gbps=6.31),
            "copies: 6.45 -> 6.31 GB/s, +2.0 % in time; one run does not tell what moves between runs",
        ),
        (
            Drift(problems=3, ratio=0.978, low=0.95, high=1.01, spread=0.031),
            "copies of 3 problems: -2.2 % in time (95 %: -5.0 % to +1.0 %); spread between runs 3.1 %",
        ),
    ],
)
def test_the_copies_drift_is_the_first_line(drift: Drift, line: str) -> None:
    assert text(compare_table(Verdicts((), drift)), 160).splitlines()[0] == line
