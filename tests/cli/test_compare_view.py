"""The output of `compare` on the screen, for pull requests and for scripts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from samples import MIXED_PROBLEM, result
from shown import line_of, text
from webnorm.cli.verbs.compare_view import CompareTable
from webnorm.lab.report import comparison_text
from webnorm.lab.report.comparison import Comparison, Drift, Verdicts
from webnorm.lab.report.findings import Changes


def comparison(kernel: str, **changes: Any) -> Comparison:
    return Comparison(result=result(kernel, constants={}, problem=MIXED_PROBLEM, case=None), **changes)


def test_comparisons_show_ratio_interval_and_reasons() -> None:
    reason = {"verdict": "UNCLEAR", "reason": "the new result is throttled"}
    found = (
        comparison("registers", verdict="SLOWER", ratio=1.1, low=1.05, high=1.15),
        comparison("naive", **reason),
        comparison("welford", **reason),
    )
    shown = text(CompareTable(Verdicts(found, None, remarks=("no copy here",))))
    assert shown.startswith("copies: the reports share none\n")
    assert line_of(shown, "registers").split() == ["registers", "1.100", "1.050", "to", "1.150", "SLOWER"]
    assert "1 SLOWER, 2 UNCLEAR" in shown
    assert "UNCLEAR: the new result is throttled (2x)" in shown and "no copy here" in shown


@pytest.mark.parametrize(
    ("drift", "line"),
    [
        (
            Drift(problems=1, ratio=1.02, old_gbps=6.45, new_gbps=6.31),
            "copies: 6.45 -> 6.31 GB/s (mean of the middle half), 2.0 % more time; a single run does not "
            "show the variation between runs",
        ),
        (
            Drift(problems=3, ratio=0.978, low=0.95, high=1.01, spread=0.031),
            "copies of 3 problems: 2.2 % less time (95 %: -5.0 % to +1.0 %); spread between runs 3.1 %",
        ),
    ],
)
def test_the_copies_drift_is_the_first_line(drift: Drift, line: str) -> None:
    assert text(CompareTable(Verdicts((), drift)), 160).splitlines()[0] == line


TUNED = {"threads_per_row": 64}
CHANGED = Verdicts(
    (
        comparison("naive", verdict="SAME", ratio=1.0, low=0.99, high=1.01),
        comparison("registers", verdict="SLOWER", ratio=1.2, low=1.15, high=math.inf),
        Comparison(result=result("registers", constants=TUNED, problem=MIXED_PROBLEM), verdict="BROKEN"),
    ),
    Drift(problems=1, ratio=1.0),
    ("NEW",),
)


def test_a_pull_request_reads_the_worst_first_and_the_rest_folded() -> None:
    lines = comparison_text.to_markdown(CHANGED, "main", "fix|it").splitlines()
    assert lines[0] == r"**webnorm: fix\|it against main: 1 BROKEN, 1 SLOWER, 1 SAME**"
    rows = [line.split(" | ") for line in lines if line.startswith("| layer_norm")]
    assert [row[1] for row in rows] == ["registers threads_per_row=64", "registers", "naive"]
    assert lines.index("<details><summary>1 unchanged or not timed</summary>") > lines.index(
        " | ".join(rows[1])
    )
    assert "- NEW comes from an interrupted run" in lines


def test_a_comparison_is_strict_json_and_flat_rows() -> None:
    def refuse(literal: str) -> Any:
        raise AssertionError(literal)

    data = json.loads(comparison_text.to_json(CHANGED), parse_constant=refuse)
    assert data["incomplete"] == ["NEW"] and data["drift"]["ratio"] == 1.0
    slower = data["comparisons"][1]
    assert (slower["op"], slower["kernel"], slower["rows"], slower["cols"]) == (
        "layer_norm",
        "registers",
        4096,
        1024,
    )
    assert slower["verdict"] == "SLOWER" and slower["low"] == 1.15 and "high" not in slower
    assert CHANGED.rows()[2]["constants"] == "threads_per_row=64" and CHANGED.rows()[2]["ratio"] is None


def test_comparisons_fit_a_narrow_terminal() -> None:
    shown = text(CompareTable(CHANGED), 40)
    assert line_of(shown, "SLOWER").split() == ["registers", "1.200", "SLOWER"]
    assert all(len(line) <= 40 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        (None, True),
        ("the new result is drifting", True),
        ("2 runs each; at least 3 show the variation between runs", True),
        ("cache was 'warm' and is 'cold'", False),
        ("timing method was 'timestamps' and is 'wall clock'", False),
    ],
)
def test_unclear_results_come_with_advice(reason: str | None, helps: bool) -> None:
    """More runs are only suggested if they would help."""
    found = Verdicts((comparison("naive", verdict="UNCLEAR", ratio=1.0, reason=reason),), None)
    advice = (
        "UNCLEAR: 1 of 1 comparison. Measure both sides again with more runs and a longer budget, such as"
    )
    for said in (text(CompareTable(found), 200), comparison_text.to_markdown(found, "old", "new")):
        assert (advice in said) == helps
    assert not found.known and not Changes(found).known
    assert ("--runs" in (Changes(found).advice or "")) == helps


def test_one_pair_with_a_verdict_is_known() -> None:
    same = comparison("naive", verdict="SAME", ratio=1.0, low=0.99, high=1.01)
    unclear = comparison("welford", verdict="UNCLEAR")
    untimed = comparison("split_row", verdict="SAME", reason="neither was timed: 'skip' in both")
    assert Verdicts((same, unclear), None).known and not Verdicts((unclear, untimed), None).known
    assert Verdicts((comparison("naive", verdict="BROKEN"),), None).known
