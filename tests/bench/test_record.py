"""The record: contenders against float64, tables made from results, merging."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import arguments
from bench.contenders import COPIES, NAMES, Contender, found_wrong
from bench.contenders.installed import ContenderLibrary, libraries
from bench.contenders.samplers import CudaGraph, WallClock
from bench.numerics import between_markers
from bench.record import (
    __main__,
    files,
    lab_page,
    page_block,
    side_by_side,
)
from bench.record import (
    times as record_times,
)
from bench.record import (
    variants as own,
)
from bench.record.plot import plot
from bench.record.sections import SECTIONS, Goal
from bench.record.tables import Summary, summaries, to_markdown
from bench.record.times import RECORDED
from pages import ROOT
from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device, adapters
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.results.result import Report, Result
from webnorm.lab.results.result_files import read
from webnorm.op.dtypes import Array
from webnorm.op.op import Task, make_inputs
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS, as_copy_problem
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.web.lab_site import lab_offers

DEVICE = {"adapter": "Made-up GPU", "type": "DiscreteGPU", RECORDED: {"forward": "today"}}


def task_of(op: str, cols: int = 96, **options: Any) -> Task:
    (task,) = tasks(op, ((24, cols),), replace(OPS[op].defaults, **options))
    return task


def entered(task: Task, contender: Contender, library: ContenderLibrary, arrays: dict[str, Array]) -> Result:
    answers = {task.op.name: task.op.reference(arrays, task.problem)}
    answers["copy"] = OPS["copy"].reference(arrays, as_copy_problem(task.problem))
    return side_by_side.enter(contender, library, task, answers).result


def on_the_cpu(task: Task) -> dict[str, Result]:
    arrays = make_inputs(task.op, task.problem)
    return {
        contender.name: entered(task, contender, library, arrays)
        for library in libraries(task, arrays, 2, software=True)
        for contender in library.contenders
    }


@pytest.mark.parametrize("op", [op.name for op in NORM_OPS])
def test_cpu_contenders_are_right_or_have_a_reason(op: str) -> None:
    found = on_the_cpu(task_of(op))
    assert {"NumPy", "NumPy copy", "torch eager", "ONNX Runtime"} <= found.keys()
    for name, result in found.items():
        assert result.status in ("pass", "skip"), f"{name}: {result.reason}"
        assert result.reason if result.status == "skip" else result.max_abs_error is not None
    assert found["NumPy"].status == "pass"


def test_contenders_add_a_residual_if_they_can() -> None:
    pytest.importorskip("torch", reason="the test needs torch")
    found = on_the_cpu(task_of("layer_norm", residual=True))
    assert found["torch eager"].status == "pass"
    assert "residual" in (found["NumPy"].reason or "")


_IN_TRITON = """
import sys
from dataclasses import replace
from bench.contenders import found_wrong, torch_ops, triton_ops
from webnorm.op.op import make_inputs
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS

for op in [one.name for one in NORM_OPS]:
    for dtype in ("float32", "float16"):
        for residual in {False, not OPS[op].gradient}:
            for shape in ((7, 5), (70, 130)):
                options = replace(OPS[op].defaults, residual=residual)
                (task,) = tasks(op, (shape,), options, dtype=dtype)
                arrays = make_inputs(task.op, task.problem)
                (contender,) = triton_ops.contenders(task, sys.argv[1])
                outputs = contender.compute(torch_ops.tensors(arrays, sys.argv[1], shape[0]))
                answers = task.op.reference(arrays, task.problem)
                _, wrong = found_wrong(torch_ops.to_numpy(outputs), answers, dtype)
                assert wrong is None, (op, dtype, residual, shape, wrong)
"""


def test_triton_kernels_are_right() -> None:
    """The kernels run on a CUDA card, or in Triton's interpreter, which some NumPy versions break."""
    pytest.importorskip("triton", reason="the test needs Triton")
    on_card = pytest.importorskip("torch").cuda.is_available()
    # A separate process, because Triton chooses the interpreter at import.
    environment = os.environ if on_card else {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", _IN_TRITON, "cuda" if on_card else "cpu"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_contender_that_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "onnxruntime", "jax"):
        monkeypatch.setitem(sys.modules, package, None)
    for module in ("onnx_ops", "jax_ops"):
        monkeypatch.delitem(sys.modules, f"bench.contenders.{module}", raising=False)
    task = task_of("layer_norm")
    names = {
        contender.name: contender.absent
        for software in (True, False)
        for library in libraries(task, {}, 1, software)
        for contender in library.contenders
    }
    assert names["ONNX Runtime"] == "onnxruntime is not installed"
    assert names["JAX"] == "jax is not installed"
    for name in ("torch eager", "torch.compile", "torch.compile max-autotune", "Triton", "Liger", "QuACK"):
        assert names[name] == "torch is not installed"
    assert set(names) == {*NAMES} - {*COPIES} | {"NumPy copy"}


def test_a_library_without_its_own_dependency_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task: Task, device: str) -> list[Contender]:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr("bench.contenders.numpy_ops.contenders", broken)
    absent = {
        contender.name: contender.absent
        for library in libraries(task_of("layer_norm"), {}, 1, software=True)
        for contender in library.contenders
    }
    assert absent["NumPy"] == "OSError: libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize("op", ["layer_norm", "layer_norm_backward"])
def test_a_wrong_contender_has_a_reason(op: str) -> None:
    task = task_of(op)
    arrays = make_inputs(task.op, task.problem)
    answers = task.op.reference(arrays, task.problem)
    right = {name: answer.value.astype(np.float32) for name, answer in answers.items()}
    assert found_wrong(right, answers, "float32")[1] is None
    for name, value in right.items():
        for wrong in (value * 1.001, value + np.float32(np.nan)):
            assert name in (found_wrong({**right, name: wrong}, answers, "float32")[1] or "")
        others = {other: array for other, array in right.items() if other != name}
        assert found_wrong(others, answers, "float32")[1] == f"the output {name} is missing"


def test_a_contender_that_is_wrong_or_fails_is_not_timed() -> None:
    task = task_of("layer_norm")
    arrays = make_inputs(task.op, task.problem)
    library = ContenderLibrary((), [arrays], WallClock, lambda outputs, rows: {"y": outputs["y"][rows]})
    doubled = entered(task, Contender("NumPy", lambda t: {"y": 2 * t["x"]}), library, arrays)
    assert doubled.status == "fail" and "y is off" in (doubled.reason or "")
    failing = entered(task, Contender("NumPy", lambda t: {"y": t["nothing"]}), library, arrays)
    assert (failing.status, failing.reason) == ("error", "KeyError: 'nothing'")


class _Events(SimpleNamespace):
    """A stand-in for torch.cuda, in which one replay of a graph takes 0.2 ms."""

    replayed = 0
    capturing = False

    def event(self, enable_timing: bool) -> Any:
        at: list[int] = []
        return SimpleNamespace(
            record=lambda: at.append(self.replayed),
            synchronize=lambda: None,
            elapsed_time=lambda end: 0.2 * (end.at[0] - at[0]),
            at=at,
        )

    def replay(self) -> None:
        self.replayed += 1


def test_a_cuda_graph_times_every_set_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = _Events()
    within = contextlib.nullcontext()
    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    captures: list[str] = []

    def graph(graph: Any, stream: Any, capture_error_mode: str) -> Any:
        captures.append(capture_error_mode)
        return within

    for name, value in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda one: within,
        "CUDAGraph": lambda: SimpleNamespace(replay=cuda.replay),
        "graph": graph,
        "synchronize": lambda: None,
        "Event": cuda.event,
    }.items():
        setattr(cuda, name, value)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    sampler = CudaGraph(lambda t: {"y": t["x"]}, [{"x": at} for at in range(4)])
    # In this mode the threads of other libraries can continue during the capture.
    assert captures == ["thread_local"]
    # A sample lasts a millisecond: five replays of four runs.
    assert sampler.runs == 20
    assert sampler.sample() == pytest.approx(0.05e6)
    assert sampler.outputs() == {"y": 0}


# --- summaries and tables


def result(kernel: str, gbps: float | None, task: Task, op: str | None = None, **more: Any) -> Result:
    size = 1 << 20
    times = {"gbps": gbps, "median_ns": size / gbps, "bytes": size} if gbps else {}
    given: dict[str, Any] = {"constants": {}, "status": "pass", "case": "forward", "calls": "one by one"}
    given |= {**times, **more}
    return Result(op=op or task.op.name, kernel=kernel, problem=task.problem, **given)


def a_problem(task: Task, own: float = 97.5, other: float = 90.0, **more: Any) -> list[Result]:
    constants = {"threads_per_row": 128, "hi_lo_mean": 1}
    return [
        result("copy", 98.0, task, "copy", constants={"accesses": 1}, **more),
        result("torch copy", 100.0, task, "copy", **more),
        result("registers", own, task, constants=constants, auto="rules", **more),
        result("registers", own + 1, task, constants={**constants, "threads_per_row": 256}, **more),
        result("registers", own - 1, task, constants={**constants, "hi_lo_mean": 0}, **more),
        result("torch eager", other / 2, task, **more),
        result("Triton", other, task, **more),
        result("Liger", None, task, **{**more, "status": "skip", "reason": "it has no such op"}),
    ]


def test_a_summary_relates_the_choice_to_the_best_of_the_run() -> None:
    one = Summary.of(a_problem(task_of("layer_norm")))
    assert one.copy and one.copy.kernel == "torch copy"
    assert one.percent_of_copy == pytest.approx(97.5)
    assert one.fastest_other and one.fastest_other.kernel == "Triton"
    assert one.ahead == pytest.approx(97.5 / 90)
    assert one.better() == "threads_per_row=256: 1.0 % faster"
    assert one.single_mean and one.single_mean.constants["hi_lo_mean"] == 0
    assert (one.percent("Triton"), one.percent("Liger"), one.percent("NumPy")) == ("90.0", "-", "-")


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(97.0, 1.0), True),
        (Goal(97.0, 1.1), False),
        (Goal(98.0, 1.0), False),
        (Goal(ahead=1.05), True),
        (Goal(), None),
    ],
)
def test_goals_are_marked(goal: Goal, met: bool | None) -> None:
    assert Summary.of(a_problem(task_of("layer_norm"))).met(goal) is met


def test_a_choice_that_is_wrong_meets_no_goal() -> None:
    task = task_of("layer_norm")
    results = [r if not r.auto else replace(r, status="fail", gbps=None) for r in a_problem(task)]
    assert Summary.of(results).met(Goal(50.0, 1.0)) is False


def test_the_tables_show_met_and_missed_goals_and_absent_contenders() -> None:
    problems = [*a_problem(task_of("layer_norm", 96), 98.0), *a_problem(task_of("layer_norm", 256), 80.0)]
    text = to_markdown(Report(device=DEVICE, results=tuple(problems)), "NAME.svg")
    assert "![Share of the best copy by columns](NAME.svg)" in text
    assert "Met by 1 of 2 problems." in text
    assert text.count("| met |") == text.count("| **missed** |") == 1
    assert "- Liger, 2 problems: skip: it has no such op" in text
    assert "threads_per_row=256: 1.0 % faster" in text
    assert "Recorded today." in text


def test_the_choice_is_compared_with_the_tuned_best() -> None:
    found = [replace(r, tried=40) if r.auto else r for r in a_problem(task_of("layer_norm"))]
    one = Summary.of(found)
    assert one.of_tuned == pytest.approx(100 * 97.5 / 98.5)
    assert one.met(Goal(of_tuned=98.5)) is True and one.met(Goal(of_tuned=99.5)) is False
    assert "99.0 % of the best of 40" in str(one)
    # Without tuning, the summary neither meets nor misses the goal.
    plain_one = Summary.of(a_problem(task_of("layer_norm")))
    assert plain_one.of_tuned is None and plain_one.met(Goal(of_tuned=99.5)) is None
    other = [replace(r, tried=40) if r.auto else r for r in a_problem(task_of("layer_norm", 256), 96.0)]
    text = to_markdown(Report(device=DEVICE, results=(*found, *other)), None)
    assert "% of the tuned best" in text
    assert "In 2 problems, webnorm's choice was compared with" in text
    assert "It reaches at least 99.0 % of that speed; the median is 99.0 %." in text
    assert (
        "tuned best"
        not in to_markdown(
            Report(device=DEVICE, results=tuple(a_problem(task_of("layer_norm")))), None
        ).partition("###")[2]
    )


def test_the_timing_of_jax_is_described_if_jax_was_timed() -> None:
    problem = a_problem(task_of("layer_norm"))
    jax = [replace(r, kernel="JAX") if r.kernel == "Triton" else r for r in problem]
    texts = [to_markdown(Report(device=DEVICE, results=tuple(found)), None) for found in (problem, jax)]
    assert ["one XLA program" in text for text in texts] == [False, True]


def test_a_time_that_scatters_is_marked() -> None:
    results = [
        replace(r, flags=("noisy",)) if r.kernel == "Triton" else r for r in a_problem(task_of("layer_norm"))
    ]
    assert Summary.of(results).percent("Triton") == "90.0~"
    assert "| 90.0~ |" in to_markdown(Report(device=DEVICE, results=tuple(results)), None)


def test_sections_are_in_order_with_rising_columns() -> None:
    tasks_ = [task_of("rms_norm", 64), task_of("layer_norm", 256), task_of("layer_norm", 96)]
    results = [r for task in tasks_ for r in a_problem(task)]
    found = summaries(Report(device=DEVICE, results=tuple(results)))
    assert [(one.op, one.problem.cols) for one in found["forward"]] == [
        ("layer_norm", 96),
        ("layer_norm", 256),
        ("rms_norm", 64),
    ]


def test_merging_replaces_all_results_of_a_problem() -> None:
    one, two = task_of("layer_norm", 96), task_of("layer_norm", 256)
    old = Report(device=DEVICE, results=(*a_problem(one), *a_problem(two), *a_problem(one, case="odd")))
    device = {**DEVICE, RECORDED: {"forward": "tomorrow"}}
    new = Report(device=device, results=(result("copy", 50.0, one, "copy"),))
    both = files.merged(old, new)
    assert [r.gbps for r in both.results if r.case == "forward" and r.problem == one.problem] == [50.0]
    assert len(both.results) == 2 * len(a_problem(two)) + 1
    assert files.merged(None, new) == new


def test_a_partly_repeated_section_has_both_times() -> None:
    tasks_ = [task_of("layer_norm", cols) for cols in (96, 256, 512)]
    old = Report(device=DEVICE, results=tuple(r for task in tasks_ for r in a_problem(task)))
    device = {**DEVICE, RECORDED: {"forward": "tomorrow"}}
    part = files.merged(old, Report(device=device, results=tuple(a_problem(tasks_[0]))))
    assert record_times.text(part, ["forward"]) == "tomorrow; 2 of the problems today"
    # The same run continues, and then another one follows.
    more = files.merged(part, Report(device=device, results=tuple(a_problem(tasks_[1]))))
    assert record_times.text(more, ["forward"]) == "tomorrow; 1 of the problems today"
    later = {**DEVICE, RECORDED: {"forward": "tomorrow, too"}}
    again = files.merged(more, Report(device=later, results=tuple(a_problem(tasks_[2]))))
    assert record_times.text(again, ["forward", "odd"]) == "tomorrow, too; 2 of the problems tomorrow"
    results = tuple(r for task in tasks_ for r in a_problem(task))
    whole = files.merged(part, Report(device=device, results=results))
    assert record_times.text(whole, ["forward"]) == "tomorrow"
    assert record_times.text(whole, ["odd"]) == "at an unknown time"


def test_merging_drops_problems_with_another_timing_method() -> None:
    one, two = task_of("layer_norm", 96), task_of("layer_norm", 256)
    together = [replace(r, calls="at once") if r.kernel == "registers" else r for r in a_problem(two)]
    old = Report(device=DEVICE, results=tuple(together))
    alone = tuple(a_problem(one))
    assert files.merged(old, Report(device=DEVICE, results=alone)).results == alone
    assert files.measured(old) == set()


def test_merging_another_adapter_is_refused() -> None:
    other = Report(device={**DEVICE, "adapter": "Another"}, results=())
    with pytest.raises(WebnormError, match="'Made-up GPU', not of 'Another'"):
        files.merged(Report(device=DEVICE, results=()), other)


@pytest.mark.slow
def test_the_picture_has_a_line_per_library(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the test needs matplotlib")
    results = [r for cols in (96, 256, 512, 1024) for r in a_problem(task_of("layer_norm", cols))]
    plot(Report(device=DEVICE, results=tuple(results)), tmp_path / "made.svg")
    text = (tmp_path / "made.svg").read_text()
    assert all(name in text for name in ("webnorm", "best copy", "Triton", "Forward: layer_norm, float32"))
    assert "Liger" not in text


@pytest.mark.parametrize("name", SECTIONS)
def test_every_problem_of_a_section_is_valid_for_its_op(name: str) -> None:
    section = SECTIONS[name]
    found = list(section.tasks(1 << 20))
    assert {task.op.name for task in found} == set(section.ops)
    assert {task.problem.dtype for task in found} == set(section.dtypes)
    # A problem names its op, and a copy's result does not.
    assert len({task.problem for task in found}) == len(found)


def test_cpu_without_a_software_adapter_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "adapters", lambda: [])
    with pytest.raises(WebnormError, match="--cpu needs a software adapter"):
        __main__.software_adapter()


def test_neighbours_are_one_step_away(device: Device) -> None:
    task = task_of("layer_norm")
    found = own.own_variants(task, device.traits)
    *near, second = [variant for variant in found.variants if variant.kernel.op is task.op]
    chosen = found.auto.variant
    assert found.variants[found.whole[1]] == chosen and found.variants[found.whole[0]].kernel.op.is_copy
    assert near[0] == chosen and len(near) > 1 and second.kernel.name != chosen.kernel.name
    for variant in near[1:]:
        assert variant.kernel is chosen.kernel
        assert sum(variant.constants[axis] != value for axis, value in chosen.constants.items()) == 1
    assert {variant.kernel.op.name for variant in found.variants} == {"copy", "layer_norm"}


def test_neighbours_skip_variants_that_cannot_run() -> None:
    task = Task(OPS["layer_norm"], replace(task_of("layer_norm").problem, rows=8, cols=5120, dtype="float16"))
    kernel = select(discover(), "registers")
    constants = {**default_variant(kernel, task.problem, GPU).constants, "vector_width": 8}
    variant = Variant(kernel, {**constants, "threads_per_row": 256, "rows_per_workgroup": 2})
    threads = {near.constants["threads_per_row"] for near in own.neighbours(variant, task, GPU)}
    # Several rows per workgroup need powers of two. So 224 and 320, the neighbours of 256, are skipped.
    assert threads == {256, 128, 512}


def test_only_missing_problems_are_measured(
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[Task] = []

    def measure(device: Device, task: Task, *_: Any) -> list[Result]:
        measured.append(task)
        return [replace(result, case="cpu") for result in a_problem(task)]

    monkeypatch.setattr(__main__, "measure", measure)
    words = ["--out", str(tmp_path / "a"), "--section", "cpu", "--op", "layer_norm", "rms_norm", "--missing"]
    monkeypatch.setattr(sys, "argv", ["record", *words])
    asked = __main__.arguments()
    reports = list(__main__.record(asked, None))
    assert [report.complete for report in reports] == [False] * 7 + [True]
    whole, interrupted = reports[-1], reports[2]
    first = measured[:3]
    measured.clear()
    *_, again = __main__.record(asked, interrupted)
    assert len(measured) == 5 and not any(task in first for task in measured)
    assert "5 problems are missing" in capsys.readouterr().out
    assert {(one.case, one.problem) for one in again.results} == {(r.case, r.problem) for r in whole.results}
    assert not list(__main__.record(asked, again))


# This runs the record's own program on 64 rows, because a software adapter is slow on a million elements.
ON_FEW_ROWS = """
import runpy
from dataclasses import replace
from bench.record.sections import SECTIONS
SECTIONS["cpu"] = replace(SECTIONS["cpu"], shapes=lambda *_: [(64, 1024)])
runpy.run_module("bench.record", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_a_run_writes_a_file_that_compare_reads(tmp_path: Path) -> None:
    if not any(adapter.traits.software for adapter in adapters()):
        pytest.skip("the section cpu needs a software adapter")
    # A dot in the name starts no suffix. Otherwise v1.2 would overwrite v1.1.
    out = tmp_path / "cpu1.2"
    json, markdown = tmp_path / "cpu1.2.json", tmp_path / "cpu1.2.md"
    own = ["--cpu", "--out", str(out)]
    options = ["--section", "cpu", "--op", "layer_norm", "--cols", "1024", "--rounds", "2"]
    command = [sys.executable, "-c", ON_FEW_ROWS, *own, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = read(json)
    assert {"copy", "NumPy"} <= {r.kernel for r in report.results if r.timed}
    assert sum(bool(r.auto) for r in report.results) == 1
    # A record does not contain its path.
    assert "bench.record --cpu --out cpu1.2 --section" in markdown.read_text()
    assert not any(str(tmp_path) in path.read_text() for path in (json, markdown))
    assert report.complete and report.origin and report.origin.command.startswith("python -m bench.record")
    # A picture needs several numbers of columns.
    assert "layer_norm" in markdown.read_text() and "![" not in markdown.read_text()
    markdown.unlink()
    command = [sys.executable, "-m", "bench.record", *own, "--tables"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert markdown.exists() and read(json) == report


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--out", "results/a"], ["--out", "results/a"]),
        (["--out", "./results//a"], ["--out", "results/a"]),
        (["--out", "HERE/results/a"], ["--out", "results/a"]),
        (["--out=HERE/results/a", "--cpu"], ["--out=results/a", "--cpu"]),
        (["--out", "/elsewhere/a"], ["--out", "a"]),
        (["--out", "../a"], ["--out", "a"]),
        (["--out", "a", "--adapter", "NVIDIA H200"], ["--out", "a", "--adapter", "'NVIDIA H200'"]),
    ],
)
def test_a_record_keeps_no_folder_of_the_machine(
    given: list[str], kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word.replace("HERE", str(tmp_path)) for word in given]
    monkeypatch.setattr(sys, "argv", ["record", *given])
    out = Path(given[1] if given[0] == "--out" else given[0].partition("=")[2])
    assert arguments.command("bench.record", out) == " ".join(["python -m bench.record", *kept])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("record", ["--tables"], "--tables needs a record, and "),
        ("record", ["--cols", "77"], "nothing to record: no requested section has such a problem"),
        ("record", ["--rounds", "0"], "argument --rounds: it is '0'; expected a whole number of at least 1"),
        (
            "record",
            ["--mebibytes", "0"],
            "argument --mebibytes: it is '0'; expected a whole number of at least 1",
        ),
        ("record", ["--adapter", "made-up"], "no adapter 'made-up'"),
        ("record", ["--page"], "--page: performance.md has no block <!-- out -->"),
        (
            "record",
            ["--search", "soon"],
            "argument --search: it is 'soon'; expected a number of seconds from 0 to 3600",
        ),
        ("record", ["--held-out", "-1"], "argument --held-out: it is '-1'; expected a whole number"),
        ("browser", ["--adapter", "made-up"], "no adapter 'made-up'"),
        ("browser", ["--cols", "0"], "argument --cols: it is '0'; expected a whole number of at least 1"),
        (
            "browser",
            ["--rows", "3", "4", "--cols", "8"],
            "--rows has 2 values and --cols has 1; they form pairs: give equal numbers",
        ),
        ("browser", ["--op", "copy"], "argument --op: invalid choice: 'copy'"),
        ("browser", ["--dawn", "made-up"], "--dawn made-up: no index.js; expected the folder of the npm"),
    ],
)
def test_mistakes_are_reported_in_a_line(
    script: str, options: list[str], message: str, tmp_path: Path, device: Device
) -> None:
    command = [sys.executable, "-m", f"bench.{script}", "--out", str(tmp_path / "out"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode and message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr and not any(tmp_path.iterdir())


RESULTS = ROOT / "bench" / "results"


@pytest.fixture(scope="module", params=["h200", "h100", "cpu"])
def kept(request: pytest.FixtureRequest) -> tuple[str, Report]:
    """A record in the repository."""
    return request.param, read(RESULTS / f"{request.param}.json")


def test_the_committed_tables_match_the_record(kept: tuple[str, Report]) -> None:
    name, report = kept
    stale = f"stale: python -m bench.record --out bench/results/{name} --tables"
    # A record with only drawn columns has no picture.
    picture = f"{name}.svg" if (RESULTS / f"{name}.svg").exists() else None
    assert to_markdown(report, picture) == (RESULTS / f"{name}.md").read_text(), stale


def test_the_lab_page_matches_the_record(
    kept: tuple[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, report = kept
    file = tmp_path / "recorded.json"
    file.write_text(lab_page.FILE.read_text())
    monkeypatch.setattr(lab_page, "FILE", file)
    # An unpublished record changes nothing.
    lab_page.renew(tmp_path / name, replace(report, results=()))
    lab_page.renew(RESULTS / name, report)
    monkeypatch.undo()
    stale = f"stale: python -m bench.record --out bench/results/{name} --tables"
    assert file.read_text() == lab_page.FILE.read_text(), stale
    problems = json.loads(file.read_text())[name]["problems"]
    auto = {one.gbps for one in report.results if one.auto}
    assert problems and all(
        one["gbps"] in {float(f"{gbps or 0:.4g}") for gbps in auto} for one in problems.values()
    )
    assert {*problems} <= {offer.name for offer in lab_offers()}


def test_the_page_has_the_record(kept: tuple[str, Report]) -> None:
    name, report = kept
    if f"<!-- {name} -->" not in page_block.PAGE.read_text():
        pytest.skip("the page has no block of this record")
    made = between_markers(page_block.PAGE, name, page_block.block(name, report))
    stale = f"stale: python -m bench.record --out bench/results/{name} --tables --page"
    assert made == page_block.PAGE.read_text(), stale


def test_the_page_compares_the_largest_x_with_the_fastest_other(monkeypatch: pytest.MonkeyPatch) -> None:
    large = task_of("layer_norm", 256)
    small = replace(large, problem=replace(large.problem, rows=8))
    results = (*a_problem(small, 50.0), *a_problem(large), *a_problem(task_of("layer_norm", 512), 99.0, 95.0))
    *_, table = page_block.block("NAME", Report(device=DEVICE, results=results)).split("\n\n")
    assert table.splitlines() == [
        "| columns | 256 | 512 |",
        "| --- | ---: | ---: |",
        "| **`layer_norm` float32** | 97.5 | 99.0 |",
        "| the fastest of torch, Triton | 90.0 | 95.0 |",
    ]


def test_the_documents_name_every_section_and_contender() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert all(name in text for name in {*SECTIONS, *NAMES} - {*COPIES})
