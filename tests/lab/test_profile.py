"""Profiles: transfers, the first use, and the overhead of a call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import overhead
from pages import ROOT
from patience import HANG_S
from samples import MIXED
from shown import line_of, text
from testbed import kernel_named
from webnorm.calls.transfers import TransferJob, TransferTimes, time_transfers
from webnorm.choice import tuning
from webnorm.choice.defaults import default_variant
from webnorm.cli.verbs.bench_view import profile_table
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.lab.process.worker import WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench as benchmark
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.trial import try_variant
from webnorm.op.op import Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

RULE = timing.StoppingRule(least=3, most=3)
TRANSFERS = TransferTimes(upload_ns=3e5, download_ns=1e5, upload_bytes=3_000_000, download_bytes=500_000)


@pytest.mark.parametrize(
    ("op", "options", "up", "down"),
    [
        ("layer_norm", NormOptions(), 2 * 7 * 30 + 2 * 30 * 2, 2 * 7 * 30),
        ("rms_norm", NormOptions(bias=False, out_dtype="int8"), 2 * 7 * 30 + 2 * 30, 7 * 30 + 4 * 7),
        ("layer_norm_backward", NormOptions(), 2 * 2 * 7 * 30 + 2 * 30, 2 * 7 * 30 + 2 * 30 * 2),
    ],
)
def test_all_inputs_are_uploaded_and_all_outputs_downloaded(
    op: str, options: NormOptions, up: int, down: int, device: Device
) -> None:
    task = Task(OPS[op], NormProblem(rows=7, cols=30, dtype="float16", options=options))
    *rounds, found = time_transfers(device, TransferJob(task, None, RULE))
    assert len(rounds) == 3
    assert isinstance(found, TransferTimes)
    assert (found.upload_bytes, found.download_bytes) == (up, down)
    assert found.upload_ns > 0 and found.download_ns > 0
    assert found.call_ns is None


def test_a_call_is_timed_with_its_kernel(device: Device) -> None:
    task = Task(OPS["layer_norm_backward"], NormProblem(rows=7, cols=30))
    *_, found = time_transfers(device, TransferJob(task, "registers", RULE))
    assert isinstance(found, TransferTimes)
    assert found.call_ns and found.resident_call_ns
    # A call on NumPy arrays adds transfers to the time of a call on GpuArrays.
    assert min(found.call_ns, found.resident_call_ns) > 0


def test_the_first_use_is_split_into_steps(device: Device) -> None:
    problem = NormProblem(rows=3, cols=36)
    board = ProblemBuffers(
        device, Task(OPS["layer_norm"], problem), make_inputs(OPS["layer_norm"], problem), ()
    )
    variant = default_variant(kernel_named("two_pass"), problem, device.traits)
    result, plan, _ = try_variant(board, variant)
    assert plan is not None
    for spent in (result.render_ns, result.compile_ns, result.pipeline_ns):
        assert spent and spent > 0


def profiled(results: list[Result], answer: TransferTimes | None = TRANSFERS) -> list[Result]:
    """Profile with a worker that answers with given transfers, or dies."""

    def measure(task: Task, kernel: str | None) -> Iterator[timing.RoundDone | TransferTimes]:
        assert (task, kernel) == (Task(OPS[MIXED[4].op], MIXED[4].problem), MIXED[4].kernel)
        yield timing.RoundDone(1)
        if answer is None:
            raise WorkerDied("no sign of life")
        yield answer

    return benchmark.profiled(results, measure)


def test_the_fastest_right_kernel_is_profiled() -> None:
    found = profiled(MIXED)
    (winner,) = [result for result in found if result.upload_ns is not None]
    assert (winner.kernel, winner.gbps) == ("registers", 190.0)
    assert winner == replace(MIXED[4], **vars(TRANSFERS))
    assert [result for result in found if result is not winner] == MIXED[:4] + MIXED[5:]
    copies = [result for result in MIXED if result.roofline]
    assert profiled(copies) == copies


def test_a_worker_that_dies_during_transfers_is_an_error() -> None:
    with pytest.raises(WebnormError, match=r"profiling layer_norm 4096x1024 float32 failed: no sign of life"):
        profiled(MIXED, None)


def test_the_table_has_times_rates_and_shares() -> None:
    fastest = replace(
        MIXED[4], median_ns=1e5, bytes=2_000_000, render_ns=2e7, compile_ns=3e6, pipeline_ns=4e6
    )
    shown = text(profile_table(profiled([fastest]), software=False), width=100)
    assert line_of(shown, "time by stage").startswith("time by stage of registers threads")
    assert line_of(shown, "upload ").split() == ["upload", "300", "us", "3", "10", "60"]
    assert line_of(shown, "dispatch ").split() == ["dispatch", "100", "us", "2", "20", "20"]
    assert line_of(shown, "download ").split() == ["download", "100", "us", "0.5", "5", "20"]
    assert "first use: render 20 ms, compile 3 ms, pipeline 4 ms" in shown
    assert "dispatch by timestamp" in shown and "software" not in shown
    assert "no data crosses a bus" in text(profile_table(profiled([fastest]), software=True), width=100)
    assert "nothing to profile" in text(profile_table(MIXED, software=True))


@pytest.mark.slow
def test_overheads_are_reported(tmp_path: Path, device: Device) -> None:
    """The script runs; its measurements are not tested."""
    path = tmp_path / "overhead.json"
    arguments = ["--rounds", "2", "--op", "layer_norm_backward", "--json", str(path)]
    command = [sys.executable, "-m", "bench.overhead", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    lines_found = json.loads(path.read_text())["lines"]
    assert all(line["median_ns"] > 0 for line in lines_found)
    names = [line["what"].strip() for line in lines_found]
    parts = ["choose", "render", "compile", "pipeline"]
    call = "first call on GpuArrays"
    assert names[:10] == [f"{call}, nothing kept", *parts, call, *parts]
    lines = dict(zip(names, lines_found, strict=True))
    calls = lines["call on GpuArrays"], lines["encode and submit"]
    assert calls[0]["ratio"] == pytest.approx(calls[0]["median_ns"] / calls[1]["median_ns"])


def test_overheads_are_compared_with_the_reads_of_a_call(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower reads, such as wgpu's own, would make a call look cheaper than its parts."""
    queue = type(device.handle.queue)
    own, sizes = queue.read_buffer, []

    def read_buffer(self: Any, buffer: Any, *rest: Any) -> Any:
        sizes.append(buffer.size)
        return own(self, buffer, *rest)

    monkeypatch.setattr(queue, "read_buffer", read_buffer)
    lines = overhead.steady(device, Task(OPS["layer_norm"], NormProblem(rows=96, cols=96)), 2)
    assert [line.ratio is not None for line in lines] == [True, False, True, False, False]
    # The stopwatch waits by reading a word.
    assert max(sizes, default=0) < 4 * 96 * 96


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--adapter", "made-up"], "no adapter 'made-up'"),
        (["--json", "no/such/folder.json"], "cannot write no/such/folder.json"),
        (["--rounds", "0"], "argument --rounds: it is '0'; expected a whole number of at least 1"),
        (["--cols", "0"], "argument --cols: it is '0'; expected a whole number of at least 1"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, device: Device) -> None:
    command = [sys.executable, "-m", "bench.overhead", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode and "Traceback" not in done.stderr
    assert message in done.stderr.splitlines()[-1]


def test_overheads_are_compared_with_a_tuned_choice(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path))
    task = Task(OPS["layer_norm"], NormProblem(rows=3, cols=36))
    choice = tuning.TunedChoice(
        op=task.op.name,
        problem=task.problem,
        kernel="two_pass",
        constants={"threads_per_row": 16, "hi_lo_mean": 1},
        speedup=1.0,
        percent_of_copy=None,
        tried=1,
    )
    platform = tuning.Platform.of(device.adapter.description())
    recorded = tuning.Tuning(platform=platform, date="2026-01-01", choices=(choice,))
    tuning.write(recorded, tuning.path_of(platform))
    assert overhead.chosen(device, task).kernel.name == "two_pass"
