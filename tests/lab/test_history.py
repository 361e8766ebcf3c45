"""The store of results and its regressions, with artificial reports."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import examples
from patience import HANG_S
from samples import BARE, CARD, KEPT_PROBLEM, REPORT, kept_run, timed
from webnorm.errors import WebnormError
from webnorm.lab.report.history import store as kept
from webnorm.lab.report.history.regressions import NewestRun, RegressionResult, regressions, to_json
from webnorm.lab.report.history.series import SeriesQuery, history
from webnorm.lab.report.history.series import to_json as history_json
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report, Result, Status

ALL = SeriesQuery()


def written(folder: Path, *reports: Report) -> list[Path]:
    first = len(list(folder.glob("*.json")))
    paths = [folder / f"{first + at:03}.json" for at in range(len(reports))]
    for path, report in zip(paths, reports, strict=True):
        path.write_text(result_files.to_json(report))
    return paths


def added(folder: Path, *reports: Report) -> list[str]:
    return [one.fate for one in kept.add_reports(folder / "store.db", written(folder, *reports))]


def verdicts_of(folder: Path, *reports: Report, last: int = 10) -> dict[str, str]:
    """Return the verdicts on the newest of some reports in a new store, by kernel."""
    added(folder, *reports)
    (newest,) = regressions(folder / "store.db", ALL, last)
    return verdicts(newest)


def verdicts(newest: NewestRun) -> dict[str, str]:
    return {one.comparison.result.kernel: one.comparison.verdict for one in newest.results}


def rows(folder: Path, query: str = "SELECT * FROM history") -> list[Any]:
    with sqlite3.connect(folder / "store.db") as connection:
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def steady(count: int = 10, **times: float) -> list[Report]:
    """Return runs with normal variation."""
    factors = (1.0, 1.004, 0.997, 1.002, 0.999)
    of = times or {"registers": 2000.0, "naive": 6000.0}
    return [
        kept_run(at, {name: time * factors[(at + len(name)) % 5] for name, time in of.items()})
        for at in range(count)
    ]


# --- adding -------------------------------------------------------------------------------------------


def test_adding_twice_changes_nothing(tmp_path: Path) -> None:
    run, nameless = kept_run(0, {"naive": 1.0}), replace(REPORT, origin=None)
    assert added(tmp_path, run, nameless) == ["added", "added"]
    before = (tmp_path / "store.db").read_bytes()
    again = replace(run, results=(BARE,))
    assert added(tmp_path, run, nameless, again, run) == ["already stored"] * 4
    # Reports without a run's id are equal if their content is, in any formatting.
    (tmp_path / "indented").write_text(json.dumps(json.loads(result_files.to_json(nameless)), indent=3))
    (one,) = kept.add_reports(tmp_path / "store.db", [tmp_path / "indented"])
    assert one.fate == "already stored" and (tmp_path / "store.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "store" in path.name] == ["store.db"]


def test_nothing_of_a_report_is_lost_and_its_columns_are_plain(tmp_path: Path) -> None:
    run = kept_run(3, {"naive": 2000.0})
    added(tmp_path, run)
    ((text,),) = rows(tmp_path, "SELECT report FROM reports")
    assert result_files.report_from_json(json.loads(text)) == run
    columns = (
        "recorded, run, adapter, driver, op, kernel, constants, rows, cols, dtype, options, status, "
        "median_ns, gbps, percent_of_copy, complete"
    )
    assert rows(tmp_path, f"SELECT {columns} FROM history WHERE op != 'copy'") == [
        (
            "2026-11-04T00:00:00Z",
            f"{3:032x}",
            "Some GPU",
            "1.2",
            "layer_norm",
            "naive",
            "threads_per_row=64;vector_width=4",
            64,
            768,
            "float32",
            "",
            "pass",
            2000.0,
            196.608,
            80.0,
            1,
        )
    ]


def test_a_finished_report_replaces_the_partial_one(tmp_path: Path) -> None:
    run = kept_run(0, {"naive": 2000.0, "registers": 1000.0})
    early = replace(run, results=run.results[:2], complete=False)
    assert added(tmp_path, early, run, early) == ["added", "replaced partial run", "already stored"]
    assert rows(tmp_path, "SELECT COUNT(*), MIN(complete) FROM history") == [(3, 1)]


def test_reports_of_one_run_on_several_devices_are_all_kept(tmp_path: Path) -> None:
    run = kept_run(0, {"naive": 1.0})
    other = replace(run, device={**CARD, "adapter": "Another"})
    assert added(tmp_path, run, other, other) == ["added", "added", "already stored"]


def test_all_or_none_of_several_files_are_added(tmp_path: Path) -> None:
    added(tmp_path, kept_run(0, {"naive": 1.0}))
    before = (tmp_path / "store.db").read_bytes()
    good = written(tmp_path, kept_run(1, {"naive": 1.0}))
    (tmp_path / "bad.json").write_text('{"schema": 2}')
    for bad in (tmp_path / "bad.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(WebnormError, match=f"{bad}.*; nothing was added"):
            kept.add_reports(tmp_path / "store.db", [*good, bad])
    assert (tmp_path / "store.db").read_bytes() == before
    with pytest.raises(WebnormError, match="nothing was added"):
        kept.add_reports(tmp_path / "new.db", [*good, tmp_path / "bad.json"])
    assert not (tmp_path / "new.db").exists()


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    paths = written(tmp_path, *(kept_run(at, {"naive": 1.0}) for at in range(24)))
    code = (
        "import sys; from pathlib import Path; from webnorm.lab.report.history.store import add_reports\n"
        "for path in sys.argv[2:]: add_reports(Path(sys.argv[1]), [Path(path)])"
    )
    # Both processes add every third file.
    shares = [[path for at, path in enumerate(paths) if at % 3 in (0, one)] for one in (1, 2)]
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "store.db"), *map(str, share)])
        for share in shares
    ]
    assert [one.wait(timeout=HANG_S) for one in started] == [0, 0]
    assert rows(tmp_path, "SELECT COUNT(*), COUNT(DISTINCT run) FROM reports") == [(24, 24)]
    assert rows(tmp_path, "SELECT COUNT(*) FROM results") == [(48,)]


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_an_add_that_fails_half_way_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    added(tmp_path, kept_run(0, {"naive": 1.0}))
    before = (tmp_path / "store.db").read_bytes()
    paths = written(tmp_path, *(kept_run(at, {"naive": 1.0}) for at in range(1, 60)))
    code = (
        "import os, resource, signal, sys; from pathlib import Path\n"
        "from webnorm.lab.report.history import store\n"
        "limit = os.path.getsize(sys.argv[2]) + 20_000 if os.path.exists(sys.argv[2]) else 0\n"
        "if sys.argv[1] == 'full': resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "insert = store._insert\n"
        "def killed(connection, table, row):\n"
        "    connection.execute('PRAGMA cache_size = 1')\n"
        "    if row.get('run', '').endswith('3a'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return insert(connection, table, row)\n"
        "if sys.argv[1] == 'killed': store._insert = killed\n"
        "try: store.add_reports(Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])\n"
        "except store.WebnormError as error: sys.exit(str(error))"
    )

    def adding(how: str, name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, how, str(tmp_path / name), *map(str, paths)]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)

    assert "cannot be written" in adding("full", "new.db").stderr and not (tmp_path / "new.db").exists()
    for how, status in (("full", 1), ("killed", -9)):
        done = adding(how, "store.db")
        assert done.returncode == status, done.stderr
        if how == "full":
            assert "cannot be written" in done.stderr and "; nothing was added" in done.stderr
        # The next connection rolls back the changes of a killed process.
        assert history(tmp_path / "store.db", ALL, 10).reports == 1, how
        assert (tmp_path / "store.db").read_bytes() == before, how


def test_a_file_that_is_no_store_is_refused_and_stays(tmp_path: Path) -> None:
    (path,) = written(tmp_path, kept_run(0, {"naive": 1.0}))
    foreign, text, newer, visits = (tmp_path / name for name in ("foreign", "text", "newer", "visits"))
    with sqlite3.connect(foreign) as other:
        other.execute("CREATE TABLE reports (id)")
    other.close()
    text.write_text("mine")
    kept.add_reports(newer, [path])
    with sqlite3.connect(newer) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    with sqlite3.connect(visits) as other:
        other.execute(f"PRAGMA application_id = {int.from_bytes(b'wnvs', 'big')}")
        other.execute("CREATE TABLE visits (id)")
    other.close()
    for store, message in (
        (
            foreign,
            "is not a store of results and was not changed; name a file that `webnorm store add` made",
        ),
        (text, "is not a store of results"),
        (visits, "is not a store of results"),
        (newer, "is a store of version 2; this webnorm reads version 1"),
        (tmp_path, "is not a regular file"),
    ):
        before = None if store.is_dir() else store.read_bytes()
        for asked in (lambda at=store: kept.add_reports(at, [path]), lambda at=store: history(at, ALL, 1)):
            with pytest.raises(WebnormError, match=message):
                asked()
        assert store.is_dir() or store.read_bytes() == before
    with pytest.raises(WebnormError, match="is no store; `webnorm store add FILES` creates one"):
        history(tmp_path / "none", ALL, 1)
    newer.write_bytes(b"SQLite format 3\0" + newer.read_bytes()[16:60] + b"\0\0\0\1" + b"\0\0\0\0wnrs" * 9)
    with pytest.raises(WebnormError, match="newer cannot be"):
        history(newer, ALL, 1)


def test_older_files_are_kept_and_come_before_those_with_a_date(tmp_path: Path) -> None:
    dated = kept_run(0, {"naive": 2000.0})
    nameless = replace(kept_run(1, {"naive": 3000.0}), origin=None, complete=None)
    odd = kept_run(2, {"naive": 4000.0})
    assert odd.origin is not None
    odd = replace(odd, origin=replace(odd.origin, recorded="the day before"))
    (old,) = written(tmp_path, kept_run(3, {"naive": 1000.0}))
    old.write_text(
        old.read_text().replace('"recorded": "2026-11-04T00:00:00Z"', '"time": "2026-11-04T02:00:00+02:00"')
    )
    kept.add_reports(tmp_path / "store.db", [old])
    added(tmp_path, dated, nameless, odd)
    assert rows(tmp_path, "SELECT recorded, median_ns FROM history WHERE op != 'copy'") == [
        (None, 3000.0),
        (None, 4000.0),
        ("2026-11-01T00:00:00Z", 2000.0),
        ("2026-11-04T00:00:00Z", 1000.0),
    ]


# --- Regressions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [900.0, None], ids=["with a copy", "alone"])
def test_ten_percent_are_found_and_one_is_not(tmp_path: Path, copy: float | None) -> None:
    before = [
        kept_run(at, {"registers": 2000.0 * (1 + 0.002 * (at % 3)), "naive": 6000.0}, copy)
        for at in range(10)
    ]
    newest = kept_run(10, {"registers": 2204.0, "naive": 6060.0}, copy)
    assert verdicts_of(tmp_path, *before, newest) == {"registers": "SLOWER", "naive": "SAME"}
    mended = kept_run(11, {"registers": 2002.0, "naive": 5000.0}, copy)
    assert verdicts_of(tmp_path, mended) == {"registers": "SAME", "naive": "FASTER"}


def test_normal_variation_is_no_regression(tmp_path: Path) -> None:
    noisy = [kept_run(at, {"naive": 2000.0 * (1 + 0.03 * (-1) ** at)}) for at in range(10)]
    assert verdicts_of(tmp_path, *noisy, kept_run(10, {"naive": 2000.0 * 1.08})) == {"naive": "SAME"}
    (newest,) = regressions(tmp_path / "store.db", ALL, 10)
    (one,) = newest.results
    assert one.band == pytest.approx(0.09, rel=0.05) and one.runs == 10
    assert verdicts_of(tmp_path, kept_run(11, {"naive": 2000.0 * 1.3})) == {"naive": "SLOWER"}


def test_a_machine_that_is_slow_as_a_whole_is_no_regression(tmp_path: Path) -> None:
    slow = kept_run(10, {"registers": 2600.0, "naive": 7800.0}, copy=1170.0)
    assert {*verdicts_of(tmp_path, *steady(), slow).values()} == {"SAME"}
    # A faster copy says nothing about a kernel with an unchanged speed.
    odd = kept_run(11, {"registers": 2000.0}, copy=700.0)
    assert verdicts_of(tmp_path, odd) == {"registers": "UNCLEAR"}


@pytest.mark.parametrize("key", kept.PLATFORM)
def test_another_driver_starts_a_series(tmp_path: Path, key: str) -> None:
    other = {**CARD, key: "another"}
    slow = [kept_run(at, {"registers": 3000.0}, device=other) for at in (10, 11, 12)]
    added(tmp_path, *steady(), *slow)
    newest, older = regressions(tmp_path / "store.db", ALL, 10)
    assert newest.platform[key] == "another" and older.platform[key] == CARD[key]
    (one,) = newest.results
    assert one.comparison.verdict == "UNCLEAR" and "too few runs: 2 earlier runs" in str(
        one.comparison.reason
    )
    assert {*verdicts(older).values()} == {"SAME"}


def test_webnorms_version_and_the_host_start_no_series(tmp_path: Path) -> None:
    newest = kept_run(10, {"registers": 2300.0}, webnorm="9.9")
    assert newest.origin is not None
    newest = replace(newest, origin=replace(newest.origin, host="another"))
    assert verdicts_of(tmp_path, *steady(), newest) == {"registers": "SLOWER"}


def test_only_equal_setups_are_compared(tmp_path: Path) -> None:
    """Results with other constants, problems, options or call methods have no earlier results."""

    def as_other(**changes: Any) -> Report:
        run = kept_run(10, {"registers": 4000.0})
        return replace(run, results=tuple(replace(one, **changes) for one in run.results))

    added(tmp_path, *steady())
    store = (tmp_path / "store.db").read_bytes()
    for changes in (
        {"constants": {"threads_per_row": 32}},
        {"problem": replace(KEPT_PROBLEM, rows=65)},
        {"problem": replace(KEPT_PROBLEM, eps=1e-6)},
        {"problem": replace(KEPT_PROBLEM, options=replace(KEPT_PROBLEM.options, residual=True))},
        {"calls": "at once"},
        {"cache": "warm"},
        {"case": "rows-1"},
    ):
        (tmp_path / "store.db").write_bytes(store)
        assert verdicts_of(tmp_path, as_other(**changes)) == {"registers": "UNCLEAR"}, changes
    (tmp_path / "store.db").write_bytes(store)
    seeded = {
        "problem": replace(KEPT_PROBLEM, seed=7),
        "constants": {"vector_width": 4, "threads_per_row": 64},
    }
    assert verdicts_of(tmp_path, as_other(**seeded)) == {"registers": "SLOWER"}


def test_runs_of_other_kernels_in_between_do_not_matter(tmp_path: Path) -> None:
    between = [kept_run(at, {"naive": 6000.0}) for at in range(10, 25)]
    newest = kept_run(30, {"registers": 2300.0})
    assert verdicts_of(tmp_path, *steady(10, registers=2000.0), *between, newest) == {"registers": "SLOWER"}
    (one,) = regressions(tmp_path / "store.db", ALL, 4)[0].results
    assert one.runs == 4
    # The newest of the selected results.
    (asked,) = regressions(tmp_path / "store.db", SeriesQuery(kernel=["nai*"]), 10)
    assert asked.run == f"{24:032x}" and verdicts(asked) == {"naive": "SAME"}


def test_the_newest_is_by_date_then_by_order(tmp_path: Path) -> None:
    late, early = kept_run(20, {"naive": 9000.0}), kept_run(-1, {"naive": 100.0})
    added(tmp_path, late, *steady(), early)
    (newest,) = regressions(tmp_path / "store.db", ALL, 10)
    assert newest.run == f"{20:032x}" and verdicts(newest) == {"naive": "SLOWER"}
    twin = kept_run(21, {"naive": 6000.0})
    assert twin.origin and late.origin
    twin = replace(twin, origin=replace(twin.origin, recorded=late.origin.recorded))
    assert verdicts_of(tmp_path, twin) == {"naive": "SAME"}


def test_interrupted_runs_and_checks_are_stored_but_not_compared(tmp_path: Path) -> None:
    cut = kept_run(10, {"registers": 9000.0}, complete=False)
    check = replace(kept_run(11, {}), results=(replace(BARE, status="pass", reason=None),))
    added(tmp_path, *steady(), cut, check)
    (newest,) = regressions(tmp_path / "store.db", ALL, 10)
    assert (newest.run, newest.interrupted) == (f"{9:032x}", 1) and {*verdicts(newest).values()} == {"SAME"}
    # The comparison does not use them either.
    (one, _) = regressions(tmp_path / "store.db", ALL, 10)[0].results
    assert one.runs == 9
    found = history(tmp_path / "store.db", ALL, 100)
    assert (found.reports, found.untimed) == (12, 1)
    assert [one["complete"] for one in found.entries() if one["kernel"] == "registers"] == [1] * 10 + [0]


def test_copies_are_compared_on_request(tmp_path: Path) -> None:
    added(tmp_path, *steady(), kept_run(10, {"registers": 2200.0}, copy=990.0))
    (newest,) = regressions(tmp_path / "store.db", SeriesQuery(op="copy"), 10)
    assert verdicts(newest) == {"copy": "SLOWER"}
    (newest,) = regressions(tmp_path / "store.db", ALL, 10)
    assert verdicts(newest) == {"registers": "SAME"}


def test_a_kernel_that_is_wrong_now_is_broken(tmp_path: Path) -> None:
    run = kept_run(10, {"naive": 6000.0, "registers": 1.0, "welford": 1.0, "streaming": 1.0})
    untimed: Mapping[str, Any] = {"median_ns": None, "samples_ns": None, "gbps": None}
    statuses: Mapping[str, Status] = {"registers": "fail", "welford": "error", "streaming": "skip"}
    results = [
        replace(one, status=statuses[one.kernel], **untimed) if one.kernel in statuses else one
        for one in run.results
    ]
    found = verdicts_of(
        tmp_path,
        *steady(5, naive=6000.0, registers=2000.0, streaming=900.0),
        replace(run, results=tuple(results)),
    )
    # welford never had a time.
    assert found == {"naive": "SAME", "registers": "BROKEN", "streaming": "NOT TIMED"}
    entries = history(tmp_path / "store.db", SeriesQuery(kernel=["registers,welford"]), 2).entries()
    assert [(one["kernel"], one["status"]) for one in entries] == [
        ("registers", "pass"),
        ("registers", "fail"),
    ]


def test_serious_flags_give_no_verdict(tmp_path: Path) -> None:
    def flagged(at: int, time: float, flag: str) -> Report:
        run = kept_run(at, {"naive": time})
        return replace(run, results=tuple(replace(one, flags=(flag,)) for one in run.results))

    noisy = [flagged(at, 2000.0, "noisy") for at in range(5)]
    assert verdicts_of(tmp_path, *noisy, flagged(5, 2300.0, "noisy")) == {"naive": "SLOWER"}
    assert verdicts_of(tmp_path, flagged(6, 2300.0, "throttled")) == {"naive": "UNCLEAR"}


@pytest.mark.parametrize("samples", [None, (2300.0,), (2300.0, 2310.0, 2290.0)], ids=["none", "one", "three"])
def test_few_samples_are_compared_by_the_variation_between_runs(
    tmp_path: Path, samples: tuple[float, ...] | None
) -> None:
    def few(at: int, factor: float) -> Report:
        own = None if samples is None else tuple(one * factor for one in samples)
        result = timed("naive", 2300.0 * factor, samples_ns=own, problem=KEPT_PROBLEM)
        return replace(kept_run(at, {}), results=(result,))

    before = [few(at, 1 + 0.003 * (at % 3)) for at in range(6)]
    assert verdicts_of(tmp_path, *before, few(6, 1.01)) == {"naive": "SAME"}
    assert verdicts_of(tmp_path, few(7, 1.1)) == {"naive": "SLOWER"}


def test_noisy_samples_of_the_newest_run_give_no_verdict(tmp_path: Path) -> None:
    """Their median may be off by chance, whatever the variation between runs."""
    wild = tuple(2000.0 * (2.4 if at % 2 else 0.9) for at in range(15))
    result = timed("naive", 2300.0, samples_ns=wild, problem=KEPT_PROBLEM, case=None)
    before = [kept_run(at, {"naive": 2000.0}, None) for at in range(10)]
    assert verdicts_of(tmp_path, *before, replace(kept_run(10, {}), results=(result,))) == {
        "naive": "UNCLEAR"
    }


def test_platforms_are_separate_and_selected_by_adapter(tmp_path: Path) -> None:
    other = {**CARD, "adapter": "Other \x1b[31m"}
    added(tmp_path, *steady(), *(kept_run(100 + at, {"naive": 500.0}, device=other) for at in range(5)))
    assert len(regressions(tmp_path / "store.db", ALL, 10)) == 2
    (one,) = regressions(tmp_path / "store.db", SeriesQuery(adapter="other"), 10)
    assert verdicts(one) == {"naive": "SAME"}
    for asked, message in (
        (
            SeriesQuery(adapter="third"),
            "no adapter name contains 'third'; stored are: 'Other .*', 'Some GPU'",
        ),
        (SeriesQuery(kernel=["nave"]), "unknown kernel 'nave'; did you mean 'naive'"),
        (
            SeriesQuery(kernel=["welford"]),
            "no result is stored for kernel 'welford': the store contains copy, naive",
        ),
        (
            SeriesQuery(kernel=["naive,wel*"]),
            r"no result is stored for kernel 'wel\*': the store contains copy, naive",
        ),
        (
            SeriesQuery(op="rms_norm"),
            "no result is stored for op 'rms_norm': the store contains copy, layer_norm",
        ),
        (SeriesQuery(op="copy", kernel=["naive"]), "no stored result matches all selections"),
        (
            SeriesQuery(op="dropout"),
            "unknown op 'dropout'; expected one of copy, layer_norm",
        ),
    ):
        with pytest.raises(WebnormError, match=message):
            regressions(tmp_path / "store.db", asked, 10)
    with pytest.raises(WebnormError, match="--last is 2; it must be at least 3"):
        regressions(tmp_path / "store.db", ALL, 2)


def test_unchanged_runs_are_seldom_slower(tmp_path: Path) -> None:
    """Twenty kernels with noise of 2 % in ten stores of eleven runs give two hundred chances of an error."""
    import numpy as np

    rng, wrong = np.random.default_rng(1), 0
    for at in range(10):
        folder = tmp_path / str(at)
        folder.mkdir()
        noise = rng.normal(1, 0.02, (11, 20))
        found = verdicts_of(
            folder,
            *(
                kept_run(run, {f"k{k}": 2000 * float(noise[run, k]) for k in range(20)}, None)
                for run in range(11)
            ),
        )
        wrong += sum(verdict == "SLOWER" for verdict in found.values())
    assert wrong <= 1


# --- odd values --------------------------------------------------------------------------------------

NAMES = st.text(max_size=20) | st.sampled_from(
    ["", "\x1b[31m", "\ud800", "a\nb", "x\0y", "'; DROP TABLE reports; --", "\u202e"]
)
TIMES = st.floats() | st.sampled_from([0.0, 1e-300, 1e300, 5.0])
RESULTS = st.builds(
    Result,
    op=st.sampled_from(["layer_norm", "copy"]) | NAMES,
    kernel=NAMES,
    constants=st.dictionaries(NAMES, st.integers(0, 2**100), max_size=2),
    problem=st.builds(
        lambda seed, eps, scale: replace(KEPT_PROBLEM, seed=seed, eps=eps, scale=scale),
        st.integers(0, 2**100),
        st.integers(0, 2**100),
        st.integers(1, 2**100),
    ),
    status=st.sampled_from(["pass", "fail", "skip", "error"]),
    reason=st.none() | NAMES,
    max_abs_error=st.none() | st.floats(),
    median_ns=st.none() | TIMES,
    p20_ns=st.none() | TIMES,
    samples_ns=st.none() | st.lists(TIMES, min_size=1, max_size=8).map(tuple),
    gbps=st.none() | st.floats(),
    percent_of_copy=st.none() | st.floats(),
    bytes=st.none() | st.integers(0, 2**53),
)


@examples(40)
@given(
    reports=st.lists(st.tuples(st.lists(RESULTS, max_size=4), NAMES, NAMES), min_size=1, max_size=4),
    driver=NAMES,
)
def test_odd_values_break_nothing(
    reports: Sequence[tuple[list[Result], str, str]], driver: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    for at, (results, run, recorded) in enumerate(reports):
        report = kept_run(at, {"naive": 1.0}, device={**CARD, "driver": driver})
        assert report.origin is not None
        origin = replace(report.origin, run=run, recorded=recorded)
        try:
            added(folder, replace(report, results=(*report.results, *results), origin=origin))
        except WebnormError as error:
            assert "nothing was added" in str(error)
    if (folder / "store.db").exists():
        found = regressions(folder / "store.db", ALL, 3)
        json.loads(to_json(found), parse_constant=pytest.fail)
        json.loads(history_json(history(folder / "store.db", ALL, 3)), parse_constant=pytest.fail)
        assert all(isinstance(one, RegressionResult) for newest in found for one in newest.results)
