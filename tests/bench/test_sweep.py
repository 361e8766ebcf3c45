"""A sweep: its jobs, its timings, and the data made from them for `kernel="auto"`."""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.sweep import (
    __main__,
    landscape,
)
from bench.sweep import (
    jobs as sweep_jobs,
)
from bench.sweep.jobs import PARTS, jobs
from bench.sweep.landscape import SweepPoint, known_by, left_out, loss, series_of, to_json
from testbed import GPU, kernel_named
from webnorm.cli.work.jobs import INCONCLUSIVE
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.results.result import Report, Result
from webnorm.lab.results.result_files import to_json as to_report
from webnorm.ops.norms import measured
from webnorm.ops.norms.measured import MeasuredVariant, SweepLandscape, decode, measured_cols
from webnorm.ops.norms.problem import NormProblem


def key_of(job: Mapping[str, Any], constants: Mapping[str, int]) -> tuple[Any, ...]:
    return job["rows"], job["cols"], job["kernel"], tuple(constants.values())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["odd", "small", "few_long", "residual", "own_stats", "held_out"])
def test_jobs_are_different_variants_that_a_gpu_can_run(part: str) -> None:
    op = PARTS[part].ops[-1]
    lines = list(jobs(PARTS[part], op, "float16", seed=3))
    assert lines == list(jobs(PARTS[part], op, "float16", seed=3))
    for line in lines:
        task = __main__.task_of(line)
        for constants in line["constants"]:
            refusal = Variant(kernel_named(line["kernel"], op), constants).refusal(task.problem, GPU)
            assert refusal is None, (line, constants)
        assert line.get("held_out", False) == PARTS[part].held_out
    keys = [key_of(line, constants) for line in lines for constants in line["constants"]]
    assert len(set(keys)) == len(keys) > 100


@pytest.mark.slow
def test_a_part_has_predicted_and_random_variants() -> None:
    (line, *_) = [one for one in jobs(PARTS["named"], "rms_norm", "float32", seed=0) if one["cols"] == 4096]
    ranked = [dict(one.constants) for one in decode_of("rms_norm-float32").entries[0].shares]
    assert line["kernel"] == "registers" and line["constants"][0].keys() == ranked[0].keys()
    known = {one for entry in decode_of("rms_norm-float32").entries for one in entry.shares}
    found = {
        MeasuredVariant(one["kernel"], tuple(constants.items()))
        for one in jobs(PARTS["named"], "rms_norm", "float32", seed=11)
        for constants in one["constants"]
    }
    assert found & known and found - known


def decode_of(name: str) -> SweepLandscape:
    return decode((measured.FOLDER / f"{name}.json").read_bytes())


def test_held_out_columns_were_never_measured() -> None:
    cols = {line["cols"] for line in jobs(PARTS["held_out"], "layer_norm", "bfloat16", seed=0)}
    assert len(cols) == 11 and not cols & measured_cols()


def test_a_part_without_jobs_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "jobs"), "--part", "residual", "--op", "layer_norm_backward"]
    monkeypatch.setattr(sys, "argv", ["sweep_jobs", *words])
    with pytest.raises(WebnormError, match="--part residual has no job of --op layer_norm_backward"):
        sweep_jobs.main()
    assert not (tmp_path / "jobs").exists()


def test_a_job_is_timed_in_turn_with_a_copy(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "_ROTATED_BYTES", 1 << 16)
    monkeypatch.setattr(__main__, "_AWAKE", 2)
    monkeypatch.setattr(__main__, "_SAMPLE_NS", 1e5)
    monkeypatch.setattr(__main__, "_SLOW", 1e3)
    # This simulates a next problem that does not fit.
    monkeypatch.setattr(__main__, "_KEPT_BYTES", 1 << 15)
    runner = __main__.SweepRunner(None, multiprocessing.Lock(), multiprocessing.Value("i", 0))
    kernel = kernel_named("registers")
    good = {axis: 0 for axis in kernel.tune} | {"threads_per_row": 64, "rows_per_workgroup": 1}
    good |= {"vector_width": 4, "sweeps": 2}
    job = {"op": "layer_norm", "dtype": "float32", "rows": 64, "cols": 256, "kernel": "registers"}
    for rows in (64, 96):
        one, refused = runner.times({**job, "rows": rows, "constants": [good, {**good, "vector_width": 8}]})
        assert one["constants"] == good and one["samples"] == __main__._ROUNDS
        assert 0 < one["least"] <= one["ns"] and one["copy_ns"] > 0
        assert one["bytes_over_copy"] == 1
        assert "float16" in refused["error"] and "ns" not in refused
    before = list(runner._buffers.values())
    assert "ns" in runner.times({**job, "op": "rms_norm", "constants": [good]})[0]
    assert not any(one is other for one in before for other in runner._buffers.values())


# --- landscapes


def lines_of(
    shares: Mapping[int, float], cols: int = 1024, kernel: str = "registers", copy_ns: float = 1e4
) -> list[dict[str, Any]]:
    """Return lines of a problem by numbers of invocations, with shares in percent of a copy."""
    return [
        {
            "op": "layer_norm",
            "dtype": "float32",
            "rows": (64 << 20) // (4 * cols),
            "cols": cols,
            "kernel": kernel,
            "constants": {"threads_per_row": threads, "vector_width": 4},
            "bytes_over_copy": 1.0,
            "ns": 100 * copy_ns / share,
            "copy_ns": copy_ns,
        }
        for threads, share in shares.items()
    ]


SHARES = {32: 50.0, 64: 90.0, 128: 80.0, 256: 70.0, 512: 60.0}


def point(lines: list[dict[str, Any]]) -> SweepPoint:
    ((_, points),) = series_of(lines).items()
    ((_, found),) = points.items()
    return found


def test_a_variant_has_its_best_time() -> None:
    found = point(lines_of(SHARES) + lines_of({64: 95.0, 128: 20.0}))
    by_threads = {dict(one.constants)["threads_per_row"]: share for one, share in found.percents.items()}
    assert by_threads == pytest.approx({**SHARES, 64: 95.0})


def test_unreliable_lines_are_left_out() -> None:
    disturbed = lines_of({1024: 99.0}, copy_ns=1.2e4)
    slow = lines_of({16: 3.0})
    assert point(lines_of(SHARES) + disturbed + slow).percents == point(lines_of(SHARES)).percents
    assert not series_of(lines_of(SHARES, cols=1 << 17))
    few = series_of(lines_of({64: 90.0, 128: 80.0}))
    assert not few


def test_a_problem_with_a_lost_kernel_is_left_out() -> None:
    lost = [{**line, "kernel": "split_row", "error": "no memory"} for line in lines_of({64: 90.0, 128: 80.0})]
    for line in lost:
        del line["ns"]
    once = lines_of(SHARES)
    assert not series_of(once + lost)
    timed = lines_of({64: 20.0, 128: 20.0, 256: 20.0}, kernel="split_row")
    assert series_of(once + lost + timed)["layer_norm-float32"]


def test_a_problem_without_a_good_variant_is_left_out() -> None:
    def at(cols: int, share: float) -> list[dict[str, Any]]:
        return lines_of({threads: share - threads / 100 for threads in SHARES}, cols)

    neighbours = [line for cols in (1021, 1031, 1033, 1039) for line in at(cols, 90.0)]

    def kept(lines: list[dict[str, Any]]) -> bool:
        return 1027 in {cols for _, cols in series_of(lines)["layer_norm-float32"]}

    assert kept(neighbours + at(1027, 85.0))
    assert not kept(neighbours + at(1027, 50.0))
    # Rows of whole Vecs are no neighbours of these.
    assert kept([line for cols in (1020, 1032, 1036, 1040) for line in at(cols, 90.0)] + at(1027, 50.0))


def test_constants_may_be_in_any_order_but_must_be_the_same() -> None:
    lines = lines_of(SHARES)
    turned = [{**line, "constants": dict(reversed(line["constants"].items()))} for line in lines]
    assert point(lines + turned).percents == point(lines).percents
    other = {**lines[0], "constants": {"threads_per_row": 32, "hi_lo_mean": 1}}
    with pytest.raises(WebnormError, match="layer_norm/registers was timed with threads_per_row, hi_lo_mean"):
        series_of([*lines, other])


def test_a_record_is_read_as_a_sweep(tmp_path: Path) -> None:
    kernel = kernel_named("registers")
    now = {axis: values[0] for axis, values in kernel.tune.items()}
    problem = NormProblem(rows=64, cols=1024)

    def result(kernel: str, ns: float, constants: Mapping[str, int], case: str) -> Result:
        op = "copy" if kernel == "copy" else "layer_norm"
        return Result(
            op=op,
            kernel=kernel,
            constants=constants,
            problem=problem,
            status="pass",
            case=case,
            calls="one by one",
            median_ns=ns,
            bytes=1000 if kernel == "copy" else 1500,
        )

    before = {"threads_per_row": 32, "hi_lo_mean": 1}
    results = [
        result(name, ns, constants, case)
        for case in ("forward", "held_out", "page")
        for name, ns, constants in (
            ("copy", 50.0, {"accesses": 1}),
            ("copy", 40.0, {"accesses": 2}),
            ("registers", 80.0, now),
            ("registers", 70.0, before),
            ("Triton", 60.0, {}),
        )
    ]
    path = tmp_path / "record.json"
    path.write_text(to_report(Report(device={"adapter": "Made-up GPU"}, results=tuple(results))))
    one, two = landscape.lines_in(path)
    assert (one["held_out"], two["held_out"]) == (False, True)
    assert (one["ns"], one["copy_ns"], one["bytes_over_copy"]) == (80.0, 40.0, 1.5)
    assert one["constants"] == now and one["kernel"] == "registers"


@pytest.mark.parametrize("name", ["absent.jsonl", "broken.jsonl", "broken.json"])
def test_a_file_that_is_no_sweep_is_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(WebnormError, match=name):
        landscape.lines_in(tmp_path / name)


def test_a_lost_job_has_an_error_per_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def times(self, job: Any) -> Any:
            raise RuntimeError("the device is gone")

    monkeypatch.setattr(__main__, "_runner", Broken())
    found = __main__._work({"op": "layer_norm", "constants": [{"a": 1}, {"a": 2}]})
    assert [line["constants"] for line in found] == [{"a": 1}, {"a": 2}]
    assert all("the device is gone" in line["error"] for line in found)


def test_a_sweep_ends_even_if_a_process_died_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def __init__(self) -> None:
            self.there = [["one"], ["two"]]

        def next(self, timeout: float) -> list[str]:
            if not self.there:
                raise multiprocessing.TimeoutError
            return self.there.pop(0)

    monkeypatch.setattr(__main__, "_SILENCE_S", 0.2)
    found: list[Any] = list(__main__.arriving(Lost(), math.inf))
    assert found == [["one"], ["two"]]
    assert not list(__main__.arriving(Lost(), -math.inf))


def test_residuals_have_their_own_file() -> None:
    lines = [{**line, "options": {"residual": True}} for line in lines_of(SHARES)]
    assert series_of(lines).keys() == {"layer_norm-float32-residual"}


def test_gradients_without_saved_statistics_have_their_own_file() -> None:
    for saved, names in (
        (False, {"layer_norm_backward-float32-own_stats"}),
        (True, {"layer_norm_backward-float32"}),
    ):
        lines = [
            {**line, "op": "layer_norm_backward", "options": {"saved_stats": saved}}
            for line in lines_of(SHARES)
        ]
        assert series_of(lines).keys() == names


def test_a_file_reads_as_it_was_written() -> None:
    points = [point(lines_of(SHARES, cols)) for cols in (2048, 1024)]
    first, second = decode(to_json(points)).entries
    assert (first.cols, second.cols) == (1024, 2048)
    shares = {dict(one.constants)["threads_per_row"]: share for one, share in first.shares.items()}
    assert shares == pytest.approx(
        {threads: math.log(share / 90) for threads, share in SHARES.items()}, abs=1e-3
    )


def test_losses_are_relative_to_the_fastest_measured() -> None:
    shifted = {threads: SHARES[max(threads // 2, 32)] for threads in SHARES}
    files = {
        "layer_norm-float32": to_json(
            [point(lines_of(SHARES, 1024)), point(lines_of(SHARES, 1056)), point(lines_of(shifted, 4096))]
        )
    }
    known = known_by("layer_norm-float32", files, None)
    unseen = point(lines_of(shifted, 4104)).entry()
    assert loss(known, known[0].entries[0], 4) == 0 == loss(known, unseen, 4)
    losses = {there.cols: lost for there, lost in left_out(known, 4)}
    assert losses[1024] == 0
    # Without 4096, its nearest neighbour has the opposite order: 64 invocations, not 128.
    assert losses[4096] == pytest.approx(100 * (1 - 50 / 90), abs=0.1)


def run_landscape(monkeypatch: pytest.MonkeyPatch, path: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["landscape", str(path), *words])
    landscape.main()


def test_files_are_written_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path / "files")
    (tmp_path / "files").mkdir()
    held_out = [{**line, "held_out": True} for line in lines_of(SHARES, 1040)]
    lines = lines_of(SHARES) + lines_of(SHARES, 1056) + held_out
    path = tmp_path / "sweep.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_landscape(monkeypatch, path)
    output = capsys.readouterr().out
    assert (
        output.startswith("layer_norm-float32: 2 problems; the choice loses 0.00 %") and "held out" in output
    )
    assert not list((tmp_path / "files").iterdir())
    run_landscape(monkeypatch, path, "--write")
    (written,) = (tmp_path / "files").iterdir()
    assert [entry.cols for entry in decode(written.read_bytes()).entries] == [1024, 1056]


def test_the_fastest_are_shown_for_the_largest_x(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [{**line, "rows": 64} for line in lines_of({threads: 40.0 for threads in SHARES}, 4096)]
    path = tmp_path / "sweep.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (*small, *lines_of(SHARES, 4096))))
    run_landscape(monkeypatch, path, "--best")
    head, _, row = capsys.readouterr().out.splitlines()
    found = dict(zip(head.split("|"), row.split("|"), strict=True))
    assert found[" 4096 "] == " 90.0 " and found[" 1024 "] == " - " and found[" "] == " layer_norm float32 "

    fewer = [{**line, "rows": line["rows"] // 4} for line in lines_of(SHARES, 1024)]
    path.write_text("".join(json.dumps(line) + "\n" for line in (*fewer, *lines_of(SHARES, 4096))))
    run_landscape(monkeypatch, path, "--best")
    assert "| 90.0* |" in capsys.readouterr().out


def test_a_sweep_of_residuals_only_is_summarised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{**line, "options": {"residual": True}} for line in lines_of(SHARES) + lines_of(SHARES, 1056)]
    path = tmp_path / "sweep.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_landscape(monkeypatch, path)
    assert "layer_norm-float32-residual: 2 problems; the choice loses 0.00 %" in capsys.readouterr().out


def test_a_sweep_without_times_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    path.write_text(json.dumps({**lines_of(SHARES)[0], "held_out": True}) + "\n")
    with pytest.raises(WebnormError, match="only held-out times"):
        run_landscape(monkeypatch, path)


@pytest.mark.parametrize(("count", "finished"), [(2, 2), (2, 1), (0, 0)])
def test_an_interrupted_sweep_is_inconclusive(
    count: int, finished: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text("")
    monkeypatch.setattr(__main__, "find_adapter", lambda adapter: None)
    monkeypatch.setattr(__main__, "json_lines", lambda path, by: [{}] * count)
    monkeypatch.setattr(__main__, "timed", lambda *_: iter([[]] * finished))
    monkeypatch.setattr(sys, "argv", ["sweep", str(tmp_path / "jobs"), "--out", str(tmp_path / "out")])
    if count and finished == count:
        __main__.main()
        return
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == INCONCLUSIVE
