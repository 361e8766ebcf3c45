"""Checks of the harness with kernels that pretend to be right or fast. It must detect each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cheats import CHOOSY, IDLE, MARKING, PASS, REMEMBERING, WRONG, Cheat

from testbed import SOFTWARE, kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.gpu import timing
from webnorm.gpu.compute_programs import PreparedDispatches
from webnorm.gpu.device import Device
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import WARM_UP_RUNS, Stopwatch, TimedDispatches
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.process.worker import WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import check, jobs
from webnorm.lab.verify import timed_work
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.trial import blank_result
from webnorm.op.op import Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.case import NormCase as Case
from webnorm.ops.norms.corpus import CASES, drawn_cases, whole_corpus
from webnorm.ops.norms.problem import NormProblem


class Here:
    """A worker that runs its tasks in this process."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def stream(self, task: Any, job: Any) -> Iterator[Any]:
        """Return the events of the task."""
        yield from task(self.device, job)


def timed(
    device: Device, paths: list[Path], problem: NormProblem, sets: int, calls: str
) -> dict[str, Result]:
    specs = tuple(jobs.VariantSpec.of(default_variant(load(path), problem, device.traits)) for path in paths)
    rule = timing.StoppingRule(least=5, most=10, settle_s=0.05)
    op = next((OPS[spec.op] for spec in specs if spec.op != "copy"), OPS["copy"])
    job = jobs.TimingJob(Task(op, problem), specs, (), sets, rule, calls)  # type: ignore[arg-type]
    found = [
        event.result for event in jobs.time_variants(device, job) if isinstance(event, jobs.VariantResult)
    ]
    return {result.kernel: result for result in found}


def checked(device: Device, kernel: Kernel, cases: tuple[Case, ...], whole: bool = False) -> Iterator[Result]:
    request = check.CheckRequest((kernel,), cases, whole=whole)
    return check.run(request, Here(device), device.traits)  # type: ignore[arg-type]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace times by the number of dispatched elements.

    Kernels with more work take a multiple of that. Kernels that remember statistics compute each version of
    the inputs once, until their buffers are overwritten.
    """
    spent, known = [0.0], set[tuple[int, int]]()
    submit, encode, spoil = Stopwatch.submit, Plan.encode, PreparedDispatches.encode

    def encode_plan(plan: Plan, compute: Any, index: int = 0) -> None:
        encode(plan, compute, index)
        kernel, problem = plan.shader.variant.kernel.name, plan.shader.problem
        version = id(plan), plan.input_set(index) % 2
        times = 200 if kernel == "slow" else 26 if kernel == REMEMBERING.name and version not in known else 1
        known.add(version)
        spent[0] += times * (1e3 + 10 * problem.rows * problem.cols)

    def encode_spoiling(prepared: PreparedDispatches, compute: Any) -> None:
        spoil(prepared, compute)
        known.clear()
        spent[0] += 1e3

    def sample(stopwatch: Stopwatch, plan: TimedDispatches, dispatches: range) -> timing.Reading:
        spent[0] = 0.0
        reading = submit(stopwatch, plan, dispatches)
        taken = spent[0] / len(dispatches)

        def read() -> float:
            reading()
            return taken

        return read

    monkeypatch.setattr(Plan, "encode", encode_plan)
    monkeypatch.setattr(PreparedDispatches, "encode", encode_spoiling)
    monkeypatch.setattr(Stopwatch, "submit", sample)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    ("rows", "cols", "sets", "calls"), [(64, 256, 1, "one by one"), (64, 256, 4, "at once")]
)
def test_kernels_that_skip_work_are_detected(
    rows: int, cols: int, sets: int, calls: str, device: Device, tmp_path: Path
) -> None:
    problem = NormProblem(rows=rows, cols=cols)
    honest = [wgsl_root() / "copy" / "copy.wgsl", wgsl_root() / "layer_norm" / "naive.wgsl"]
    found = timed(device, honest + [cheat.write(tmp_path) for cheat in IDLE], problem, sets, calls)
    assert [found[name].status for name in ("copy", "naive")] == ["pass", "pass"]
    # With calls at once, the check only compares bits, and this kernel's bits are right.
    untold = {REMEMBERING.name} if calls == "at once" else set()
    assert {cheat.name for cheat in IDLE if found[cheat.name].status != "fail"} <= untold


@pytest.mark.usefixtures("counted")
def test_a_right_kernel_with_memory_is_detected_by_its_time(device: Device, tmp_path: Path) -> None:
    found = timed(device, [REMEMBERING.write(tmp_path)], NormProblem(rows=64, cols=256), 1, "one by one")
    reason = found[REMEMBERING.name].reason or ""
    assert "takes" in reason and "times as long" in reason


@pytest.mark.parametrize(("usual_ns", "slower"), [(20.0, True), (90.0, False)])
def test_empty_passes_give_no_allowance(
    usual_ns: float, slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check allows extra time on overwritten buffers only once."""
    setup: Any = SimpleNamespace(board=SimpleNamespace(sets=1))
    plan: Any = SimpleNamespace(dispatches=7)
    monkeypatch.setattr(timed_work, "_first_times", lambda *_: itertools.repeat((200.0, 100.0, range(1))))
    assert timed_work.first_dispatch_time(setup, plan, 1, usual_ns).slower is slower


@pytest.mark.parametrize(
    ("waits", "work_ns", "status"),
    [
        (0.0, 100.0, "pass"),
        (0.0, 900.0, "fail"),
        (1.0, 100.0, "pass"),
        (0.65, 100.0, "pass"),
        (0.65, 3e7, "fail"),
    ],
)
def test_on_a_busy_machine_a_kernel_is_compared_with_the_copy(
    waits: float, work_ns: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for a processor, always or sometimes, also make a copy's pass longer."""
    device = SimpleNamespace(traits=SimpleNamespace(software=False))
    board = SimpleNamespace(sets=4, calls="one by one", device=device)
    setup: Any = SimpleNamespace(board=board, copying=("copy", 1))
    problem = NormProblem(rows=4, cols=64)
    result = blank_result(default_variant(kernel_named("naive"), problem, SOFTWARE), problem)
    one: Any = SimpleNamespace(plan="kernel", dispatches=1, golden=None, result=result)

    def pairs(_: Any, plan: str, *__: Any) -> Iterator[tuple[float, float, range]]:
        while True:
            waited = rng.uniform(2e6, 8e6) if rng.random() < waits else 0.0
            yield waited + (work_ns if plan == "kernel" else 100.0), 100.0, range(1)

    monkeypatch.setattr(timed_work, "_first_times", pairs)
    monkeypatch.setattr(timed_work, "check_ragged_samples", lambda *_: one.result)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = timed_work.check_timed_work(setup, one, usual_ns=20.0)
        assert (found.status == "fail") is (status == "fail"), f"{seed}: {found.reason}"


def test_a_pass_without_dispatch_gives_no_allowance(device: Device, tmp_path: Path) -> None:
    """Only a plan's dispatched steps count."""
    idle = f'{PASS}\n// entry_point = "main"\n// workgroup_size = 1024\n// workgroup_count = 0\n'
    allowed = []
    for cheat in (Cheat("plain"), Cheat("idle", header={"// [accuracy]": f"{idle}// [accuracy]"})):
        kernel, problem = load(cheat.write(tmp_path)), NormProblem(rows=64, cols=256)
        board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
        plan = board.prepare(default_variant(kernel, problem, device.traits))
        allowed.append(timed_work._switching_ns(board, plan))
    assert allowed[0] == allowed[1]


@pytest.mark.parametrize("software", [True, False])
def test_the_checked_dispatches_are_unpredictable(
    device: Device, monkeypatch: pytest.MonkeyPatch, software: bool
) -> None:
    """The dispatches on overwritten buffers use both versions of the inputs about equally often.

    This applies to times between overwriting dispatches, and to single ones, as on a GPU with timestamps.
    """
    monkeypatch.setattr(device, "traits", replace(device.traits, software=software))
    kernel, problem = kernel_named("naive"), NormProblem(rows=64, cols=256)
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
    plan = board.prepare(default_variant(kernel, problem, device.traits))
    checked: list[int] = []

    def holds(_: ProblemBuffers, plan: Plan, golden: Any, dispatches: range) -> bool:
        checked.append(board.version(plan, dispatches.stop - 1))
        return True

    monkeypatch.setattr(ProblemBuffers, "holds", holds)
    monkeypatch.setattr(timed_work, "_slower", lambda ratios: False if len(ratios) == 100 else None)
    monkeypatch.setattr(timed_work, "_MOST_RATIOS", 199)
    setup = timed_work.timing_setup(board, 0.0)
    found = timed_work.first_dispatch_time(setup, plan, 2, golden=(b"",))
    assert found.strayed is None and 25 < len(checked) < 75
    monkeypatch.setattr(timed_work, "_READ_BACK", 1.0)
    checked.clear()
    timed_work.first_dispatch_time(setup, plan, 2, golden=(b"",))
    assert len(checked) == 100 and 25 < sum(checked) < 75
    monkeypatch.setattr(ProblemBuffers, "holds", lambda *_: False)
    assert timed_work.first_dispatch_time(setup, plan, 2, golden=(b"",)).strayed is not None


class Sliced:
    """A pass on a shared GPU: all dispatches take equally long, and submissions wait after a time slice."""

    def __init__(self) -> None:
        self.work_ns = 0.0

    def set_pipeline(self, pipeline: Any) -> None:
        """Takes no time."""

    def set_bind_group(self, index: int, group: Any, offsets: Any = ()) -> None:
        """Takes no time."""

    def dispatch_workgroups(self, *counts: int) -> None:
        self.work_ns += 3e3

    @property
    def ns(self) -> float:
        return self.work_ns + self.work_ns // 1.5e6 * 15e6


@pytest.mark.slow
@pytest.mark.parametrize("sets", [1, 3, 64, 512])
@pytest.mark.parametrize("name", ["registers", "tiles"])
def test_kernels_on_a_shared_gpu_do_not_fail(
    name: str, sets: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "traits", replace(device.traits, software=False))
    kernel, problem = kernel_named(name, "layer_norm_backward"), NormProblem(rows=8, cols=64)
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), (), sets)
    plan, stopwatch = board.prepare(default_variant(kernel, problem, device.traits)), Stopwatch(device)
    stopwatch.method = "timestamp"

    def submit(self: Stopwatch, plan: Plan, dispatches: range) -> timing.Reading:
        compute = Sliced()
        for index in dispatches:
            plan.encode(compute, index)
        return lambda: compute.ns / len(dispatches)

    monkeypatch.setattr(Stopwatch, "submit", submit)
    pace: Any = SimpleNamespace(ready=lambda: None, worked=lambda: None)
    setup = timed_work.TimingSetup(board, stopwatch, pace, (plan, 1))
    _, dispatches = timed_work.sampler(setup, plan)
    found = timed_work.first_dispatch_time(setup, plan, dispatches)
    assert found.ratio == pytest.approx(1) and not found.slower


def test_a_kernel_that_crashes_repeatedly_is_skipped() -> None:
    """The other kernels are checked on the whole corpus."""
    asked = []

    class Ending:
        def stream(self, task: Any, job: jobs.CheckJob) -> Iterator[Any]:
            for index, spec in enumerate(job.variants):
                yield jobs.VariantBegan(index)
                if "naive" in str(spec.path):
                    asked.append(job.case)
                    raise WorkerDied("no sign of life")
                yield jobs.VariantResult(index, blank_result(spec.variant(), job.task.problem, job.case))

    kernels = (kernel_named("naive"), kernel_named("two_pass"))
    request = check.CheckRequest(kernels, CASES[:9])
    found = list(check.run(request, Ending(), SOFTWARE))  # type: ignore[arg-type]
    assert len(asked) == 3
    assert [sum(one.kernel == kernel.name for one in found) for kernel in kernels] == [9, 9]
    reasons = [one.reason or "" for one in found if one.kernel == "naive"]
    assert sum("no sign of life" in reason for reason in reasons) == 3
    assert sum("not run" in reason for reason in reasons) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("sets", [1, 4])
def test_samples_start_with_overwritten_buffers(
    sets: int, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory, a kernel could learn when a sample ends, or wait for the samples that count."""
    began = []
    submit = Stopwatch.submit

    def watched(stopwatch: Stopwatch, plan: Any, dispatches: range) -> timing.Reading:
        if isinstance(plan, Plan) and plan.scratch:
            (memory,) = plan.scratch.values()
            kept, y = (
                np.frombuffer(device.handle.queue.read_buffer(buffer), np.float32)
                for buffer in (memory, plan.buffers["y"][dispatches.start % sets])
            )
            # The noise is the same at the start of each sample.
            began.append(not (kept == 12345.0).any() and np.array_equal(kept[:256], y[:256]))
        return submit(stopwatch, plan, dispatches)

    monkeypatch.setattr(Stopwatch, "submit", watched)
    found = timed(device, [MARKING.write(tmp_path)], NormProblem(rows=64, cols=256), sets, "one by one")
    assert found[MARKING.name].status == "pass"
    assert len(began) > 10 and all(began[WARM_UP_RUNS:])


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("cheat", "names"), WRONG, ids=lambda part: getattr(part, "name", ""))
def test_kernels_that_are_wrong_on_rare_inputs_are_detected(
    cheat: Cheat, names: tuple[str, ...], device: Device, tmp_path: Path
) -> None:
    """The cheats are wrong where the honest kernel is right.

    On the benign case they are right, except for those that are wrong on every case.
    """
    kernel, right = load(cheat.write(tmp_path)), load(Cheat("naive").write(tmp_path))
    cases = tuple(case for case in whole_corpus(3) if case.name.startswith(names) and not case.for_gpus)
    caught = next(
        case for case in cases if any(one.status == "fail" for one in checked(device, kernel, (case,)))
    )
    assert {result.status for result in checked(device, right, (caught,))} == {"pass"}


def test_a_kernel_that_refuses_most_of_the_corpus_fails(device: Device, tmp_path: Path) -> None:
    kernel = load(CHOOSY.write(tmp_path))
    *others, verdict = checked(device, kernel, CASES[:12], whole=True)
    assert {result.status for result in others} == {"pass", "skip"}
    assert verdict.status == "fail" and "refuses" in (verdict.reason or "")
    # The limit does not apply to a selection of cases.
    assert all(result.case != "whole corpus" for result in checked(device, kernel, CASES[:12]))


def test_one_dispatch_gets_the_statistics_that_it_needs(device: Device) -> None:
    kernel = kernel_named("one_dispatch", "layer_norm_backward")
    (case,) = (case for case in CASES if case.name == "shift-1e2")
    (found,) = checked(device, kernel, (case,))
    assert found.status == "pass" and found.problem.options.saved_stats


def test_a_seed_repeats_what_is_drawn_and_another_does_not() -> None:
    op = OPS["layer_norm"]

    def drawn(seed: int) -> list[Any]:
        found = []
        for case in (*whole_corpus(seed)[:3], *drawn_cases(seed)):
            problem = case.problem(op)
            if problem is not None:
                found.append(
                    (case.shape, case.options, case.eps, case.draw(Task(op, problem))["x"].tobytes())
                )
        return found

    assert drawn(7) == drawn(7)
    assert all(one != other for one, other in zip(drawn(7), drawn(8), strict=False))


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_speed_beyond_the_copy_is_a_failure_on_any_adapter(device: Device, tmp_path: Path) -> None:
    """A kernel that seems to do its work before it is timed."""
    problem = NormProblem(rows=64, cols=1024)
    copy, honest = wgsl_root() / "copy" / "copy.wgsl", wgsl_root() / "layer_norm" / "registers.wgsl"
    slow = tmp_path / "copy" / "slow.wgsl"
    slow.parent.mkdir()
    busy = "for (var i = 0u; i < 200u; i++) { sum += x[min(i, end - 1u)]; }"
    text = copy.read_text().replace(
        "    let first = start", f"    var sum = vec4<u32>();\n    {busy}\n    let first = start"
    )
    slow.write_text(text.replace("] = value", "] = select(0u, 1u, sum.x == 12345u) + value"))
    found = timed(device, [slow, honest], problem, 1, "one by one")
    assert found["slow"].status == "pass", found["slow"].reason
    assert found["registers"].status == "fail" and "% of copy" in (found["registers"].reason or "")


@pytest.mark.parametrize(
    ("copy_ns", "empty_ns", "own_ns", "blamed"),
    [(1000, 10, 1010, False), (1000, 10, 940, True), (1000, 10, 990, False), (1000, 600, 500, False)],
)
def test_lucky_samples_are_not_a_failure(
    copy_ns: float,
    empty_ns: float,
    own_ns: float,
    blamed: bool,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine the copy may have few slow samples; its time in rounds with the kernel counts."""
    problem = NormProblem(rows=64, cols=256)
    board = ProblemBuffers(
        device, Task(OPS["layer_norm"], problem), make_inputs(OPS["layer_norm"], problem), ()
    )
    copy = load(wgsl_root() / "copy" / "copy.wgsl")

    def running(index: int, kernel: Kernel, taken: float, samples: list[float]) -> timed_work.TimedVariant:
        variant = default_variant(kernel, problem, device.traits)
        result = blank_result(variant, problem)
        return timed_work.TimedVariant(
            index, result, board.prepare(variant), None, lambda: lambda: taken, 1, samples
        )

    monkeypatch.setattr(timed_work, "_empty_sampler", lambda _: lambda: lambda: empty_ns)
    pace: Any = SimpleNamespace(ready=lambda: None, worked=lambda: None)
    setup: Any = SimpleNamespace(board=board, pace=pace)
    # The best copy by samples is not the best one.
    copies = [running(0, copy, copy_ns, [3000.0] * 5), running(1, copy, 5 * copy_ns, [2000.0] * 5)]
    suspect = running(2, kernel_named("naive"), own_ns, [900.0] * 5)
    found = timed_work.impossible_times(setup, [*copies, suspect])
    assert (2 in found) is blamed and len(found) == blamed
