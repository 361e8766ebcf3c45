"""The tables of `bench`, at several widths, with and without colours."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from samples import MIXED, result, timed
from shown import line_of, text
from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.verbs.bench_view import BenchTable, ShareMatrix, outcome
from webnorm.lab.results.result import Result
from webnorm.ops.norms.problem import NormProblem

# The constants of MIXED's kernels.
USUAL = {
    ("layer_norm", one.kernel): {"threads_per_row": 256, "rows_per_workgroup": 4, "vector_width": 4}
    for one in MIXED
}


def shown(results: list[Result], width: int = 80, encoding: str = "utf-8") -> str:
    return text(BenchTable(results, "title", USUAL), width, encoding=encoding)


def test_rows_are_ranked_with_one_roofline_and_failures_last() -> None:
    table = shown(MIXED)
    words = ["copy (roofline)", "1 registers", "2 welford_subgroup", "3 registers"]
    words += ["naive", "one_pass", "split_row"]
    places = [table.index(word) for word in words]
    assert places == sorted(places)
    assert table.count("copy (roofline)") == 1
    assert "200" in line_of(table, "copy (roofline)")


def test_reasons_are_printed_as_they_are_written() -> None:
    table = shown(MIXED, 160)
    assert "skip: [red]too long[/red]" in table
    assert "expected failure: [0, 3] is nan" in table
    assert "FAIL: [1, 2] is 3, expected 4" in table


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [80, 200])
def test_every_number_of_a_kernel_is_in_its_one_line(width: int, encoding: str) -> None:
    table = shown(MIXED, width, encoding)
    assert max(map(len, table.splitlines())) <= width
    first = line_of(table, "1 registers")
    words = [word for word in first.split() if not set(word) & set("█#")]
    assert words == ["1", "registers", "176.6", "us", "15", "190", "95", "%", "1.2e-06", "pass", "noisy"]
    assert "=" not in first


def test_a_narrow_terminal_drops_the_least_important_columns() -> None:
    table = shown(MIXED[1:6], 40)
    assert max(map(len, table.splitlines())) <= 40
    for one in ("copy (roofline)", "registers", "welford_subgroup"):
        line = line_of(table, one)
        assert " us " in line and " % " in line and "pass" in line
    unstable = shown(MIXED, 40)
    assert line_of(unstable, "one_pass").endswith("unstable") and "welford_subg" in unstable


def test_a_narrow_terminal_moves_flags_below_the_line() -> None:
    flags = ("noisy", "few samples", "drifting", "suspicious")
    flagged = replace(MIXED[4], flags=flags, constants={**MIXED[4].constants, "vector_width": 2})
    table = shown([MIXED[3], flagged, MIXED[1]], 40).splitlines()
    assert max(map(len, table)) <= 40
    (at,) = [at for at, line in enumerate(table) if "1 registers" in line]
    below = ["     noisy, few samples, drifting,", "     suspicious", "     vector_width=2"]
    assert [line.rstrip() for line in table[at + 1 : at + 4]] == below
    assert "2 welford_subgroup" in table[at + 4]
    assert line_of(shown([MIXED[3], flagged], 120), "1 registers").count("few samples, drifting") == 1


def test_constants_are_shown_where_they_differ_from_the_usual_ones() -> None:
    tuned = replace(MIXED[4], constants={**MIXED[4].constants, "vector_width": 2})
    table = shown([tuned, MIXED[5]], 160)
    assert line_of(table, "1 registers").endswith("vector_width=2")
    assert table.count("=") == 1
    narrow = shown([tuned, MIXED[5]], 60).splitlines()
    (below,) = [at for at, line in enumerate(narrow) if "vector_width=2" in line]
    assert narrow[below].strip() == "vector_width=2" and "registers" in narrow[below - 1]
    every = text(BenchTable([tuned], "title"), 160)
    assert "threads_per_row=256 rows_per_workgroup=4 vector_width=2" in every


def test_verdicts_are_coloured_but_do_not_need_it() -> None:
    plain, coloured = (text(BenchTable(MIXED, "title"), 160, colour=colour) for colour in (False, True))
    assert "\x1b[1;31mFAIL" in coloured
    assert "\x1b" not in plain and "FAIL" in plain


def test_bars_are_as_long_as_the_throughput() -> None:
    copy, registers, welford = (
        line_of(shown(MIXED, 120), name).count("█") for name in ("copy (", "1 registers", "welford_subgroup")
    )
    assert copy > 20
    assert registers == pytest.approx(0.95 * copy, abs=1) and welford == pytest.approx(0.75 * copy, abs=1)


def test_a_kernel_above_the_copy_has_the_longest_bar() -> None:
    table = shown([result("copy", 100.0), result("registers", 200.0, percent_of_copy=200.0)], 120)
    assert line_of(table, "registers").count("█") == pytest.approx(
        2 * line_of(table, "copy (").count("█"), abs=1
    )


def test_bars_are_plain_without_unicode() -> None:
    assert shown(MIXED, encoding="ascii").isascii()
    assert "####" in shown(MIXED, 120, "ascii")


@pytest.mark.parametrize("gbps", [math.nan, math.inf])
def test_a_throughput_of_nan_draws_no_bar(gbps: float) -> None:
    broken = replace(result("naive", 100.0), gbps=gbps)
    table = shown([broken, result("registers", 190.0, percent_of_copy=95.0)], 120)
    assert "█" not in line_of(table, "naive") and "█" in line_of(table, "registers")


def sweep(*cols: int) -> list[Result]:
    """A kernel that becomes slower, one that becomes faster, and one that fails at the end."""
    found = []
    for at, n in enumerate(cols):
        problem = NormProblem(rows=64, cols=n)
        found += [
            replace(timed("copy", 100.0, percent_of_copy=100.0), op="copy", problem=problem),
            timed("falls", 110.0 + at, problem=problem, percent_of_copy=90.0 - 5 * at, auto="rules"),
            timed("rises", 200.0 - 95 * at, problem=problem, percent_of_copy=50.0 + 35 * at),
        ]
        wrong = {"status": "fail" if n == cols[-1] else "pass", "median_ns": 300.0, "percent_of_copy": 33.0}
        found.append(timed("fails", 300.0, problem=problem, **{**wrong, "reason": "off"}))
    return found


def test_a_matrix_has_a_row_for_each_kernel_and_marks_the_winners() -> None:
    header, columns, falls, rises, fails, auto = text(ShareMatrix(sweep(256, 512))).splitlines()
    assert header == "layer_norm float32, 64 rows: percent of the copy, * is fastest"
    assert columns.split() == ["kernel", "256", "512"]
    assert falls.split() == ["falls", "90*", "85"] and rises.split() == ["rises", "50", "85*"]
    assert fails.split() == ["fails", "33", "FAIL"] and auto.split() == ["auto", "90*", "85"]


def test_a_matrix_explains_a_missing_number_of_auto() -> None:
    said = "auto: - means that its choice was not timed\n"
    assert said not in text(ShareMatrix(sweep(256, 512)))
    unmarked = [replace(one, auto=None) if one.problem.cols == 512 else one for one in sweep(256, 512)]
    table = text(ShareMatrix(unmarked))
    assert table.endswith(said) and line_of(table, "auto ").split() == ["auto", "90*", "-"]


def test_a_matrix_is_broken_where_its_columns_end() -> None:
    table = text(ShareMatrix(sweep(*range(256, 2304, 64))), 40)
    assert table.count("kernel") > 3 and max(map(len, table.splitlines()[1:])) <= 40
    assert table.count("rises") == table.count("kernel")


def test_types_and_ops_have_a_matrix_each() -> None:
    narrow = [replace(one, problem=replace(one.problem, dtype="float16")) for one in sweep(256, 512)]
    alone = [replace(one, problem=replace(one.problem, dtype="bfloat16")) for one in sweep(256)]
    table = text(ShareMatrix([*sweep(256, 512), *narrow, *alone]))
    assert table.count("percent of the copy") == 2 and "layer_norm float16, 64 rows" in table
    assert "bfloat16" not in table
    assert ShareMatrix(narrow).families and not ShareMatrix(alone).families


def test_the_outcome_of_a_problem_is_a_line() -> None:
    right, wrong = sweep(256), sweep(512, 256)[4:]
    assert (
        text(outcome(right[:3], "a problem"), 120) == "a problem: falls 110 ns, 90 % of copy; auto's choice\n"
    )
    (line,) = text(outcome(wrong, "another"), 120).splitlines()
    assert line == "another: rises 105 ns, 85 % of copy; auto's choice falls has 95 % of its speed; 1 FAIL"
    assert text(outcome(wrong[-1:], "none"), 120) == "none: no kernel was timed; 1 FAIL\n"


def test_columns_are_dropped_in_the_order_of_their_ranks() -> None:
    from rich.text import Text

    strips = [
        Column("kernel", [Text("registers")], name=True),
        Column("a", [Text("1234")], rank=1),
        Column("b", [Text("1234")], rank=2),
    ]
    assert [strip.heading for strip in fitting_columns(strips, 19)] == ["kernel", "a", "b"]
    assert [strip.heading for strip in fitting_columns(strips, 18)] == ["kernel", "b"]
    (name,) = fitting_columns(strips, 5)
    assert [line.plain for line in table_lines([name], 5)] == ["kern…", "regi…"]


def test_few_samples_give_no_ranks_and_one_winner() -> None:
    """Without enough samples for ranks, table, matrix and outcome sort by the shown medians."""
    moments = [1.0, 1.0, 3.0, 3.0, 3.0]
    copy = replace(timed("copy", 30.0, samples_ns=tuple(10 * one for one in moments)), op="copy")
    fast = timed("fast", 60.0, samples_ns=tuple(20 * one for one in moments), percent_of_copy=50.0)
    slow = timed("slow", 22.0, samples_ns=(22.0, 22.0, 66.0, 66.0, 66.0), percent_of_copy=99.0)
    table = text(BenchTable([copy, slow, fast], "title"), 120)
    assert table.index("slow") < table.index("fast") and "1" not in line_of(table, "slow")[:3]
    assert "no ranks: too few samples to show which kernel is faster" in " ".join(table.split())
    assert not any("no ranks" in shown(found) for found in (MIXED, [copy, MIXED[-1]]))
    assert "title: slow" in text(outcome([copy, slow, fast], "title"), 120)
    wide = [replace(one, problem=replace(one.problem, cols=99)) for one in (copy, slow, fast)]
    assert line_of(text(ShareMatrix([copy, slow, fast, *wide])), "slow ").count("*") == 2
