from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import BARE, FULL, ORIGIN, PROBLEM, REPORT, timed
from webnorm.cli.work.outputs import command_line
from webnorm.errors import WebnormError
from webnorm.lab.report.findings import Findings
from webnorm.lab.results import ranking, result_files, tables
from webnorm.lab.results.result import Origin, Report, Result, commit_of, origin_of
from webnorm.op.recorded_problem import recorded_problem
from webnorm.ops.norms.problem import NormOptions, NormProblem


def kept(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "old.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def as_data(report: Report = REPORT) -> Any:
    return json.loads(result_files.to_json(report))


def test_json_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(result_files.to_json(REPORT))
    assert result_files.read(path) == REPORT


@pytest.mark.parametrize("complete", [True, False, None])
@pytest.mark.parametrize("origin", [ORIGIN, replace(ORIGIN, commit=None), None])
def test_the_origin_of_a_report_round_trips(
    tmp_path: Path, complete: bool | None, origin: Origin | None
) -> None:
    report = replace(REPORT, complete=complete, origin=origin)
    text = result_files.to_json(report)
    assert result_files.read(kept(tmp_path, text)) == report
    assert "null" not in text
    about = {"complete": complete} | (vars(origin) if origin else {})
    assert {name: json.loads(text).get(name) for name in about} == about


@pytest.mark.parametrize(
    ("key", "value"), [("complete", "yes"), ("complete", 1), ("run", 3), ("recorded", None), ("commit", 7)]
)
def test_an_invalid_origin_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    data = as_data(replace(REPORT, complete=True, origin=ORIGIN))
    data[key] = value
    with pytest.raises(WebnormError, match=rf"old\.json: {key} is .*{value or 'null'}.*; (expected|set) "):
        result_files.read(kept(tmp_path, data))


def test_older_files_use_the_key_time(tmp_path: Path) -> None:
    report = replace(REPORT, origin=ORIGIN)
    older = result_files.to_json(report).replace('"recorded"', '"time"')
    assert '"time"' in older and result_files.read(kept(tmp_path, older)) == report
    both = {**as_data(report), "time": "what a later webnorm means by that"}
    assert result_files.read(kept(tmp_path, both)) == report


def test_an_origin_is_complete_or_absent(tmp_path: Path) -> None:
    data = as_data(replace(REPORT, origin=ORIGIN))
    del data["host"]
    with pytest.raises(WebnormError, match=r"old\.json: host is missing$"):
        result_files.read(kept(tmp_path, data))


def test_each_run_has_its_own_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr(sys, "argv", ["/bin/webnorm", "bench", "--json", "a b"])
    one, other = (origin_of(command_line()) for _ in range(2))
    assert one.run != other.run and len(one.run) == 32
    assert one.command == "webnorm bench --json 'a b'"
    began = datetime.strptime(one.recorded, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert timedelta() <= datetime.now(UTC) - began < timedelta(minutes=1)


def test_the_commit_is_the_checkouts_and_not_a_parent_folders(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert commit_of(tmp_path) is None
    git("init")
    assert commit_of(tmp_path) is None
    (tmp_path / "file").write_text("old")
    (tmp_path / "inside").mkdir()
    git("add", ".")
    git("commit", "-m", "first")
    git("tag", "v1")
    commit = git("rev-parse", "HEAD")
    assert (commit_of(tmp_path), commit_of(tmp_path / "inside")) == (commit, None)
    # The test does not touch the index, because git would update it and lock out other git commands.
    index = (tmp_path / ".git" / "index").read_bytes()
    os.utime(tmp_path / "file", (1, 1))
    assert commit_of(tmp_path) == commit
    assert (tmp_path / ".git" / "index").read_bytes() == index
    (tmp_path / "file").write_text("new")
    assert commit_of(tmp_path) == f"{commit}-dirty"


def test_a_report_without_results_round_trips(tmp_path: Path) -> None:
    empty = replace(REPORT, results=())
    assert result_files.read(kept(tmp_path, result_files.to_json(empty))) == empty


def test_options_round_trip(tmp_path: Path) -> None:
    bare = replace(BARE, problem=NormProblem(rows=1, cols=3, options=NormOptions(bias=False)))
    read = result_files.read(kept(tmp_path, result_files.to_json(replace(REPORT, results=(bare,)))))
    assert read.results[0].problem.options == NormOptions(weight=True, bias=False)


def test_json_has_no_nulls_and_no_keys_for_what_was_not_measured() -> None:
    assert "null" not in result_files.to_json(REPORT)
    assert set(as_data()["results"][1]) == {"op", "kernel", "constants", "problem", "status", "reason"}


def test_bools_among_the_constants_are_written_as_numbers() -> None:
    data = as_data(replace(REPORT, results=(replace(BARE, constants={"padded": True}),)))
    assert type(data["results"][0]["constants"]["padded"]) is int


@given(error=st.floats(), samples=st.lists(st.floats(), max_size=4))
def test_every_float_survives_strict_json(error: float, samples: list[float]) -> None:
    report = replace(
        REPORT, results=(replace(FULL, max_abs_error=error, samples_ns=tuple(samples), runs=None),)
    )
    text = result_files.to_json(report)

    def refuse(literal: str) -> None:
        raise AssertionError(literal)

    (entry,) = json.loads(text, parse_constant=refuse)["results"]
    back = result_files._result(entry, "here")
    assert back.max_abs_error is not None and back.samples_ns is not None
    for got, put in zip([back.max_abs_error, *back.samples_ns], [error, *samples], strict=True):
        assert got == put or (math.isnan(got) and math.isnan(put))


def test_non_finite_numbers_are_written_as_strings() -> None:
    broken = replace(FULL, max_abs_error=math.inf, max_rel_error=math.nan)
    (entry,) = as_data(replace(REPORT, results=(broken,)))["results"]
    assert (entry["max_abs_error"], entry["max_rel_error"]) == ("inf", "nan")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=r"cannot read .*absent\.json: No such file"):
        result_files.read(tmp_path / "absent.json")


@pytest.mark.parametrize("text", ["", "{", "not json", '{"schema": NaN}', "\x80"])
def test_invalid_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(WebnormError, match="is not JSON"):
        result_files.read(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = kept(tmp_path, {"schema": 2})
    with pytest.raises(WebnormError) as caught:
        result_files.read(path)
    assert str(caught.value) == f"{path}: schema is 2; expected 1"


@pytest.mark.parametrize("data", [{}, [1], {"a": 1}])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(data))
    with pytest.raises(
        WebnormError, match=r"old\.json is not a results file: .*; expected a file that `webnorm"
    ):
        result_files.read(path)


@pytest.mark.parametrize("key", ["webnorm", "device", "results"])
def test_a_missing_key_of_the_report_is_named(tmp_path: Path, key: str) -> None:
    data = as_data()
    del data[key]
    with pytest.raises(WebnormError, match=rf"old\.json: {key} is missing$"):
        result_files.read(kept(tmp_path, data))


@pytest.mark.parametrize("key", ["op", "kernel", "constants", "problem", "status"])
def test_a_missing_key_of_a_result_is_named(tmp_path: Path, key: str) -> None:
    data = as_data()
    del data["results"][1][key]
    with pytest.raises(WebnormError, match=rf"old\.json: results\[1\]\.{key} is missing$"):
        result_files.read(kept(tmp_path, data))


@pytest.mark.parametrize("key", ["rows", "cols", "eps", "options"])
def test_a_missing_key_of_a_problem_is_named(tmp_path: Path, key: str) -> None:
    data = as_data()
    del data["results"][0]["problem"][key]
    with pytest.raises(WebnormError, match=rf"old\.json: results\[0\]\.problem\.{key} is missing$"):
        result_files.read(kept(tmp_path, data))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("median_ns", "fast"),
        ("median_ns", None),
        ("median_ns", True),
        ("samples_ns", 3),
        ("samples_ns", ["x"]),
        ("runs", 3),
        ("runs", [1.5, 1.5]),
        ("runs", [3, 0]),
        ("runs", [1, 1]),
        ("bytes", 1.5),
        ("status", "fine"),
        ("status", []),
        ("cache", "hot"),
        ("constants", {"a": "b"}),
        ("constants", [1]),
        ("problem", {**PROBLEM.as_json(), "rows": -1}),
        ("problem", {**PROBLEM.as_json(), "rows": 1.5}),
        ("problem", {**PROBLEM.as_json(), "options": {"colour": True}}),
        ("flags", [1]),
        ("render_ns", "long"),
        ("upload_bytes", 1.5),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(tmp_path: Path, key: str, value: Any) -> None:
    data = as_data()
    data["results"][0][key] = value
    with pytest.raises(WebnormError, match=rf"old\.json: results\[0\]\.{key}\b.*( is |unexpected)") as caught:
        result_files.read(kept(tmp_path, data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [[], 3, {"schema": 1, "webnorm": "0", "device": [], "results": []}])
def test_json_of_another_shape_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(WebnormError):
        result_files.read(kept(tmp_path, data))


def test_keys_of_a_later_webnorm_are_ignored(tmp_path: Path) -> None:
    data = as_data()
    data["results"][0]["joules"] = 3
    assert result_files.read(kept(tmp_path, data)) == REPORT


def test_csv_has_a_line_per_result_without_samples() -> None:
    first, second = csv.DictReader(io.StringIO(tables.to_csv(REPORT)))
    assert "samples_ns" not in first
    assert first["device"] == "llvmpipe"
    assert first["constants"] == "threads_per_row=64;vector_width=4"
    assert first["options"] == "no bias;out_dtype=int8"
    assert first["flags"] == "noisy;throttled"
    assert (first["rows"], first["cols"], first["median_ns"]) == ("64", "768", "2000.0")
    assert (second["status"], second["reason"], second["median_ns"]) == ("skip", "no room", "")


def test_markdown_ranks_by_median_with_the_roofline_first_and_failures_last() -> None:
    wrong = replace(BARE, kernel="wrong", status="fail", reason="off|by\none", max_abs_error=math.nan)
    copies = [replace(timed("copy", median), op="copy") for median in (1500.0, 1000.0)]
    report = replace(REPORT, results=(wrong, timed("slow", 3000.0), *copies, BARE, timed("fast", 2000.0)))
    text = tables.to_markdown(report)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    assert rows[0] == [name for name in tables.COLUMNS if name not in ("GFLOP/s", "timing")]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [(row[0], row[1]) for row in rows[2:]] == [
        ("", "copy (roofline)"),
        ("1", "fast"),
        ("2", "slow"),
        ("", "naive"),
        ("", "wrong"),
    ]
    assert rows[2][3] == "1 us"
    assert [row[4] for row in rows[2:]] == ["10", "5", "3", "-", "-"]
    assert rows[-1][7:9] == ["nan", "FAIL"]
    assert "- wrong: FAIL: off\\|by one" in text
    assert "- timed by timestamp, cold cache" in text


def test_a_time_that_is_no_number_is_not_ranked() -> None:
    broken = [timed("broken", median) for median in (math.nan, math.inf, -1.0)]
    broken.append(replace(FULL, median_ns=0.0))
    assert not any(result.timed for result in broken)
    assert ranking.best([*broken, timed("right", 5.0)]) == timed("right", 5.0)
    assert ranking.ranked([*broken, timed("right", 5.0)])[0].kernel == "right"


def test_right_untimed_results_come_between_timed_and_failed_ones() -> None:
    untimed = replace(BARE, status="pass")
    failures = [replace(BARE, status="fail", expected=expected) for expected in (False, True)]
    found = ranking.ranked([*failures, BARE, untimed, timed("right", 5.0)])
    verdicts = [ranking.verdict(result) for result in found]
    assert verdicts == ["pass", "pass", "skip", "expected failure", "FAIL"]
    assert found[0].timed and not found[1].timed


def ranks(*found: Result) -> list[str]:
    return [cells["#"] for _, cells in tables.problem_table(found).rows]


def noisy(kernel: str, median: float, seed: int, runs: int = 1, between: float = 0.0) -> Result:
    """Return a result whose samples differ by 10 %, and whose runs differ by `between`."""
    rng = np.random.default_rng(seed)
    moves = rng.normal(1, between, (runs, 1))
    drawn = (median * moves * rng.normal(1, 0.1, (runs, 30))).reshape(-1)
    counts = (30,) * runs if runs > 1 else None
    return timed(kernel, float(np.median(drawn)), samples_ns=tuple(drawn.tolist()), runs=counts)


def test_a_table_is_ordered_by_shares_of_the_copy_in_the_same_rounds() -> None:
    """The slower kernel has the smaller median, since one more of its samples was in a fast moment."""
    moments = [1.0] * 10 + [3.0] * 11
    copy = replace(timed("copy", 30.0, samples_ns=tuple(10 * one for one in moments)), op="copy")
    fast = timed("fast", 60.0, samples_ns=tuple(20 * one for one in moments), auto="rules")
    slow = timed("slow", 22.0, samples_ns=(22.0,) * 11 + (66.0,) * 10)
    assert [one.kernel for one in ranking.ranked([copy, slow, fast])] == ["copy", "fast", "slow"]
    assert tables.auto_remarks([copy, slow, fast])[0].endswith("the best variant measured")
    assert Findings(replace(REPORT, results=(copy, slow, fast))).best() == [fast]
    assert [one.kernel for one in ranking.ranked([slow, fast])] == ["slow", "fast"]
    # The table explains the ranks if its medians have another order.
    (said,) = tables.rank_remarks([copy, slow, fast])
    assert said in tables.problem_table([copy, slow, fast]).remarks
    assert said.startswith("ranked by time as a multiple of the copy's") and "not by medians" in said
    assert re.search(r": fast .* 2, slow .* 2\.2$", said)
    assert tables.rank_remarks([slow, fast]) == [] and tables.rank_remarks([copy, fast]) == []


def test_kernels_within_noise_share_a_rank() -> None:
    assert ranks(noisy("a", 100.0, 10), noisy("b", 101.0, 11), noisy("c", 150.0, 2)) == ["1=", "1=", "3"]
    assert ranks(noisy("a", 100.0, 0), noisy("b", 150.0, 10), noisy("c", 151.0, 11)) == ["1", "2=", "2="]


def test_within_a_rank_the_order_follows_the_medians() -> None:
    """Round by round `a` is faster, but not significantly. The medians have another order."""
    moments = np.array([1.0] * 3 + [2.0] * 4)
    copy = timed("copy", 20.0, op="copy", samples_ns=tuple(10 * moments))
    a = timed("a", 60.0, samples_ns=tuple(30 * moments), auto="rules")
    b = timed("b", 31.0, samples_ns=(31.0,) * 4 + (62.0,) * 3)
    found = [copy, a, b, timed("c", 900.0)]
    placed = [(one.kernel, rank) for one, rank in ranking.standings(found)]
    assert placed == [("copy", ""), ("b", "1="), ("a", "1="), ("c", "3")]
    assert ranking.leader(found) == b and tables.auto_short(found) == [
        "auto's choice a has 52 % of its speed"
    ]


def test_noise_shared_by_a_round_does_not_join_ranks() -> None:
    a = noisy("a", 100.0, 0)
    b = replace(a, kernel="b", samples_ns=tuple(1.01 * sample for sample in a.samples_ns or ()))
    assert ranks(a, replace(b, median_ns=1.01 * (a.median_ns or 0))) == ["1", "2"]


def test_runs_that_disagree_join_ranks() -> None:
    a = noisy("a", 100.0, 0, 5)
    assert ranks(a, noisy("b", 120.0, 1, 5)) == ["1", "2"]
    assert ranks(a, noisy("b", 120.0, 1, 5, between=0.3)) == ["1=", "1="]


def test_ranks_without_samples_follow_the_medians() -> None:
    a, b = (timed(name, median, samples_ns=None) for name, median in (("a", 1.0), ("b", 2.0)))
    assert ranks(a, b) == ["1", "2"]


def test_a_wrong_kernel_is_never_the_best() -> None:
    assert ranking.best([replace(timed("wrong", 1.0), status="fail")]) is None


def test_rows_name_the_timing_method_if_it_differs() -> None:
    cells = tables.problem_table([timed("a", 1.0), timed("b", 2.0, cache="warm")])
    assert cells.columns == tuple(name for name in tables.COLUMNS if name != "GFLOP/s")
    assert [row["timing"] for _, row in cells.rows] == ["timestamp, cold cache", "timestamp, warm cache"]
    assert cells.remarks == []


def test_a_group_contains_only_copies_of_its_shape() -> None:
    wide = NormProblem(rows=64, cols=1024)
    copies = [replace(timed("copy", 1.0), op="copy", problem=problem) for problem in (PROBLEM, wide)]
    ((title, members),) = ranking.by_problem([*copies, timed("a", 2.0)])
    assert title == "layer_norm 64x768 float32, no bias, out_dtype=int8"
    assert [member.problem for member in members if member.roofline] == [PROBLEM]
    assert len(ranking.by_problem(copies)) == 2


def test_notes_count_equal_failures() -> None:
    skips = [replace(BARE, constants={"n": n}) for n in range(3)]
    fails = [replace(BARE, status="fail", reason=f"off by {n}", constants={"n": n}) for n in range(5)]
    assert tables.notes([*skips, *fails]) == [
        "naive (3 results): skip: no room",
        "naive (n=0): FAIL: off by 0",
        "naive (n=1): FAIL: off by 1",
        "naive (n=2): FAIL: off by 2",
        "naive: FAIL: 2 more for other reasons",
    ]


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(None, "-"), (12.34, "12.34 ns"), (1.5e3, "1.5 us"), (2e6, "2 ms"), (3e9, "3 s"), (math.nan, "nan")],
)
def test_times_have_units(nanoseconds: float | None, text: str) -> None:
    assert tables.time_text(nanoseconds) == text


@pytest.mark.parametrize("name", ["as", "sizes", "__init__", "a b", "", 3])
def test_a_problem_of_an_unknown_op_has_names(name: Any) -> None:
    """Keywords and existing fields are invalid names, also in files from anywhere."""
    known = {"rows": 3, "distribution": "normal"}
    assert recorded_problem("theirs", {**known, "options": {"free": True}}).sizes == {"rows": 3}
    for data in ({name: 4}, {"options": {name: True}}):
        with pytest.raises(WebnormError, match=r"a problem of theirs has .*; expected a name"):
            recorded_problem("theirs", {**known, **data})


def test_names_of_options_may_be_sizes() -> None:
    """An op.py allows the same."""
    known = {"rows": 3, "distribution": "normal"}
    assert recorded_problem("theirs", {**known, "flags": 4}).sizes == {"rows": 3, "flags": 4}
    with pytest.raises(WebnormError, match="a problem of theirs has 'flags'; expected a name"):
        recorded_problem("theirs", {**known, "options": {"flags": True}})
