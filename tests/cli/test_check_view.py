from __future__ import annotations

import math
from pathlib import Path

import pytest

from samples import result
from shown import line_of, text
from webnorm.cli.verbs.check_view import CheckTable
from webnorm.cli.work.compile_errors import compile_error_lines
from webnorm.cli.work.overview import race_line
from webnorm.errors import SourceLocation
from webnorm.lab.results.result import Result


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
    shown = text(CheckTable(results), 120)
    assert line_of(shown, "kernel").endswith("pass  FAIL  unstable  skip  max rel error")
    assert line_of(shown, "  registers").split()[1:] == ["2", "-", "-", "1", "1.5e-06"]
    # An unstable kernel shows its error, because it exists to show it.
    assert line_of(shown, "  one_pass").split()[1:] == ["1", "-", "1", "-", "inf"]
    assert line_of(shown, "  naive").split()[1:] == ["1", "4", "-", "-", "nan"]
    # The table shows a failure once: the error of the worst case, and the names of the other cases.
    constants = "threads_per_row=256 rows_per_workgroup=4 vector_width=4"
    below = shown.splitlines()[shown.splitlines().index(line_of(shown, "  naive")) :][1:3]
    assert below == [
        f"    worst: uniform, float32, {constants}: [0, 0] is nan",
        "    also wrong: mean100, mean1000",
    ]
    assert shown.count("worst:") == shown.count("uniform") == 1 and "off by" not in shown
    assert line_of(shown, "does not compile").startswith("naive (case triton, ")
    assert "(case empty" in shown and "skip: no columns" in shown
    verbose = text(CheckTable(results, verbose=True))
    assert "worst: outlier, float32" in verbose and verbose.count("worst:") == 3


def test_expected_failures_are_shown_on_a_narrow_terminal() -> None:
    results = [
        result("one_pass", status="fail", expected=True, max_rel_error=320.0),
        result("welford_subgroup", max_rel_error=1e-7),
        result("welford_subgroup", status="skip", max_rel_error=None, reason="no columns"),
    ]
    shown = text(CheckTable(results), 40)
    assert line_of(shown, "kernel").split() == ["kernel", "pass", "FAIL", "unstable"]
    assert line_of(shown, "  one_pass").split() == ["one_pass", "-", "-", "1"]
    assert line_of(shown, "  welford_subgroup").split()[1:] == ["1", "-", "-"]


def test_many_failures_are_a_line() -> None:
    results = [result("naive", case=f"n-{at}", status="fail", reason="off") for at in range(9)]
    assert line_of(text(CheckTable(results)), "also wrong:").endswith(
        "also wrong: n-1, n-2, n-3, n-4, n-5, n-6 and 2 more"
    )


def test_a_case_that_fails_with_several_constants_is_named_once() -> None:
    failures = [
        result("naive", case="n-1", status="fail", reason="off", max_rel_error=one) for one in (1.0, 2.0)
    ]
    others = [result("naive", case="n-2", status="fail", reason="off", max_rel_error=0.5)] * 2
    assert line_of(text(CheckTable([*failures, *others])), "also wrong:").endswith("also wrong: n-2")
    assert "too:" not in text(CheckTable(failures))


@pytest.mark.parametrize(
    ("watched", "said"),
    [
        ([], ""),
        ([None], ""),
        ([True, None, True], "races on workgroup memory: none in 2 runs"),
        ([True, False], "races on workgroup memory: none in 1 run, 1 more could not be checked"),
        ([False], "races on workgroup memory: 1 run could not be checked"),
    ],
)
def test_the_line_about_races(watched: list[bool | None], said: str) -> None:
    assert race_line([result("naive", watched=one) for one in watched]) == said


def test_the_first_reason_for_unchecked_races_is_shown() -> None:
    first = result("naive", watched=False, unwatched="tally is passed\non by its address")
    unwatched = [result("naive", watched=False), first, result("naive", watched=False, unwatched="x" * 999)]
    reason = r"could not be checked (tally is passed\non by its address)"
    assert race_line(unwatched) == f"races on workgroup memory: 3 runs {reason}"
    both = race_line([*unwatched, result("naive", watched=True)])
    assert both == f"races on workgroup memory: none in 1 run, 3 more {reason}"
    assert len(race_line(unwatched[2:])) < 300


def test_a_race_is_shown() -> None:
    raced = result("naive", status="fail", watched=True, fault="race", reason="a race on partials[3]")
    assert race_line([raced, result("naive", watched=True)]) == "races on workgroup memory: in 1 of 2 runs"
    endless = result("naive", status="fail", watched=True, fault="loop", reason="a loop next to a race")
    assert race_line([endless]) == "races on workgroup memory: none in 1 run, endless loops in 1"


def test_a_kernel_that_passes_is_a_line() -> None:
    shown = text(CheckTable([result("registers", case="normal", worst="y[0, 0] is 1")]), 40)
    assert shown.splitlines() == [
        "kernel       pass  FAIL  max rel error",
        "layer_norm",
        "  registers     1     -        1.2e-06",
    ]


def test_a_kernel_that_never_ran_has_no_worst_case() -> None:
    shown = text(CheckTable([result("naive", status="skip", max_rel_error=None)], verbose=True))
    assert line_of(shown, "  naive").split()[1:] == ["-", "-", "1", "-"] and "worst:" not in shown


def mistaken(path: Path, place: SourceLocation | None, reason: str) -> Result:
    return result(path.stem, None, status="error", max_rel_error=None, reason=reason, place=place)


def test_a_compile_error_has_the_format_of_editors(tmp_path: Path) -> None:
    path = tmp_path / "long name" / "mine.wgsl"
    path.parent.mkdir()
    path.write_text("// a kernel\n\tlet mean = = 1.0;\n")
    reason = f'{path}:2: expected expression, found "=": let mean = = 1.0;'
    wrong = mistaken(path, SourceLocation(str(path), 2, 13, 1), reason)
    # The compiler's expression numbers differ for another shape.
    again = mistaken(path, wrong.place, f"{path}:2: Expression [7] is invalid: let mean = = 1.0;")
    (line,) = compile_error_lines([wrong, again, wrong])
    head, source, caret = line.plain.splitlines()
    assert head == f'{path}:2:13: error: expected expression, found "="'
    assert source == "      let mean = = 1.0;" and caret.index("^") == source.rindex("=")
    assert reason not in text(CheckTable([wrong]), 300)


def test_a_mistake_without_a_column_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.wgsl"
    (line,) = compile_error_lines([mistaken(path, None, f"{path}:2: unknown key \x1b")])
    assert line.plain == f"{path}:2: error: unknown key \\x1b"
    assert compile_error_lines([mistaken(path, None, "the process ended")]) == []
    assert "the process ended" in text(CheckTable([mistaken(path, None, "the process ended")]), 120)
