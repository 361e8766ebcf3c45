from __future__ import annotations

import math
from pathlib import Path

from samples import result
from shown import line_of, text
from webnorm.cli.check_view import CheckTable
from webnorm.cli.mistakes import mistakes
from webnorm.errors import Place
from webnorm.lab.results import Result


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
    shown = text(CheckTable(results))
    assert line_of(shown, "kernel").endswith("pass  FAIL  expected failure  skip  max rel error")
    assert line_of(shown, "  registers").split()[1:] == ["2", "-", "-", "1", "1.5e-06"]
    # An unstable kernel shows how wrong it is, which is what it is kept for.
    assert line_of(shown, "  one_pass").split()[1:] == ["1", "-", "1", "-", "inf"]
    assert line_of(shown, "  naive").split()[1:] == ["1", "4", "-", "-", "nan"]
    assert "worst: uniform, float32" in shown and shown.count("worst:") == 1
    assert "case uniform" in shown and "off by a half" in shown and "does not compile" in shown
    assert "(case empty" in shown and "skip: no columns" in shown
    verbose = text(CheckTable(results, verbose=True))
    assert "worst: outlier, float32" in verbose and verbose.count("worst:") == 3


def test_a_kernel_that_passes_is_a_line() -> None:
    shown = text(CheckTable([result("registers", case="normal", worst="y[0, 0] is 1")]), 40)
    assert shown.splitlines() == [
        "kernel       pass  FAIL  max rel error",
        "layer_norm",
        "  registers     1     -        1.2e-06",
    ]


def test_check_of_what_never_ran_has_no_worst() -> None:
    shown = text(CheckTable([result("naive", status="skip", max_rel_error=None)], verbose=True))
    assert line_of(shown, "  naive").split()[1:] == ["-", "-", "1", "-"] and "worst:" not in shown


def mistaken(path: Path, place: Place | None, reason: str) -> Result:
    return result(path.stem, None, status="error", max_rel_error=None, reason=reason, place=place)


def test_a_mistake_is_told_as_editors_read_it(tmp_path: Path) -> None:
    path = tmp_path / "long name" / "mine.wgsl"
    path.parent.mkdir()
    path.write_text("// a kernel\n\tlet mean = = 1.0;\n")
    reason = f'{path}:2: expected expression, found "=": let mean = = 1.0;'
    wrong = mistaken(path, Place(str(path), 2, 13, 1), reason)
    (told,) = mistakes([wrong, wrong])
    head, source, caret = told.plain.splitlines()
    assert head == f'{path}:2:13: error: expected expression, found "="'
    assert source == "      let mean = = 1.0;" and caret.index("^") == source.rindex("=")
    assert reason not in text(CheckTable([wrong]), 300)


def test_a_mistake_without_a_column_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.wgsl"
    (told,) = mistakes([mistaken(path, None, f"{path}:2: unknown key \x1b")])
    assert told.plain == f"{path}:2: error: unknown key \\x1b"
    assert mistakes([mistaken(path, None, "the process ended")]) == []
    assert "the process ended" in text(CheckTable([mistaken(path, None, "the process ended")]), 120)
