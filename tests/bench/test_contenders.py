"""Contenders for CUDA cards: their inputs and their timing, tested without a card."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from bench.contenders import Contender, found_wrong, installed, said, some_rows
from bench.contenders.samplers import JaxProgram
from bench.record import preparing
from webnorm.op.op import Task, make_inputs
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS


def task_of(op: str, dtype: str = "float32", **options: Any) -> Task:
    (task,) = tasks(op, ((24, 96),), replace(OPS[op].defaults, **options), dtype=dtype)
    return task


# --- JAX


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", [op.name for op in NORM_OPS])
def test_jax_computes_every_set_right(op: str, dtype: str) -> None:
    pytest.importorskip("jax", reason="the test needs JAX")
    from bench.contenders import jax_ops

    task = task_of(op, dtype)
    (contender,) = jax_ops.contenders(task, "cpu")
    assert contender.compute is not None
    arrays = make_inputs(task.op, task.problem)
    # One program has hundreds of trips. The other has a block of repeated rows.
    sampler = JaxProgram(contender.compute, jax_ops.sets_of(arrays, task.problem.rows, 3), size=1 << 20)
    few, rows = some_rows(task.op.reference(arrays, task.problem))
    sampler.outputs()
    for outputs in sampler._outputs:
        assert found_wrong(jax_ops.to_numpy(outputs, rows), few, dtype)[1] is None
    twice = jax_ops.arrays(arrays, 2 * task.problem.rows)
    assert twice["x"].shape == (48, 96) and twice["weight"].shape == (96,)
    jax_ops.rehearse(task, contender, 3, 1 << 20)


def test_jax_has_no_residual_here() -> None:
    pytest.importorskip("jax", reason="the test needs JAX")
    from bench.contenders import jax_ops

    (contender,) = jax_ops.contenders(task_of("rms_norm", residual=True), "cpu")
    assert contender.compute is None and "residual" in (contender.absent or "")


def test_a_program_s_time_is_the_difference_between_two_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = JaxProgram.__new__(JaxProgram)
    sampler.runs = 20
    # Starting and waiting takes 500 us, and each program takes 3 ms.
    monkeypatch.setattr(sampler, "_time", lambda programs: 5e5 + 3e6 * programs, raising=False)
    assert sampler.sample() == pytest.approx(3e6 / 20)


# --- QuACK


class FakeTensor(SimpleNamespace):
    """A stand-in for torch's tensor; its name lists its conversions."""

    def float(self) -> FakeTensor:
        return FakeTensor(name=f"{self.name} as float32")

    def reshape(self, *shape: int) -> FakeTensor:
        return FakeTensor(name=f"{self.name} of shape {shape}")


@pytest.fixture
def quack(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace QuACK's functions by ones that return their arguments."""
    module: Any = ModuleType("quack.rmsnorm")

    def echo(name: str, count: int) -> Any:
        def function(*given: Any, **named: Any) -> Any:
            first = name, [one.name for one in given if hasattr(one, "name")]
            return first if count == 1 else (first, *[None] * (count - 1))

        return function

    # The numbers of values that QuACK 0.6.5 returns.
    for name, count in {"layernorm_fwd": 1, "rmsnorm_fwd": 3, "rmsnorm_bwd": 4, "layernorm_bwd": 3}.items():
        setattr(module, name, echo(name, count))
    package: Any = ModuleType("quack")
    monkeypatch.setitem(sys.modules, "quack", package)
    monkeypatch.setitem(sys.modules, "quack.rmsnorm", module)
    monkeypatch.delitem(sys.modules, "bench.contenders.quack_ops", raising=False)
    from bench.contenders import quack_ops

    yield quack_ops
    sys.modules.pop("bench.contenders.quack_ops", None)


@pytest.mark.parametrize(
    ("op", "main", "handed"),
    [
        ("layer_norm", "y", ["layernorm_fwd", "x", "weight as float32", "bias as float32"]),
        ("rms_norm", "y", ["rmsnorm_fwd", "x", "weight"]),
        (
            "layer_norm_backward",
            "dx",
            ["layernorm_bwd", "x", "weight", "dy", "rstd of shape (-1,)", "mean of shape (-1,)"],
        ),
        ("rms_norm_backward", "dx", ["rmsnorm_bwd", "x", "weight", "dy", "rstd of shape (-1,)"]),
    ],
)
def test_quack_gets_its_required_types(quack: Any, op: str, main: str, handed: list[str]) -> None:
    (contender,) = quack.contenders(task_of(op, "float16"), "cuda")
    given = {name: FakeTensor(name=name) for name in ("x", "dy", "weight", "bias", "mean", "rstd")}
    outputs = contender.compute(contender.adapt(given))
    function, names = outputs[main]
    assert [function, *names] == handed
    assert {tensor.name for tensor in OPS[op].outputs(task_of(op).problem)} == set(outputs)


def test_quack_has_no_layer_norm_with_a_residual(quack: Any) -> None:
    (contender,) = quack.contenders(task_of("layer_norm", residual=True), "cuda")
    assert contender.compute is None and "residual" in contender.absent
    (contender,) = quack.contenders(task_of("rms_norm", residual=True), "cuda")
    assert contender.compute is not None


# --- ahead of time


def test_a_contender_is_rehearsed_on_arrays_of_the_same_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="the test needs torch")
    from bench.contenders import torch_ops

    seen: list[tuple[str, Any]] = []

    def computes(name: str) -> Any:
        def compute(t: Any) -> Any:
            seen.append((name, t))
            return t

        return compute

    def contenders(modules: Any, task: Task, device: str) -> list[Contender]:
        return [
            Contender("Liger", computes("Liger"), adapt=lambda t: {**t, "adapted": True}),
            Contender("Triton", computes("Triton")),
        ]

    monkeypatch.setattr(installed, "_without_torch", lambda device: None)
    monkeypatch.setattr(installed, "_contenders", contenders)
    blank = torch_ops.blank
    monkeypatch.setattr(torch_ops, "blank", lambda task, device: blank(task, "cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    task = task_of("layer_norm_backward", "bfloat16")
    installed.rehearse("Liger", task, 4)
    ((name, given),) = seen
    assert name == "Liger" and given.pop("adapted")
    real = torch_ops.tensors(make_inputs(task.op, task.problem), "cpu", task.problem.rows)
    assert {name: (one.shape, one.dtype) for name, one in given.items()} == {
        name: (one.shape, one.dtype) for name, one in real.items()
    }


def test_an_absent_contender_is_not_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_without_torch", lambda device: "torch is not installed")
    monkeypatch.setattr(installed, "_without_jax", lambda: "jax is not installed")
    for name in installed.COMPILING:
        installed.rehearse(name, task_of("layer_norm"), 1)


@pytest.mark.parametrize("has_own", [True, False])
def test_kernels_are_tuned_one_at_a_time(
    has_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, locked = FileLock(tmp_path / "lock"), []

    class Benchmarker:
        def benchmark(self, what: str, *, device: str) -> str:
            locked.append(lock.is_locked)
            return f"{what} on {device}"

    contexts: list[Any] = []
    benchmarking: Any = SimpleNamespace(benchmarker=Benchmarker())
    if has_own:
        benchmarking.set_gpu_benchmark_lock_context = contexts.append
    runtime = SimpleNamespace(benchmarking=benchmarking)
    for name, module in {
        "torch": SimpleNamespace(_inductor=SimpleNamespace(runtime=runtime)),
        "torch._inductor": SimpleNamespace(runtime=runtime),
        "torch._inductor.runtime": runtime,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    # A process calls this once per unit.
    preparing.take_turns(lock)
    preparing.take_turns(lock)
    if has_own:
        with contexts[-1]():
            locked.append(lock.is_locked)
    else:
        assert benchmarking.benchmarker.benchmark("kernel", device="cuda") == "kernel on cuda"
    assert locked == [True] and not lock.is_locked


def test_a_library_s_error_is_one_line_without_colours() -> None:
    raised = RuntimeError("\x1b[91m\x1b[1merror[INTERNAL]:\x1b[0m no valid IR\n  and where")
    assert said(raised) == "RuntimeError: error[INTERNAL]: no valid IR"


def test_some_rows_are_spread_evenly_and_sums_are_whole() -> None:
    task = task_of("layer_norm_backward")
    arrays = make_inputs(task.op, replace(task.problem, rows=200))
    answers = task.op.reference(arrays, replace(task.problem, rows=200))
    few, rows = some_rows(answers)
    assert few["dx"].value.shape == few["dx"].error_scale.shape == (67, 96)
    assert np.array_equal(few["dx"].value, answers["dx"].value[rows])
    assert few["dweight"] is answers["dweight"]
    # A vector of the wrong length, and rows of another problem.
    right = {name: one.value.astype(np.float32) for name, one in few.items()}
    assert found_wrong(right, few, "float32")[1] is None
    for name in ("dx", "dbias"):
        wrong = found_wrong({**right, name: right[name][:5]}, few, "float32")[1]
        assert wrong and wrong.startswith(f"{name} has the shape ")
